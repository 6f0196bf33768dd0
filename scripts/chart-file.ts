/** The ranking as an SVG file, for pages that take pictures only; it follows the reader's light or dark scheme. */

import { html, Markup } from '../bench/kit/report/markup.ts';
import { figure } from '../bench/kit/report/numbers.ts';
import { palette } from '../bench/kit/report/palette.ts';
import { compared, groupsOf, isCorrect, metricOf } from '../bench/kit/report/rows.ts';
import { bestText, sentence, worstCheck } from '../bench/kit/report/words.ts';
import type { Results } from '../bench/kit/results.ts';

/** A phone shows it 358 px wide: its texts have 12 px there. Names and figures stand above their bars, which have the whole width. */
const [width, rowHeight, top, margin] = [480, 42, 36, 10];
const style = `svg{${palette.light}font:17px system-ui,sans-serif;background:var(--paper)}text{fill:var(--ink)}.soft{fill:var(--soft)}.bad{fill:var(--bad)}
.ok{fill:var(--blue)}.best{fill:var(--pale)}.wrong{fill:var(--wrong)}@media(prefers-color-scheme:dark){svg{${palette.dark}}}`;

export function chartFile(results: Results): string {
  const { layout, plan } = results;
  const { unit, title } = metricOf(results, layout.lead);
  const rows = compared(groupsOf(results)[0]?.rows ?? []).map((row) => {
    const value = row.values[layout.lead]?.median;
    return {
      row,
      value: value ?? 0,
      shown: value === undefined ? '–' : figure(value, unit),
      best: isCorrect(row) ? (row.best?.value.median ?? 0) : 0,
    };
  });
  const most = Math.max(1, ...rows.flatMap(({ value, best }) => [value, best]));
  const long = (amount: number): number => Math.round((amount / most) * width);
  const bars = rows.map(({ row, value, shown, best }, n) => {
    const y = top + n * rowHeight;
    const wrong = isCorrect(row) ? '' : ` ✗ ${worstCheck(row, results) || row.verdict}`;
    const text = `${shown}${best > value ? ` · ${bestText(row, results)}` : ''}${wrong}`;
    const bar = (kind: string, amount: number): Markup =>
      html`<rect class="${kind}" y="${y + 22}" width="${long(amount)}" height="12"/>`;
    return html`<text y="${y + 15}">${row.cell}</text><text x="${width}" y="${y + 15}" text-anchor="end" class="${wrong === '' ? '' : 'bad'}">${text}</text>${bar('best', best)}${bar(wrong === '' ? 'ok' : 'wrong', value)}
`;
  });
  const height = top + rows.length * rowHeight + 6;
  const steps =
    plan.ladder === null ? '' : ` at ${plan.ladder.lead} ${plan.ladder.axis}; behind: at its best`;
  return html`<svg xmlns="http://www.w3.org/2000/svg" width="${width + 2 * margin}" viewBox="-${margin} 0 ${width + 2 * margin} ${height}" role="img" aria-labelledby="t"><title id="t">${sentence(results)}</title><style>${new Markup(style)}</style>
<text class="soft" y="18">${title}${steps}</text>
${bars}</svg>
`.text;
}
