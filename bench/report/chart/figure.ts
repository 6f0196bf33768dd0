/** A drawing with its heading, legend, caption, and its data as a table. */
import { type Column, html, type Markup, nothing, type Table, tableOf } from '../page/markup.ts';
import { type Description, type Frame, frames } from './drawing.ts';

export interface Figure {
  /** Unique in the page. */
  readonly id: string;
  readonly title: string;
  /** What can be read off: one or two sentences with numbers. */
  readonly finding: string;
  /** How to read it, and what is left out. */
  readonly caption: string;
  readonly legend: readonly LegendEntry[];
  /** Whether the wide drawing needs the legend as well. */
  readonly legendAlways: boolean;
  readonly data: Table;
  draw(frame: Frame, description: Description): Markup;
}

export interface LegendEntry {
  readonly sample: Markup;
  readonly text: string;
}

export function figureOf(figure: Figure): Markup {
  const { id, title, finding, caption } = figure;
  const description = { id, title, text: `${finding} ${caption}` };
  return html`<section aria-labelledby="${id}">
<h3 id="${id}">${title}</h3>
<figure>
<figcaption><p class="finding">${finding}</p><p>${caption}</p></figcaption>
${frames.map((frame) => figure.draw(frame, description))}
${legendOf(figure)}
<details><summary>The figures as a table</summary>${tableOf(figure.data, `${title}: data`)}</details>
</figure>
</section>`;
}

function legendOf({ legend, legendAlways }: Figure): Markup {
  if (legend.length === 0) return nothing;
  const entries = legend.map(({ sample, text }) => html`<li>${sample} ${text}</li>`);
  return html`<ul class="legend ${legendAlways ? 'always' : 'narrow'}">${entries}</ul>`;
}

export function left(title: string): Column {
  return { title, align: 'left' };
}

export function right(title: string): Column {
  return { title, align: 'right' };
}
