/** The comparison as rows of text: the same cells stand on the terminal and in report.md. */
import { number } from '../audit/check.ts';
import { label } from '../plan.ts';
import type { SummaryRow } from '../summary.ts';

export interface Column {
  readonly title: string;
  readonly align: 'left' | 'right';
}

export const columns: readonly Column[] = [
  { title: 'rank', align: 'right' },
  { title: 'strategy', align: 'left' },
  { title: 'accepted/s', align: 'right' },
  { title: 'attempts/s', align: 'right' },
  { title: 'p50 ms', align: 'right' },
  { title: 'p99 ms', align: 'right' },
  { title: 'time to sell out', align: 'right' },
  { title: 'oversold', align: 'right' },
  { title: 'undersold', align: 'right' },
  { title: 'duplicates', align: 'right' },
  { title: 'lost', align: 'right' },
  { title: 'verdict', align: 'left' },
];

export function cells(row: SummaryRow): string[] {
  const { worst, latencyMs, timeToSellOutMs } = row;
  return [
    row.rank === null ? '–' : `${row.rank}${row.tie ? '=' : ''}`,
    label(row),
    number(Math.round(row.acceptedPerSecond.median)),
    number(Math.round(row.attemptsPerSecond.median)),
    latencyMs === null ? '–' : milliseconds(latencyMs.p50.median),
    latencyMs === null ? '–' : milliseconds(latencyMs.p99.median),
    timeToSellOutMs === null ? 'not sold out' : `${(timeToSellOutMs.median / 1_000).toFixed(2)} s`,
    ...[worst.oversold, worst.undersold, worst.duplicates, worst.lost].map((count) =>
      count === null ? '?' : number(count),
    ),
    verdictText(row),
  ];
}

/** "fail (expected)": what is declared unsafe should fail. */
function verdictText({ verdict, unsafe, worst }: SummaryRow): string {
  if (!unsafe) return verdict;
  return (worst.oversold ?? 0) > 0 ? `${verdict} (expected)` : `${verdict} (should oversell)`;
}

/** Three significant digits are more than rounds agree on. */
export function milliseconds(ms: number): string {
  return ms >= 100 ? number(Math.round(ms)) : ms.toFixed(ms >= 10 ? 1 : 2);
}

/** The table for a terminal, with aligned columns. */
export function terminalTable(rows: readonly SummaryRow[]): string {
  const body = rows.map(cells);
  const widths = columns.map(({ title }, index) =>
    Math.max(title.length, ...body.map((row) => row[index]?.length ?? 0)),
  );
  const line = (texts: readonly string[]): string =>
    columns
      .map(({ align }, index) => {
        const text = texts[index] ?? '';
        const width = widths[index] ?? 0;
        return align === 'left' ? text.padEnd(width) : text.padStart(width);
      })
      .join('  ')
      .trimEnd();
  const head = columns.map(({ title }) => title);
  return [line(head), line(widths.map((width) => '─'.repeat(width))), ...body.map(line)].join('\n');
}

/** What went wrong, in words, one line for each finding; empty when nothing did. */
export function findingLines(rows: readonly SummaryRow[]): string[] {
  return rows.flatMap((row) => row.findings.map((finding) => `${label(row)}: ${finding}`));
}
