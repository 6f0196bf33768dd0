/** HTML in which every text is escaped unless it is said to be markup. */

/** Text that may stand in a page as it is. Only `html` and drawings make it. */
export class Markup {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

export const nothing = new Markup('');

type Part = string | number | Markup | readonly Markup[];

/** A template whose values are escaped, save those that are markup. */
export function html(texts: TemplateStringsArray, ...values: readonly Part[]): Markup {
  return new Markup(texts.reduce((before, text, index) => before + written(values[index - 1] ?? '') + text));
}

function written(part: Part): string {
  if (part instanceof Markup) return part.text;
  return typeof part === 'object' ? part.map(({ text }) => text).join('\n') : escaped(String(part));
}

const entities: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

/** For content and for quoted attributes. */
export function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (character) => entities[character] ?? character);
}

export type Cell = string | Markup;

export interface Column {
  readonly title: string;
  readonly align: 'left' | 'right';
}

export interface Table {
  readonly columns: readonly Column[];
  /** As many cells as columns. */
  readonly rows: readonly (readonly Cell[])[];
}

/**
 * A table that scrolls in its own box when it is wider than the page.
 * @param name of the box, for those who do not see it
 * @param heading the column whose cells name their row
 */
export function tableOf({ columns, rows }: Table, name: string, heading = 0): Markup {
  const head = columns.map(({ title, align }) => html`<th scope="col" class="${align}">${title}</th>`);
  const body = rows.map((cells) => {
    const row = cells.map((cell, index) => {
      const align = columns[index]?.align ?? 'left';
      return index === heading
        ? html`<th scope="row" class="${align}">${cell}</th>`
        : html`<td class="${align}">${cell}</td>`;
    });
    return html`<tr>${row}</tr>`;
  });
  return scrolling(html`<table><thead><tr>${head}</tr></thead><tbody>${body}</tbody></table>`, name);
}

/** Reached with the keyboard as well, or else nobody without a mouse could scroll it. */
export function scrolling(content: Markup, name: string): Markup {
  return html`<div class="scroll" role="region" tabindex="0" aria-label="${name}">${content}</div>`;
}

export function listOf(items: readonly Cell[]): Markup {
  return html`<ul>${items.map((item) => html`<li>${item}</li>`)}</ul>`;
}
