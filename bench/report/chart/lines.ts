/** Line drawings: one line a strategy, named at its end where there is room. */
import type { LineSeriesOption } from 'echarts/charts';
import type { Markup } from '../page/markup.ts';
import { type Description, draw, type Frame, type Option, widest } from './drawing.ts';
import { cornersOf, ink, type Look } from './look.ts';
import type { Scale } from './scale.ts';

export interface Line {
  readonly name: string;
  readonly look: Look;
  /** Values, ascending by x. */
  readonly points: readonly (readonly [x: number, y: number])[];
}

export interface LineDrawing {
  readonly lines: readonly Line[];
  readonly x: Scale;
  readonly y: Scale;
  readonly xName: string;
  readonly yName: string;
  /** Whether names stand at the lines' ends when the drawing is wide. */
  readonly named: boolean;
}

/** Where the plot is, in px. */
interface Box {
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
}

const heights = { wide: 450, narrow: 330 };
const labelGap = 46;
/** Between names, beside their size. */
const nameGap = 3;
/** On a line; more would hide it. */
const mostSymbols = 10;

export function lineDrawing(drawing: LineDrawing, frame: Frame, description: Description): Markup {
  const named = drawing.named && frame.name === 'wide';
  const room = drawing.lines.length * (frame.fontSize + nameGap) + 90;
  const height = named ? Math.max(heights.wide, room) : heights[frame.name];
  const box = plotBox(drawing, frame, height, named);
  const { lines, x, y } = drawing;
  const option: Option = {
    grid: { ...box, containLabel: false },
    xAxis: axis(x, drawing.xName, frame, 'x'),
    yAxis: axis(y, drawing.yName, frame, 'y'),
    series: lines.map((line) => series(line, drawing)),
    graphic: {
      elements: [...zeroLine(drawing, box), ...(named ? endNames(drawing, box, frame.fontSize) : [])],
    },
  };
  return draw(option, frame, height, description);
}

function plotBox({ lines, y }: LineDrawing, frame: Frame, height: number, named: boolean): Box {
  const left = widest(y.ticks.map(y.text), frame) + 12;
  const names = lines.map(({ name }) => name);
  const right = named ? widest(names, frame) + labelGap + 6 : 20;
  return { left, top: 34, width: frame.width - left - right, height: height - 34 - 52 };
}

function axis(scale: Scale, name: string, { fontSize }: Frame, side: 'x' | 'y'): object {
  const places = scale.ticks.map(scale.place);
  const text = (place: number): string => scale.text(scale.ticks[places.indexOf(place)] ?? 0);
  return {
    type: 'value',
    min: scale.from,
    max: scale.to,
    name,
    nameLocation: side === 'x' ? 'middle' : 'end',
    nameGap: side === 'x' ? 32 : 14,
    nameTextStyle: { color: ink.soft, fontSize, align: side === 'x' ? 'center' : 'left' },
    axisLine: { show: side === 'x', onZero: false, lineStyle: { color: ink.soft } },
    axisTick: { show: side === 'x', customValues: places, lineStyle: { color: ink.soft } },
    axisLabel: { customValues: places, color: ink.soft, fontSize, hideOverlap: true, formatter: text },
    splitLine: { show: true, lineStyle: { color: ink.line } },
  };
}

/** Where values are below zero too, zero is more than one of the grid's lines. */
function zeroLine({ y }: LineDrawing, { left, top, width, height }: Box): object[] {
  if (y.from >= 0 || y.place(0) !== 0) return [];
  const at = top + (y.to / (y.to - y.from)) * height;
  const shape = { x1: left, x2: left + width, y1: at, y2: at };
  return [{ type: 'line', shape, style: { stroke: ink.soft, lineWidth: 1.5 } }];
}

function series({ name, look, points }: Line, { x, y }: LineDrawing): LineSeriesOption {
  const every = Math.ceil(points.length / mostSymbols);
  return {
    type: 'line',
    name,
    data: points.map(([xValue, yValue], index) => ({
      value: [x.place(xValue), y.place(yValue)],
      symbol: index % every === 0 || index === points.length - 1 ? look.symbol : 'none',
    })),
    symbolSize: 7,
    showAllSymbol: true,
    clip: false,
    itemStyle: { color: look.hollow ? ink.paper : look.colour, borderColor: look.colour, borderWidth: 1.5 },
    lineStyle: { color: look.colour, width: 2, type: look.dashes.length === 0 ? 'solid' : [...look.dashes] },
  };
}

/** Names beside the ends of their lines, moved apart, with a thin line to where the line ends. */
function endNames({ lines, x, y }: LineDrawing, box: Box, fontSize: number): object[] {
  const ends = lines.flatMap(({ name, look, points }) => {
    const last = points.at(-1);
    if (last === undefined) return [];
    const share = (scale: Scale, value: number): number =>
      (scale.place(value) - scale.from) / (scale.to - scale.from);
    const px = {
      x: box.left + share(x, last[0]) * box.width,
      y: box.top + (1 - share(y, last[1])) * box.height,
    };
    return [{ name, look, px }];
  });
  ends.sort((a, b) => a.px.y - b.px.y);
  const lowest = box.top + box.height + 10;
  const placed = apart(
    ends.map(({ px }) => px.y),
    fontSize + nameGap,
    box.top - 6,
    lowest,
  );
  const textLeft = box.left + box.width + labelGap;
  return ends.flatMap(({ name, look, px }, index) =>
    endName(name, look, px, { x: textLeft, y: placed[index] ?? px.y }, fontSize),
  );
}

interface Place {
  readonly x: number;
  readonly y: number;
}

function endName(name: string, look: Look, end: Place, at: Place, fontSize: number): object[] {
  const points = [
    [end.x + 6, end.y],
    [at.x - 20, at.y],
    [at.x - 13, at.y],
  ];
  const corners = cornersOf(look, at.x - 9, at.y, 3.5);
  const symbol =
    corners === null
      ? { type: 'circle', shape: { cx: at.x - 9, cy: at.y, r: 3.5 } }
      : { type: 'polygon', shape: { points: corners } };
  const fill = look.hollow ? ink.paper : look.colour;
  return [
    { type: 'polyline', shape: { points }, style: { stroke: look.colour, lineWidth: 1, fill: 'none' } },
    { ...symbol, style: { fill, stroke: look.colour, lineWidth: 1.5 } },
    {
      type: 'text',
      ...at,
      style: { text: name, fill: ink.text, fontSize, fontFamily: 'inherit', verticalAlign: 'middle' },
    },
  ];
}

/**
 * Ascending places, at least `gap` apart, near to where they were, from `least` to `most` if they find room there.
 * Those that are too close are put around their common middle.
 */
export function apart(places: readonly number[], gap: number, least: number, most: number): number[] {
  let groups = places.map((place) => ({ middle: place, count: 1 }));
  for (let moved = true; moved; ) {
    moved = false;
    const next: typeof groups = [];
    for (const group of groups) {
      const half = ((group.count - 1) * gap) / 2;
      const middle = Math.max(least + half, Math.min(most - half, group.middle));
      const before = next.at(-1);
      const room =
        before === undefined ? Infinity : middle - half - (before.middle + ((before.count - 1) * gap) / 2);
      if (before === undefined || room >= gap - 1e-9) {
        next.push({ middle, count: group.count });
        continue;
      }
      const count = before.count + group.count;
      next[next.length - 1] = {
        middle: (before.middle * before.count + middle * group.count) / count,
        count,
      };
      moved = true;
    }
    groups = next;
  }
  return groups.flatMap(({ middle, count }) =>
    Array.from({ length: count }, (_, n) => middle + (n - (count - 1) / 2) * gap),
  );
}
