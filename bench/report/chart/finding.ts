/** Findings in words. */
import { label } from '../../plan.ts';
import type { SummaryRow } from '../../summary.ts';

/** How `extremes` says what it found, as in "lua accepted the most: 9,000/s; global-lock the fewest: 400/s." */
interface Words {
  readonly most: string;
  readonly least: string;
  text(value: number): string;
}

/** Which row has the most of something, and which the least. */
export function extremes(
  rows: readonly SummaryRow[],
  value: (row: SummaryRow) => number,
  { most, least, text }: Words,
): string {
  const sorted = [...rows].sort((a, b) => value(b) - value(a));
  const [first, last] = [sorted[0], sorted.at(-1)];
  if (first === undefined || last === undefined) return 'No strategy passed its audit.';
  const begin = `${label(first)} ${most}: ${text(value(first))}`;
  return first === last ? `${begin}.` : `${begin}; ${label(last)} ${least}: ${text(value(last))}.`;
}
