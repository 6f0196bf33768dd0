/** The comparison: one row per strategy (and lock) at each point, from its trials in all rounds. Pure. */
import { type CheckName, checkNames, type Verdict } from './audit/audit.ts';
import {
  type Comparison,
  compare,
  type Interval,
  interval,
  meanOf,
  median,
  noiseFloor,
  quotients,
} from './kit/statistics.ts';
import { baselineOf, type Contender, label } from './plan.ts';
import type { Cost, Point, RoundTrips, Rush, TrialResult } from './result.ts';

/** Over the rounds. */
export interface Spread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

/** An open loop over the rounds; rounds in which the generator was the bottleneck are left out. */
export interface RushRow {
  /** Rounds that count. */
  readonly rounds: number;
  /** Rounds that are left out. */
  readonly invalid: number;
  readonly perSecond: Spread;
  /** Of what was scheduled, 0 to 1. */
  readonly acceptedShare: Spread;
  /** Answered busy, or with no answer at all, of what was scheduled, 0 to 1. */
  readonly turnedDownShare: Spread;
  /** Of accepted attempts, from their intended start; null: none was accepted. */
  readonly latencyMs: { readonly p50: Spread; readonly p90: Spread; readonly p99: Spread } | null;
  /** Medians over the rounds, of accepted attempts. */
  readonly latencyCurve: readonly (readonly [percent: number, ms: number])[];
  readonly firstComeShare: Spread | null;
}

/** How far apart two identical rows of a run are. */
export interface Noise {
  /** The strategy that was measured twice in each round, as a reader names it. */
  readonly baseline: string;
  /** accepted/s of the twin ÷ that of the baseline; null: no round has both. */
  readonly twin: Interval | null;
  /** The typical distance of such a quotient from 1. Differences within it are ties. */
  readonly floor: number;
}

export interface SummaryRow extends Contender {
  readonly point: Point;
  /** Trials that were finished. */
  readonly trials: number;
  /** Rounds of the closed loop in which the generator was the bottleneck: they are in no figure. */
  readonly invalid: number;
  readonly acceptedPerSecond: Spread;
  /** The same with its 95 % interval; null: no round counts. */
  readonly acceptedInterval: Interval | null;
  readonly attemptsPerSecond: Spread;
  /** accepted/s ÷ that of the baseline (the mean of it and its twin) in the same round; null: there is no baseline, or this is it. */
  readonly toBaseline: Interval | null;
  /** What `toBaseline` says, seen with the noise of the twin. */
  readonly comparison: Comparison | null;
  /** Null: no attempt was answered in any round. */
  readonly latencyMs: { readonly p50: Spread; readonly p90: Spread; readonly p99: Spread } | null;
  /** Over the rounds that sold out; null: none did. */
  readonly timeToSellOutMs: Spread | null;
  /** Medians over the rounds; null: not measured. */
  readonly cost: Cost | null;
  readonly roundTrips: RoundTrips | null;
  /** Of the middle round; empty: there is none. */
  readonly remainingOverTime: readonly (readonly [ms: number, units: number])[];
  /** Null: there was no such load. */
  readonly rush: { readonly fixed: RushRow | null; readonly share: RushRow | null };
  /** The worst round's number of each check; null: it could be made in no round. */
  readonly worst: Readonly<Record<CheckName, number | null>>;
  /** The worst of all rounds and loads. A round whose service died is at best `unknown`. */
  readonly verdict: Verdict;
  /** By median accepted/s among those that passed, from 1; null: the audit did not pass. */
  readonly rank: number | null;
  /** The rank is shared: the rounds do not tell it from the first of the same rank. */
  readonly tie: boolean;
  /** What went wrong in words, with the round in front. */
  readonly findings: readonly string[];
}

/** What is compared, and how noisy it was. */
export interface Summary {
  readonly rows: readonly SummaryRow[];
  readonly noise: Noise | null;
}

/**
 * Ranked rows first, then those whose audit could not be finished, then those that failed, then the twin; point by point.
 * @param baseline the strategy that the others are divided by; null: the usual one
 */
export function summarize(trials: readonly TrialResult[], baseline: string | null = null): Summary {
  const groups = groupBy(trials, (trial) => `${label(trial)} ${pointKey(trial.point)}`);
  const bare = groups.map(rowOf);
  const noise = noiseOf(bare, baseline);
  const points = groupBy(bare, ({ row }) => pointKey(row.point));
  const rows = points.flatMap((atPoint) => ranked(compared(atPoint, baseline, noise?.floor ?? 0), noise));
  return { rows, noise };
}

const pointKey = ({ rttMs, connections, sales }: Point): string => `${rttMs} ${connections} ${sales}`;

function groupBy<T>(items: readonly T[], key: (item: T) => string): T[][] {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const group = groups.get(key(item));
    if (group === undefined) groups.set(key(item), [item]);
    else group.push(item);
  }
  return [...groups.values()];
}

/** A row with what it is compared by: accepted/s of each round that counts. */
interface Rated {
  readonly row: SummaryRow;
  readonly rates: ReadonlyMap<number, number>;
}

function rowOf(trials: readonly TrialResult[]): Rated {
  const [first] = trials;
  if (first === undefined) throw new Error('a row of the summary needs a trial');
  // Capacity is what the closed loop shows; where only k6 ran, what its fixed number of attempts does.
  const capacity = trials.filter(({ load, rush }) => load !== 'open' && rush === null);
  const closed = capacity.some(({ load }) => load === 'closed')
    ? capacity.filter(({ load }) => load === 'closed')
    : capacity;
  const counted = closed.filter(({ invalid }) => invalid.length === 0);
  const accepted = counted.map(({ acceptedPerSecond }) => acceptedPerSecond);
  const latencies = counted.map(({ latencyMs }) => latencyMs).filter((latency) => latency !== null);
  const sellOuts = counted.map(({ timeToSellOutMs }) => timeToSellOutMs).filter((time) => time !== null);
  const row: SummaryRow = {
    strategy: first.strategy,
    lock: first.lock,
    unsafe: first.unsafe,
    twin: first.twin,
    point: first.point,
    trials: new Set(trials.map(({ round }) => round)).size,
    invalid: closed.length - counted.length,
    acceptedPerSecond: spread(accepted),
    acceptedInterval: interval(accepted),
    attemptsPerSecond: spread(counted.map(({ attemptsPerSecond }) => attemptsPerSecond)),
    toBaseline: null,
    comparison: null,
    latencyMs: latencies.length === 0 ? null : latencySpreads(latencies),
    timeToSellOutMs: sellOuts.length === 0 ? null : spread(sellOuts),
    cost: costOf(counted),
    roundTrips: trials.find(({ roundTrips }) => roundTrips !== null)?.roundTrips ?? null,
    remainingOverTime: middle(counted)?.remainingOverTime ?? [],
    rush: { fixed: rushRow(trials, 'fixed'), share: rushRow(trials, 'share') },
    worst: worstCounts(trials),
    verdict: worstVerdict(trials),
    rank: null,
    tie: false,
    findings: findingsOf(trials),
  };
  return { row, rates: new Map(counted.map((trial) => [trial.round, trial.acceptedPerSecond])) };
}

type Latencies = { readonly p50: number; readonly p90: number; readonly p99: number };

function latencySpreads(latencies: readonly Latencies[]): NonNullable<SummaryRow['latencyMs']> {
  return {
    p50: spread(latencies.map(({ p50 }) => p50)),
    p90: spread(latencies.map(({ p90 }) => p90)),
    p99: spread(latencies.map(({ p99 }) => p99)),
  };
}

/** The trial whose accepted/s is in the middle. */
function middle(trials: readonly TrialResult[]): TrialResult | undefined {
  const sorted = [...trials].sort((a, b) => a.acceptedPerSecond - b.acceptedPerSecond);
  return sorted[(sorted.length - 1) >> 1];
}

function costOf(trials: readonly TrialResult[]): Cost | null {
  const costs = trials.map(({ cost }) => cost).filter((cost) => cost !== null);
  if (costs.length === 0) return null;
  const of = (pick: (cost: Cost) => number | null): number | null => {
    const values = costs.map(pick).filter((value) => value !== null);
    return values.length === 0 ? null : median(values);
  };
  return {
    cpu: {
      service: of(({ cpu }) => cpu.service),
      redis: of(({ cpu }) => cpu.redis),
      postgres: of(({ cpu }) => cpu.postgres),
    },
    redisCommands: of(({ redisCommands }) => redisCommands),
    postgresTransactions: of(({ postgresTransactions }) => postgresTransactions),
  };
}

function rushRow(trials: readonly TrialResult[], rate: Rush['rate']): RushRow | null {
  const rushes = trials.flatMap((trial) =>
    trial.rush?.rate === rate ? [{ ...trial, rush: trial.rush }] : [],
  );
  // The two generators are not mixed: k6 does not tell latency from the intended start.
  const open = rushes.filter(({ load }) => load === 'open');
  const all = open.length > 0 ? open : rushes;
  if (all.length === 0) return null;
  const counted = all.filter(({ invalid }) => invalid.length === 0);
  const latencies = counted.map(({ acceptedLatencyMs }) => acceptedLatencyMs).filter((some) => some !== null);
  const shares = counted.map(({ firstComeShare }) => firstComeShare).filter((share) => share !== null);
  const share = (count: (trial: (typeof all)[number]) => number): Spread =>
    spread(counted.map((trial) => count(trial) / trial.rush.scheduled));
  return {
    rounds: counted.length,
    invalid: all.length - counted.length,
    perSecond: spread(counted.map(({ rush }) => rush.perSecond)),
    acceptedShare: share(({ accepted }) => accepted),
    turnedDownShare: share(({ busy, unknown, rush }) => busy + unknown + rush.dropped),
    latencyMs: latencies.length === 0 ? null : latencySpreads(latencies),
    latencyCurve: medianCurve(counted.map(({ latencyCurve }) => latencyCurve)),
    firstComeShare: shares.length === 0 ? null : spread(shares),
  };
}

function medianCurve(curves: readonly TrialResult['latencyCurve'][]): TrialResult['latencyCurve'] {
  const drawn = curves.filter((curve) => curve.length > 0);
  const [first] = drawn;
  if (first === undefined) return [];
  return first.map(
    ([percent], n) => [percent, median(drawn.map((curve) => curve[n]?.[1] ?? Number.NaN))] as const,
  );
}

function findingsOf(trials: readonly TrialResult[]): string[] {
  return trials.flatMap(({ round, load, rush, audit, notes, invalid }) => {
    const where = rush === null ? load : { fixed: 'rush', share: 'rush at a share of capacity' }[rush.rate];
    const what = load === 'closed' ? `round ${round}` : `round ${round}, ${where}`;
    return [...audit.findings, ...notes, ...invalid.map((why) => `not counted: ${why}`)].map(
      (finding) => `${what}: ${finding}`,
    );
  });
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

/** The middle value; of an even number of values, the mean of the two in the middle. All 0 of no value. */
export function spread(values: readonly number[]): Spread {
  if (values.length === 0) return { median: 0, min: 0, max: 0 };
  return { median: median(values), min: Math.min(...values), max: Math.max(...values) };
}

function noiseOf(rated: readonly Rated[], baseline: string | null): Noise | null {
  const twin = rated.find(({ row }) => row.twin);
  const base = baselineOf(
    rated.map(({ row }) => row),
    baseline,
  );
  const own = rated.find(({ row }) => row === base);
  if (twin === undefined || own === undefined) return null;
  const all = quotients(twin.rates, own.rates);
  return { baseline: label(own.row), twin: interval(all), floor: noiseFloor(all) };
}

/** Divides each row by the baseline of its point, round by round. */
function compared(atPoint: readonly Rated[], baseline: string | null, floor: number): Rated[] {
  const base = baselineOf(
    atPoint.map(({ row }) => row),
    baseline,
  );
  const own = atPoint.find(({ row }) => row === base);
  if (own === undefined) return [...atPoint];
  const both = meanOf(own.rates, atPoint.find(({ row }) => row.twin)?.rates);
  return atPoint.map(({ row, rates }) => {
    if (row === own.row) return { row, rates };
    const toBaseline = interval(quotients(rates, row.twin ? own.rates : both));
    const comparison = toBaseline === null ? null : compare(toBaseline, row.twin ? 0 : floor);
    return { row: { ...row, toBaseline, comparison }, rates };
  });
}

/**
 * Ranks the rows that passed by their median. A row that the rounds do not tell from the first row of a rank shares that
 * rank. One round alone tells nothing apart by itself: then the figures as they are decide.
 */
function ranked(rated: readonly Rated[], noise: Noise | null): SummaryRow[] {
  const order: Record<Verdict, number> = { pass: 0, unknown: 1, fail: 2 };
  const place = ({ row }: Rated): number => (row.twin ? 3 : order[row.verdict]);
  const sorted = [...rated].sort(
    (a, b) => place(a) - place(b) || b.row.acceptedPerSecond.median - a.row.acceptedPerSecond.median,
  );
  let leader: { readonly rank: number; readonly rated: Rated } | null = null;
  const ranks = sorted.map((rated, index) => {
    if (rated.row.twin || rated.row.verdict !== 'pass' || rated.rates.size === 0) return null;
    if (leader === null || !tied(rated, leader.rated, noise)) leader = { rank: index + 1, rated };
    return leader.rank;
  });
  return sorted.map(({ row }, index) => {
    const rank = ranks[index] ?? null;
    return { ...row, rank, tie: rank !== null && ranks.filter((other) => other === rank).length > 1 };
  });
}

function tied(rated: Rated, leader: Rated, noise: Noise | null): boolean {
  const quotient = interval(quotients(rated.rates, leader.rates));
  if (quotient === null || quotient.rounds < 2) return false;
  return compare(quotient, noise?.floor ?? 0) === 'tie';
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
