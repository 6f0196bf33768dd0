/** A line chart over time (uPlot). The canvas has a text alternative with the latest values. */
import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';

interface Series {
  readonly label: string;
  /** A custom property of style.css, such as `--good`. */
  readonly color: string;
  readonly dashed?: boolean;
}

interface ChartProps {
  readonly series: readonly Series[];
  /** Seconds since 1970, ascending; then the values of each series. Null: unknown. */
  readonly data: readonly (readonly (number | null)[])[];
  readonly format: (value: number) => string;
  /** Time span, seconds. */
  readonly spanS: number;
  readonly label: string;
}

const HEIGHT = 180;
const timeOf = (s: number) => new Date(s * 1_000).toTimeString().slice(0, 8);
const DARK = matchMedia('(prefers-color-scheme: dark)');
const token = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function optionsOf({ series, format, spanS }: ChartProps, width: number): uPlot.Options {
  const axis = {
    stroke: token('--soft'),
    grid: { stroke: token('--line'), width: 1 },
    ticks: { show: false },
  };
  const font = `12px ${token('--sans')}`;
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, points: { size: 6 } },
    scales: {
      x: { range: (_chart, _min, max) => [max - spanS, max] },
      y: { range: (_chart, _min, max) => [0, Math.max(1, max * 1.1)] },
    },
    axes: [
      {
        ...axis,
        font,
        grid: { show: false },
        space: 80,
        size: 28,
        values: (_chart, splits) => splits.map(timeOf),
      },
      {
        ...axis,
        font,
        size: 56,
        space: 34,
        values: (_chart, splits) => splits.map((v) => (v === null ? '' : format(v))),
      },
    ],
    series: [
      {},
      ...series.map(({ label, color, dashed }) => ({
        label,
        stroke: token(color),
        width: 2,
        points: { show: false },
        ...(dashed ? { dash: [5, 4] } : {}),
      })),
    ],
  };
}

export function Chart(props: ChartProps) {
  const place = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;

  useEffect(() => {
    const element = place.current!;
    const draw = () => {
      chart.current?.destroy();
      const data = latest.current.data as unknown as uPlot.AlignedData;
      chart.current = new uPlot(optionsOf(latest.current, element.clientWidth), data, element);
    };
    draw();
    const resize = new ResizeObserver(() => {
      if (chart.current?.width !== element.clientWidth)
        chart.current?.setSize({ width: element.clientWidth, height: HEIGHT });
    });
    resize.observe(element);
    DARK.addEventListener('change', draw);
    return () => {
      resize.disconnect();
      DARK.removeEventListener('change', draw);
      chart.current?.destroy();
    };
  }, []);
  useEffect(() => chart.current?.setData(props.data as unknown as uPlot.AlignedData), [props.data]);

  return <div class="chart" ref={place} role="img" aria-label={props.label} />;
}
