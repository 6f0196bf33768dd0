/** The comparison: one row per strategy (and lock) from its trials in all rounds. Pure. */
import { type CheckName, checkNames, type Verdict } from './audit/audit.ts';
import { type Contender, label } from './plan.ts';
import type { TrialResult } from './result.ts';

/** Over the rounds. */
export interface Spread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

export interface SummaryRow extends Contender {
  /** Trials that were finished. */
  readonly trials: number;
  readonly acceptedPerSecond: Spread;
  readonly attemptsPerSecond: Spread;
  /** Null: no attempt was answered in any round. */
  readonly latencyMs: { readonly p50: Spread; readonly p90: Spread; readonly p99: Spread } | null;
  /** Over the rounds that sold out; null: none did. */
  readonly timeToSellOutMs: Spread | null;
  /** The worst round's number of each check; null: it could be made in no round. */
  readonly worst: Readonly<Record<CheckName, number | null>>;
  /** The worst of all rounds. A round whose service died is at best `unknown`. */
  readonly verdict: Verdict;
  /** By median accepted/s among those that passed, from 1; null: the audit did not pass. */
  readonly rank: number | null;
  /** The rank is shared: the ranges of accepted/s overlap with those of the first of the same rank. */
  readonly tie: boolean;
  /** What went wrong in words, with the round in front. */
  readonly findings: readonly string[];
}

/** Ranked rows first, then those whose audit could not be finished, then those that failed. */
export function summarize(trials: readonly TrialResult[]): SummaryRow[] {
  const groups = new Map<string, TrialResult[]>();
  for (const trial of trials) {
    const key = label(trial);
    groups.set(key, [...(groups.get(key) ?? []), trial]);
  }
  const order: Record<Verdict, number> = { pass: 0, unknown: 1, fail: 2 };
  const rows = [...groups.values()].map(summaryRow).sort((a, b) => {
    return order[a.verdict] - order[b.verdict] || b.acceptedPerSecond.median - a.acceptedPerSecond.median;
  });
  return ranked(rows);
}

function summaryRow(trials: readonly TrialResult[]): SummaryRow {
  const [first] = trials;
  if (first === undefined) throw new Error('a row of the summary needs a trial');
  const latencies = trials.map(({ latencyMs }) => latencyMs).filter((latency) => latency !== null);
  const sellOuts = trials.map(({ timeToSellOutMs }) => timeToSellOutMs).filter((time) => time !== null);
  return {
    strategy: first.strategy,
    lock: first.lock,
    unsafe: first.unsafe,
    trials: trials.length,
    acceptedPerSecond: spread(trials.map(({ acceptedPerSecond }) => acceptedPerSecond)),
    attemptsPerSecond: spread(trials.map(({ attemptsPerSecond }) => attemptsPerSecond)),
    latencyMs:
      latencies.length === 0
        ? null
        : {
            p50: spread(latencies.map(({ p50 }) => p50)),
            p90: spread(latencies.map(({ p90 }) => p90)),
            p99: spread(latencies.map(({ p99 }) => p99)),
          },
    timeToSellOutMs: sellOuts.length === 0 ? null : spread(sellOuts),
    worst: worstCounts(trials),
    verdict: worstVerdict(trials),
    rank: null,
    tie: false,
    findings: trials.flatMap(({ round, audit, notes }) =>
      [...audit.findings, ...notes].map((finding) => `round ${round}: ${finding}`),
    ),
  };
}

function worstCounts(trials: readonly TrialResult[]): Record<CheckName, number | null> {
  const worst = (name: CheckName): number | null => {
    const counts = trials.map(({ audit }) => audit[name]).filter((count) => count !== null);
    return counts.length === 0 ? null : Math.max(...counts);
  };
  return Object.fromEntries(checkNames.map((name) => [name, worst(name)])) as Record<
    CheckName,
    number | null
  >;
}

function worstVerdict(trials: readonly TrialResult[]): Verdict {
  if (trials.some(({ audit }) => audit.verdict === 'fail')) return 'fail';
  const uncertain = trials.some(({ audit, serviceDied }) => serviceDied || audit.verdict === 'unknown');
  return uncertain ? 'unknown' : 'pass';
}

/** The middle value; of an even number of values, the mean of the two in the middle. */
export function spread(values: readonly number[]): Spread {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (index: number): number => sorted[index] ?? 0;
  const half = sorted.length >> 1;
  const median = sorted.length % 2 === 1 ? at(half) : (at(half - 1) + at(half)) / 2;
  return { median, min: at(0), max: at(sorted.length - 1) };
}

/**
 * Ranks the rows that passed. A row whose range of rounds overlaps with that of the first row of a rank shares that
 * rank: the rounds do not tell the two apart. One round alone has no range, so it makes no ties.
 */
function ranked(rows: readonly SummaryRow[]): SummaryRow[] {
  const leaders: { readonly rank: number; readonly row: SummaryRow }[] = [];
  const ranks = rows.map((row, index) => {
    if (row.verdict !== 'pass') return null;
    const leader = leaders.at(-1);
    if (leader !== undefined && overlaps(leader.row, row)) return leader.rank;
    leaders.push({ rank: index + 1, row });
    return index + 1;
  });
  return rows.map((row, index) => {
    const rank = ranks[index] ?? null;
    return { ...row, rank, tie: rank !== null && ranks.filter((other) => other === rank).length > 1 };
  });
}

function overlaps(leader: SummaryRow, row: SummaryRow): boolean {
  return leader.trials > 1 && row.trials > 1 && row.acceptedPerSecond.max >= leader.acceptedPerSecond.min;
}

/** Why a run is not a success; empty: all safe strategies passed, and every unsafe one was seen to oversell. */
export function shortcomings(rows: readonly SummaryRow[]): string[] {
  return rows.flatMap((row) => {
    const name = label(row);
    if (!row.unsafe) {
      if (row.verdict === 'pass') return [];
      return [`${name}: ${row.verdict === 'fail' ? 'the audit failed' : 'the audit could not be finished'}`];
    }
    if ((row.worst.oversold ?? 0) > 0) return [];
    return [
      `${name} is declared unsafe, but was not seen to oversell: this load does not show the difference`,
    ];
  });
}
