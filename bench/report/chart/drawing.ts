/** Drawings: echarts on the server makes an SVG, which then takes its colours from the page and is described in words. */
import { CustomChart, type CustomSeriesOption, LineChart, type LineSeriesOption } from 'echarts/charts';
import {
  GraphicComponent,
  type GraphicComponentOption,
  GridComponent,
  type GridComponentOption,
} from 'echarts/components';
import * as echarts from 'echarts/core';
import { SVGRenderer } from 'echarts/renderers';
import { html, Markup } from '../page/markup.ts';
import { hatches } from './look.ts';

echarts.use([CustomChart, LineChart, GraphicComponent, GridComponent, SVGRenderer]);

export type Option = echarts.ComposeOption<
  CustomSeriesOption | LineSeriesOption | GraphicComponentOption | GridComponentOption
>;

/** A drawing is made twice: the page shows the one that fits. */
export interface Frame {
  readonly name: 'wide' | 'narrow';
  readonly width: number;
  readonly fontSize: number;
}

export const frames: readonly Frame[] = [
  { name: 'wide', width: 1060, fontSize: 14 },
  { name: 'narrow', width: 340, fontSize: 12 },
];

/** What a drawing is, for those who do not see it. */
export interface Description {
  /** Unique in the page. */
  readonly id: string;
  readonly title: string;
  /** What it shows, and the main finding. */
  readonly text: string;
}

/** Room that a text takes, px, rather too much: the fonts of readers differ. */
export function widthOf(text: string, { fontSize }: Frame): number {
  return text.length * fontSize * 0.62;
}

export function widest(texts: readonly string[], frame: Frame): number {
  return Math.ceil(Math.max(0, ...texts.map((text) => widthOf(text, frame))));
}

/** Draws on the server. Fills may be those of `hatch` in look.ts. */
export function draw(option: Option, frame: Frame, height: number, description: Description): Markup {
  const { width, fontSize } = frame;
  const chart = echarts.init(null, null, { renderer: 'svg', ssr: true, width, height });
  try {
    chart.setOption({ ...option, animation: false, textStyle: { fontFamily: 'inherit', fontSize } });
    return inPage(chart.renderToSVGString(), frame, {
      ...description,
      id: `${description.id}-${frame.name}`,
    });
  } finally {
    chart.dispose();
  }
}

function inPage(svg: string, { name, width }: Frame, { id, title, text }: Description): Markup {
  const open = /^<svg[^>]*viewBox="([^"]*)"[^>]*>/.exec(svg);
  if (open === null) throw new Error('echarts made no SVG with a view box');
  const head = html`<svg class="${name}" role="img" aria-labelledby="${id}-title ${id}-text" viewBox="${open[1] ?? ''}" width="${width}"><title id="${id}-title">${title}</title><desc id="${id}-text">${text}</desc>`;
  const drawing = svg
    .slice(open[0].length)
    // Its rules for pointers, which would hold in the whole page, and marks that only its scripts read.
    .replace(/<style[\s\S]*?<\/style>/g, '')
    .replace(/ (?:class|pointer-events|xml:space|ecmeta_\w+)="[^"]*"/g, '')
    // Ids are numbered through the process: the same results should make the same page.
    .replace(/zr\d+-(c\d+)/g, `${id}-$1`)
    .replace(/hatch-(\w+)/g, `${id}-$1`)
    .replace(/<(?:path|polygon|polyline|line|rect|circle|text|g)\b[^>]*>/g, inStyle);
  return new Markup(`${head.text}${hatches(id, drawing)}${drawing}`);
}

/** Colours that are the page's variables: certain to work in `style`, where other attributes may leave them unread. */
function inStyle(tag: string): string {
  const colours: string[] = [];
  const rest = tag.replace(/ (fill|stroke)="(var\([^"]*\))"/g, (_, property: string, value: string) => {
    colours.push(`${property}:${value}`);
    return '';
  });
  if (colours.length === 0) return tag;
  const style = / style="([^"]*)"/.exec(rest);
  const all = [...(style?.[1] ?? '').split(';').filter((text) => text !== ''), ...colours].join(';');
  return (style === null ? rest : rest.replace(style[0], '')).replace(
    /\/?>$/,
    (end) => ` style="${all}"${end}`,
  );
}
