/** Bar drawings: one horizontal bar a strategy, in parts, with its interval and its figure in words. */
import type { CustomSeriesOption } from 'echarts/charts';
import type { Markup } from '../page/markup.ts';
import { type Description, draw, type Frame, widest, widthOf } from './drawing.ts';
import { ink } from './look.ts';
import type { Scale } from './scale.ts';

export interface Bar {
  readonly name: string;
  /** From left to right. */
  readonly parts: readonly { readonly value: number; readonly fill: string; readonly stroke: string }[];
  /** Whiskers; null: there are none. */
  readonly interval: { readonly low: number; readonly high: number } | null;
  /** Beside the bar. */
  readonly text: string;
}

export interface BarDrawing {
  readonly bars: readonly Bar[];
  readonly x: Scale;
  readonly xName: string;
}

/** Names stand before the bars, or above them where that leaves too little room. */
const rows = { wide: 32, narrow: 44 };
const thickness = 15;
const whisker = 5;

export function barDrawing(drawing: BarDrawing, frame: Frame, description: Description): Markup {
  const { bars, x, xName } = drawing;
  const names = bars.map(({ name }) => name);
  const left = frame.name === 'wide' ? widest(names, frame) + 14 : 10;
  const width = plotWidth(drawing, frame, frame.width - left);
  const height = bars.length * rows[frame.name] + 6;
  const soft = { color: ink.soft, fontSize: frame.fontSize };
  const ticks = ticksWithRoom(x, width, frame);
  const option = {
    grid: { left, top: 6, width, height, containLabel: false },
    xAxis: {
      type: 'value' as const,
      min: x.from,
      max: x.to,
      name: xName,
      nameLocation: 'middle' as const,
      nameGap: 30,
      nameTextStyle: soft,
      axisTick: { show: false, customValues: ticks },
      axisLabel: { ...soft, customValues: ticks, formatter: x.text },
      splitLine: { lineStyle: { color: ink.line } },
    },
    yAxis: {
      type: 'category' as const,
      inverse: true,
      data: bars.map((_, index) => index),
      axisLine: { lineStyle: { color: ink.soft } },
      axisTick: { show: false },
      axisLabel: { show: false },
    },
    series: [
      {
        type: 'custom' as const,
        renderItem: painter(drawing, frame),
        data: bars.map((_, index) => [0, index]),
      },
    ],
  };
  return draw(option, frame, height + 6 + 50, description);
}

/** As much of `room` as leaves place for what stands beside each bar, and for half of the last number of the axis. */
function plotWidth({ bars, x }: BarDrawing, frame: Frame, room: number): number {
  const widths = bars.map((bar) => {
    const end = Math.max(lengthOf(bar), bar.interval?.high ?? 0) / x.to;
    return (room - widthOf(bar.text, frame) - 14) / Math.max(end, 0.01);
  });
  return Math.floor(Math.min(room - widthOf(x.text(x.to), frame) / 2 - 4, ...widths));
}

function lengthOf({ parts }: Bar): number {
  return parts.reduce((sum, { value }) => sum + value, 0);
}

/** Every tick, or every second one, or …: so that their numbers do not run into each other. */
function ticksWithRoom({ ticks, to, text }: Scale, width: number, frame: Frame): number[] {
  const needed = widest(ticks.map(text), frame) + 8;
  const apart = (width * ((ticks[1] ?? to) - (ticks[0] ?? 0))) / to;
  const every = Math.max(1, Math.ceil(needed / apart));
  return ticks.filter((_, index) => index % every === 0);
}

type Painter = NonNullable<CustomSeriesOption['renderItem']>;

function painter({ bars }: BarDrawing, { name: frame, fontSize }: Frame): Painter {
  return (params, api) => {
    const bar = bars[params.dataIndex];
    if (bar === undefined) return null;
    const [originX = 0, middle = 0] = api.coord([0, params.dataIndex]);
    const across = (value: number): number => api.coord([value, params.dataIndex])[0] ?? 0;
    const y = frame === 'wide' ? middle : middle + 8;
    const lengths = bar.parts.map(({ value }) => value);
    const ends = lengths.map((_, index) =>
      lengths.slice(0, index + 1).reduce((sum, value) => sum + value, 0),
    );
    const end = Math.max(across(ends.at(-1) ?? 0), bar.interval === null ? 0 : across(bar.interval.high));
    const text = (content: string, x: number, at: number, fill: string, align: 'left' | 'right'): object => ({
      type: 'text',
      x,
      y: at,
      style: { text: content, fill, fontSize, fontFamily: 'inherit', align, verticalAlign: 'middle' },
    });
    const boxes = bar.parts.map(({ fill, stroke }, index) => {
      const from = across(ends[index - 1] ?? 0);
      const shape = {
        x: from,
        y: y - thickness / 2,
        width: across(ends[index] ?? 0) - from,
        height: thickness,
      };
      return { type: 'rect', shape, style: { fill, stroke, lineWidth: 1 } };
    });
    const title =
      frame === 'wide'
        ? text(bar.name, originX - 8, y, ink.text, 'right')
        : text(bar.name, originX + 2, y - 18, ink.text, 'left');
    const whiskers =
      bar.interval === null ? [] : [whiskerOf(across(bar.interval.low), across(bar.interval.high), y)];
    const children = [...boxes, ...whiskers, title, text(bar.text, end + 8, y, ink.text, 'left')];
    return { type: 'group', children } as ReturnType<Painter>;
  };
}

function whiskerOf(low: number, high: number, y: number): object {
  const d = `M${low} ${y - whisker}V${y + whisker}M${low} ${y}H${high}M${high} ${y - whisker}V${y + whisker}`;
  return { type: 'path', shape: { pathData: d }, style: { fill: 'none', stroke: ink.text, lineWidth: 1.5 } };
}
