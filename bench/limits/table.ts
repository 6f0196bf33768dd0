/** The comparison as rows of text: the same cells stand on the terminal and in report.md. */
import { number } from '../audit/check.ts';
import { milliseconds } from '../report/table.ts';
import type { Column } from '../report/terminal-table.ts';
import type { CellRow, RatioRow, Reading } from './results.ts';
import { figure, goalText } from './summary.ts';

export const ratioColumns: readonly Column[] = [
  ['ratio', 'left'],
  ['goal', 'left'],
  ['median', 'right'],
  ['lowest', 'right'],
  ['highest', 'right'],
  ['rounds', 'right'],
  ['verdict', 'left'],
];

export function ratioTexts(row: RatioRow): string[] {
  const { of, by, spread, rounds, verdict } = row;
  const values = spread === null ? ['–', '–', '–'] : [spread.median, spread.min, spread.max].map(figure);
  return [`${of} ÷ ${by}`, goalText(row), ...values, String(rounds.length), verdict];
}

export const cellColumns: readonly Column[] = [
  ['cell', 'left'],
  ['per second', 'right'],
  ['lowest', 'right'],
  ['highest', 'right'],
  ['of', 'left'],
  ['p50 ms', 'right'],
  ['p99 ms', 'right'],
  ['processors', 'left'],
  ['other answers', 'right'],
  ['audit', 'left'],
];

export function cellTexts(row: CellRow): string[] {
  const { median, min, max } = row.perSecond;
  return [
    row.cell,
    ...[median, min, max].map((rate) => number(Math.round(rate))),
    row.counts,
    row.latencyMs === null ? '–' : milliseconds(row.latencyMs.p50.median),
    row.latencyMs === null ? '–' : milliseconds(row.latencyMs.p99.median),
    processorsText(row.processors),
    number(row.others + row.unanswered),
    row.audit ?? '–',
  ];
}

/** Each of a few; of many the first, which is the server's where they are split, and the mean of the others. */
export function processorsText(shares: readonly number[]): string {
  const [first = 0, ...others] = shares;
  if (others.length <= 3) return shares.map(percent).join(' ');
  return `${percent(first)}, others ${percent(others.reduce((sum, share) => sum + share, 0) / others.length)}`;
}

export const readingColumns: readonly Column[] = [
  ['attempts', 'right'],
  ['resident MiB', 'right'],
  ['after s', 'right'],
];

export function readingTexts({ attempts, residentBytes, atMs }: Reading): string[] {
  return [number(attempts), mebibytes(residentBytes), (atMs / 1_000).toFixed(1)];
}

export const mebibytes = (bytes: number): string => (bytes / 2 ** 20).toFixed(1);
export const percent = (share: number): string => `${Math.round(share * 100)}%`;
