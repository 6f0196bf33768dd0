/** A sweep as a table: the same cells on the terminal and in Markdown. */
import { number } from '../audit/check.ts';
import type { Sweep } from '../options.ts';
import { label } from '../plan.ts';
import type { SummaryRow } from '../summary.ts';
import type { Results } from './results.ts';
import type { Column } from './terminal-table.ts';

export const axisTitles: Readonly<Record<Sweep, string>> = {
  rtt: 'round-trip time to the stores, ms',
  connections: 'connections',
  sales: 'sales at once',
};

/** accepted/s: a line for each strategy, a column for each value of the axis. */
export function sweepTable(
  { summary }: Pick<Results, 'summary'>,
  sweep: Sweep,
): [columns: Column[], rows: string[][]] {
  const axisValue = ({ point }: SummaryRow): number =>
    ({ rtt: point.rttMs, connections: point.connections, sales: point.sales })[sweep];
  const values = [...new Set(summary.map(axisValue))].sort((a, b) => a - b);
  const names = [...new Set(summary.map((row) => label(row)))];
  const cell = (name: string, value: number): string => {
    const row = summary.find((one) => label(one) === name && axisValue(one) === value);
    if (row === undefined || row.acceptedInterval === null) return '–';
    const rate = number(Math.round(row.acceptedPerSecond.median));
    return row.verdict === 'pass' || row.unsafe ? rate : `${rate} (${row.verdict})`;
  };
  return [
    [['strategy', 'left'], ...values.map((value): Column => [number(value), 'right'])],
    names.map((name) => [name, ...values.map((value) => cell(name, value))]),
  ];
}
