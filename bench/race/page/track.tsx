/**
 * The chart of a lane (uPlot): accepted attempts per second above the finish line, oversold units as red blocks below it. Bands
 * show faults; marks show when the lane sold out and when it recovered. Labels of marks never overlap: see placeLabels.
 */
import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { placeLabels } from '../../kit/labels.ts';
import { BIN_MS, type LaneView, oversoldBins, type RaceView } from '../view.ts';

/** The scale that all lanes share. */
export interface Scale {
  /** Most oversold units of a lane. */
  readonly oversold: number;
  /** Most accepted attempts per second of a lane. */
  readonly peak: number;
  readonly endMs: number;
}

interface TrackProps {
  readonly lane: LaneView;
  readonly race: RaceView;
  readonly scale: Scale;
  readonly label: string;
}

const ROWS = 5;
const FONT = 12;
/** Above the plot. */
const LABELS = { rows: 3, height: 13 };
const HEIGHT = 118;
const dark = matchMedia('(prefers-color-scheme: dark)');
const token = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Accepted attempts in the last second, for the part of the race that has run. */
function lineOf({ bins }: LaneView, { elapsedMs, phase }: RaceView): uPlot.AlignedData {
  const isOver = phase !== 'running';
  const known = Math.max(0, Math.floor(elapsedMs / BIN_MS) + (isOver ? 1 : 0));
  const at = Array.from({ length: known + 1 }, (_, n) => (n * BIN_MS) / 1_000);
  return [at, at.map((_, n) => (n === 0 ? 0 : (bins[n - 1] ?? 0) + (bins[n - 2] ?? 0)))];
}

/** The red blocks: the height of each column is cumulative. */
function drawBlocks(chart: uPlot, { lane, race, scale }: TrackProps): void {
  const { ctx } = chart;
  const perBlock = Math.max(1, Math.ceil(scale.oversold / ROWS));
  const top = chart.valToPos(0, 'y', true);
  const rowPx = (chart.bbox.top + chart.bbox.height - top) / ROWS;
  const gap = Math.max(1, devicePixelRatio);
  ctx.fillStyle = token('--block');
  let pile = 0;
  for (const [n, count] of oversoldBins(lane, race.options.units).entries()) {
    pile += count;
    if (pile === 0) continue;
    const [from, to] = [n, n + 1].map((bin) => chart.valToPos((bin * BIN_MS) / 1_000, 'x', true));
    for (let row = 0; row < Math.ceil(pile / perBlock); row++)
      ctx.fillRect(from!, top + row * rowPx + gap, to! - from! - gap, rowPx - gap);
  }
}

interface Mark {
  readonly ms: number;
  readonly color: string;
  /** From the longest to the shortest. */
  readonly texts: readonly string[];
}

/** When faults struck, and when the lane recovered and sold out. */
function marksOf({ lane: { outages, allSoldMs }, race: { strikes } }: TrackProps): Mark[] {
  const seconds = (ms: number) => `${(ms / 1_000).toFixed(1)} s`;
  const faults = strikes.flatMap(({ struckMs, title }, n): Mark[] => {
    const { recoveredMs = null } = outages[n] ?? {};
    const struck = { ms: struckMs, color: '--warn', texts: [title, 'fault'] };
    if (recoveredMs === null) return [struck];
    const texts = [`recovered after ${seconds(recoveredMs)}`, 'recovered', seconds(recoveredMs)];
    return [struck, { ms: struckMs + recoveredMs, color: '--good', texts }];
  });
  if (allSoldMs === null) return faults;
  return [
    ...faults,
    { ms: allSoldMs, color: '--soft', texts: [`sold out at ${seconds(allSoldMs)}`, 'sold out'] },
  ];
}

/** The finish line, bands of faults, and marks with their labels in the rows above the plot. */
function drawMarks(chart: uPlot, props: TrackProps): void {
  const { lane, race } = props;
  const { ctx, bbox } = chart;
  const ratio = devicePixelRatio;
  const x = (ms: number) => chart.valToPos(ms / 1_000, 'x', true);
  const bottom = bbox.top + bbox.height;
  ctx.font = `600 ${FONT * ratio}px ${token('--sans')}`;
  ctx.textAlign = 'left';
  ctx.textBaseline = 'alphabetic';
  ctx.globalCompositeOperation = 'destination-over';
  ctx.fillStyle = token('--warn-fill');
  for (const [n, { struckMs }] of race.strikes.entries()) {
    const healedMs = lane.outages[n]?.healedMs ?? race.elapsedMs;
    ctx.fillRect(x(struckMs), bbox.top, x(healedMs) - x(struckMs), bbox.height);
  }
  ctx.globalCompositeOperation = 'source-over';
  const marks = marksOf(props);
  const texts = ({ texts }: Mark) => texts.map((text) => [text, ctx.measureText(text).width] as const);
  const labels = marks.map((mark) => ({ at: x(mark.ms), texts: texts(mark) }));
  const right = chart.ctx.canvas.width;
  const places = placeLabels(labels, { left: 0, right, rows: LABELS.rows, gap: 5 * ratio });
  for (const [n, { ms, color }] of marks.entries()) {
    const place = places[n]!;
    const top = place === null ? bbox.top : (place.row * LABELS.height + 2) * ratio;
    ctx.fillStyle = token(color);
    ctx.fillRect(x(ms), top, 1.5 * ratio, bottom - top);
    if (place !== null) ctx.fillText(place.text, place.left, top + FONT * ratio);
  }
  ctx.fillStyle = token('--ink');
  ctx.fillRect(bbox.left, chart.valToPos(0, 'y', true) - ratio / 2, bbox.width, ratio);
}

function optionsOf(props: { readonly current: TrackProps }, width: number): uPlot.Options {
  const axis = {
    stroke: token('--soft'),
    font: `${FONT}px ${token('--sans')}`,
    ticks: { show: false },
    gap: 2,
  };
  const above = () => props.current.scale.peak * 1.1;
  /** As a multiple of what is above: room for the blocks. */
  const below = () => (props.current.scale.oversold > 0 ? 0.5 : 0.05);
  return {
    ...{
      width,
      height: HEIGHT,
      legend: { show: false },
      cursor: { show: false },
      padding: [LABELS.rows * LABELS.height, 16, 0, 0],
    },
    scales: {
      x: { time: false, range: () => [0, props.current.scale.endMs / 1_000] },
      y: { range: () => [-above() * below(), above()] },
    },
    axes: [
      { ...axis, size: 17, space: 60, grid: { show: false }, values: (_, at) => at.map((s) => `${s} s`) },
      {
        ...{ ...axis, size: 38, space: 18, grid: { stroke: token('--line'), width: 1 } },
        splits: () => [0, props.current.race.options.rate],
        values: (_, at) => at.map((n) => (n === 0 ? '' : `${n}/s`)),
      },
    ],
    series: [{}, { stroke: token('--blue'), width: 2, fill: token('--line-fill'), points: { show: false } }],
    hooks: {
      draw: [
        (chart) => {
          chart.ctx.save();
          drawBlocks(chart, props.current);
          drawMarks(chart, props.current);
          chart.ctx.restore();
        },
      ],
    },
  };
}

export function Track(props: TrackProps) {
  const place = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  useEffect(() => {
    const element = place.current!;
    const open = (): void => {
      chart.current?.destroy();
      const { lane, race } = latest.current;
      chart.current = new uPlot(optionsOf(latest, element.clientWidth), lineOf(lane, race), element);
    };
    const resized = new ResizeObserver(() =>
      chart.current?.setSize({ width: element.clientWidth, height: HEIGHT }),
    );
    open();
    resized.observe(element);
    dark.addEventListener('change', open);
    return () => {
      resized.disconnect();
      dark.removeEventListener('change', open);
      chart.current?.destroy();
    };
  }, []);
  useEffect(() => chart.current?.setData(lineOf(props.lane, props.race)), [props.race]);
  return <div class="track" ref={place} role="img" aria-label={props.label} />;
}
