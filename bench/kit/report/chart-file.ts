/** The ranking as an SVG file, for pages that take pictures only; it follows the reader's light or dark scheme. */
import type { Results } from '../results.ts';
import { escaped } from './markup.ts';
import { figure } from './numbers.ts';
import { palette } from './page-style.ts';
import { compared, groupsOf, isCorrect, metricOf } from './rows.ts';
import { bestText } from './table.ts';
import { sentence, worstCheck } from './words.ts';

const [width, rowHeight, top, nameWidth, endWidth] = [840, 26, 34, 190, 200];

export function chartFile(results: Results): string {
  const { layout, plan } = results;
  const { unit, title } = metricOf(results, layout.lead);
  const rows = compared(groupsOf(results)[0]?.rows ?? []);
  const value = (row: (typeof rows)[number]): number => row.values[layout.lead]?.median ?? 0;
  const best = (row: (typeof rows)[number]): number => (isCorrect(row) ? (row.best?.value.median ?? 0) : 0);
  const most = Math.max(1, ...rows.flatMap((row) => [value(row), best(row)]));
  const long = (amount: number): string => ((amount / most) * (width - nameWidth - endWidth)).toFixed(1);
  const bars = rows.map((row, index) => {
    const y = top + index * rowHeight;
    const wrong = isCorrect(row) ? '' : ` ✗ ${worstCheck(row, results) || row.verdict}`;
    const more = best(row) > value(row) ? ` · ${bestText(row, results)}` : '';
    const text = `${figure(value(row), unit)}${more}${wrong}`;
    const end = nameWidth + Number(long(Math.max(value(row), best(row)))) + 8;
    return (
      `<text x="${nameWidth - 10}" y="${y + 13}" text-anchor="end">${escaped(row.cell)}</text>` +
      `<rect class="best" x="${nameWidth}" y="${y}" width="${long(best(row))}" height="18"/>` +
      `<rect class="${wrong === '' ? 'ok' : 'wrong'}" x="${nameWidth}" y="${y}" width="${long(value(row))}" height="18"/>` +
      `<text x="${end}" y="${y + 13}"${wrong === '' ? '' : ' class="bad"'}>${escaped(text)}</text>`
    );
  });
  const height = top + rows.length * rowHeight + 6;
  const steps = plan.ladder === null ? '' : ` at ${plan.ladder.lead} ${plan.ladder.axis}; pale: at its best`;
  const style =
    `svg{${palette.light}font:13px system-ui,sans-serif;background:var(--paper)}text{fill:var(--ink)}.soft{fill:var(--soft)}.bad{fill:var(--bad)}` +
    `.ok{fill:var(--bar)}.best{fill:var(--pale)}.wrong{fill:var(--wrong)}@media(prefers-color-scheme:dark){svg{${palette.dark}}}`;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" aria-labelledby="t"><title id="t">${escaped(sentence(results))}</title><style>${style}</style>
<text class="soft" x="${nameWidth}" y="20">${escaped(`${title}${steps}`)}</text>
${bars.join('\n')}
</svg>
`;
}
