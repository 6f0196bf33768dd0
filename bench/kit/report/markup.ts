/** HTML in which every text is escaped unless it is markup. */

/** Markup, inserted without escaping. Only `html` and the charts make it. */
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
  return typeof part === 'object' ? part.map(({ text }) => text).join('') : escaped(String(part));
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

export function listOf(items: readonly (string | Markup)[]): Markup {
  return html`<ul>${items.map((item) => html`<li>${item}</li>`)}</ul>`;
}
