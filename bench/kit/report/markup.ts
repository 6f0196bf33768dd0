/** HTML in which every text is escaped unless it is markup. */

/** Markup, inserted without escaping. `html` makes it; `raw` text must come from this program. */
export class Markup {
  readonly text: string;

  constructor(raw: string) {
    this.text = raw;
  }
}

export const nothing = new Markup('');

/** A template that escapes its values, except markup. */
export function html(
  texts: TemplateStringsArray,
  ...values: readonly (string | number | Markup | readonly Markup[])[]
): Markup {
  const parts = values.map((value) => {
    if (value instanceof Markup) return value.text;
    return typeof value === 'object' ? value.map(({ text }) => text).join('') : escaped(String(value));
  });
  return new Markup(String.raw({ raw: texts }, ...parts));
}

const entities: Readonly<Record<string, string>> = {
  ...{ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' },
};

/** Escaped for content and quoted attributes. */
export const escaped = (text: string): string => text.replace(/[&<>"']/g, (one) => entities[one] ?? one);
