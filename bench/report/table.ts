/** The comparison as rows of text: the same cells stand on the terminal and in report.md. */
import { number } from '../audit/check.ts';
import type { Interval } from '../kit/statistics.ts';
import { label } from '../plan.ts';
import type { SummaryRow } from '../summary.ts';
import type { Results } from './results.ts';
import type { Column } from './terminal-table.ts';

export const columns: readonly Column[] = [
  ['rank', 'right'],
  ['strategy', 'left'],
  ['accepted/s', 'right'],
  ['95 %', 'right'],
  ['× base', 'right'],
  ['attempts/s', 'right'],
  ['p99 ms', 'right'],
  ['rush p99 ms', 'right'],
  ['sold out after', 'right'],
  ['round trips', 'right'],
  ['CPU s/10k', 'right'],
  ['oversold', 'right'],
  ['undersold', 'right'],
  ['duplicates', 'right'],
  ['lost', 'right'],
  ['verdict', 'left'],
];

export function cells(row: SummaryRow): string[] {
  const { worst, latencyMs, timeToSellOutMs, acceptedInterval, toBaseline, rush } = row;
  const measured = row.acceptedInterval !== null;
  return [
    row.rank === null ? '–' : `${row.rank}${row.tie ? '=' : ''}`,
    label(row),
    measured ? number(Math.round(row.acceptedPerSecond.median)) : '–',
    acceptedInterval === null || acceptedInterval.rounds < 2 ? '–' : range(acceptedInterval),
    toBaseline === null ? '–' : toBaseline.median.toFixed(2),
    measured ? number(Math.round(row.attemptsPerSecond.median)) : '–',
    latencyMs === null ? '–' : milliseconds(latencyMs.p99.median),
    rush.fixed?.latencyMs ? milliseconds(rush.fixed.latencyMs.p99.median) : '–',
    timeToSellOutMs === null ? '–' : `${(timeToSellOutMs.median / 1_000).toFixed(2)} s`,
    roundTripsText(row),
    cpuText(row),
    ...[worst.oversold, worst.undersold, worst.duplicates, worst.lost].map((count) =>
      count === null ? '?' : number(count),
    ),
    verdictText(row),
  ];
}

/** "1,234–1,300". */
export function range({ low, high }: Pick<Interval, 'low' | 'high'>): string {
  return `${number(Math.round(low))}–${number(Math.round(high))}`;
}

/** Of Redis and of Postgres, for a lone attempt. */
export function roundTripsText({ roundTrips }: SummaryRow): string {
  return roundTrips === null ? '–' : `${roundTrips.redis} + ${roundTrips.postgres}`;
}

/** Of service, Redis and Postgres together; "–" where one of them is not known. */
export function cpuText({ cost }: SummaryRow): string {
  const parts = cost === null ? [null] : Object.values(cost.cpu);
  const known = parts.filter((part) => part !== null);
  return known.length < parts.length ? '–' : known.reduce((sum, part) => sum + part, 0).toFixed(1);
}

/** What the noise of a run allows to tell apart. */
export function noiseText({ noise }: Pick<Results, 'noise'>): string {
  if (noise === null || noise.twin === null)
    return 'Without a second measurement of the baseline in at least two rounds, nothing says how noisy this run was.';
  const percent = (share: number): string => `${(share * 100).toFixed(1)} %`;
  const { low, high, median } = noise.twin;
  return (
    `Noise: ${noise.baseline} was measured twice in each round. The second came out at ${median.toFixed(2)} of the first ` +
    `(95 %: ${low.toFixed(2)}–${high.toFixed(2)}), in a round typically ${percent(noise.floor)} apart. What is closer than that is a tie.`
  );
}

/** "fail (expected)": what is declared unsafe should fail. */
export function verdictText({ verdict, unsafe, worst }: SummaryRow): string {
  if (!unsafe) return verdict;
  return (worst.oversold ?? 0) > 0 ? `${verdict} (expected)` : `${verdict} (should oversell)`;
}

/** Three significant digits are more than rounds agree on. */
export function milliseconds(ms: number): string {
  return ms >= 100 ? number(Math.round(ms)) : ms.toFixed(ms >= 10 ? 1 : 2);
}

/**
 * What went wrong, in words, one line for each finding; empty when nothing did.
 * @param most of each row; the others are counted
 */
export function findingLines(rows: readonly SummaryRow[], most = Number.POSITIVE_INFINITY): string[] {
  return rows.flatMap((row) => {
    const lines = row.findings.slice(0, most).map((finding) => `${label(row)}: ${finding}`);
    const more = row.findings.length - lines.length;
    return more === 0 ? lines : [...lines, `${label(row)}: and ${more} more, which stand in the report`];
  });
}
