/** The ranking as an SVG file, for pages that take pictures only; it follows the reader's light or dark scheme. */

import { html, Markup } from '../bench/kit/report/markup.ts';
import { figure } from '../bench/kit/report/numbers.ts';
import { palette } from '../bench/kit/report/palette.ts';
import { compared, groupsOf, isCorrect, metricOf } from '../bench/kit/report/rows.ts';
import { bestText, sentence, worstCheck } from '../bench/kit/report/words.ts';
import type { Results } from '../bench/kit/results.ts';

const [width, rowHeight, top, nameWidth, endWidth] = [640, 28, 34, 184, 196];
const style = `svg{${palette.light}font:15px system-ui,sans-serif;background:var(--paper)}text{fill:var(--ink)}.soft{fill:var(--soft)}.bad{fill:var(--bad)}
.ok{fill:var(--bar)}.best{fill:var(--pale)}.wrong{fill:var(--wrong)}@media(prefers-color-scheme:dark){svg{${palette.dark}}}`;

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
  const long = (amount: number): number => Math.round((amount / most) * (width - nameWidth - endWidth));
  const bars = rows.map(({ row, value, shown, best }, n) => {
    const y = top + n * rowHeight;
    const wrong = isCorrect(row) ? '' : ` ✗ ${worstCheck(row, results) || row.verdict}`;
    const text = `${shown}${best > value ? ` · ${bestText(row, results)}` : ''}${wrong}`;
    const bar = (kind: string, amount: number): Markup =>
      html`<rect class="${kind}" x="${nameWidth}" y="${y}" width="${long(amount)}" height="20"/>`;
    return html`<text x="${nameWidth - 10}" y="${y + 15}" text-anchor="end">${row.cell}</text>${bar('best', best)}${bar(wrong === '' ? 'ok' : 'wrong', value)}<text x="${nameWidth + long(Math.max(value, best)) + 8}" y="${y + 15}" class="${wrong === '' ? '' : 'bad'}">${text}</text>
`;
  });
  const height = top + rows.length * rowHeight + 6;
  const steps = plan.ladder === null ? '' : ` at ${plan.ladder.lead} ${plan.ladder.axis}; pale: at its best`;
  return html`<svg xmlns="http://www.w3.org/2000/svg" width="${width}" viewBox="0 0 ${width} ${height}" role="img" aria-labelledby="t"><title id="t">${sentence(results)}</title><style>${new Markup(style)}</style>
<text class="soft" x="${nameWidth}" y="20">${title}${steps}</text>
${bars}</svg>
`.text;
}
