/** The numbers of one load of a trial, computed from its history. Pure. */
import type { AuditReport } from './audit/audit.ts';
import type { AttemptOutcome, HistoryRecord } from './history.ts';
import type { Aftermath } from './load/aftermath.ts';
import type { Percentiles } from './load/sending.ts';

/** In ms, with µs resolution. Percentiles are exact: the smallest value that p % of all values do not exceed. */
export interface Latency {
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
  readonly max: number;
}

/** How load is made: closed loop with autocannon, open loop of the bench's own, or a k6 script. */
export type LoadKind = 'closed' | 'open' | 'k6';

/** Where on the axes of the sweeps a trial stands. */
export interface Point {
  /** Round-trip time between service and stores that a proxy adds, ms; 0: no proxy. */
  readonly rttMs: number;
  /** Clients of the closed loop. */
  readonly connections: number;
  /** Sales that are attempted at the same time. */
  readonly sales: number;
}

/** How an open loop was to arrive, and whether it did. */
export interface Rush {
  /** `fixed`: the same rate for every strategy. `share`: a share of what the strategy accepted in the closed loop before. */
  readonly rate: 'fixed' | 'share';
  readonly perSecond: number;
  readonly scheduled: number;
  /** Never sent, because too many were outstanding or no connection was to be had. */
  readonly dropped: number;
  /** From the intended start until the request was handed to its socket; null: the generator does not tell. */
  readonly lagMs: Percentiles | null;
}

/** What attempts cost while the load ran; null: it could not be read (a store elsewhere, another system). */
export interface Cost {
  /** CPU seconds for 10,000 completed attempts. */
  readonly cpu: {
    readonly service: number | null;
    readonly redis: number | null;
    readonly postgres: number | null;
  };
  /** Commands that Redis executed for each attempt, those inside scripts included. */
  readonly redisCommands: number | null;
  /** Transactions that Postgres ended for each attempt. */
  readonly postgresTransactions: number | null;
}

/** How often a lone attempt waits for a store: requests and answers that alternate on its way. */
export interface RoundTrips {
  readonly redis: number;
  readonly postgres: number;
}

/** What the history says. Every attempt that was sent is counted in exactly one outcome. */
export interface LoadNumbers {
  /** Attempts that were sent. */
  readonly attempts: number;
  readonly accepted: number;
  readonly replayed: number;
  readonly soldOut: number;
  readonly notOpen: number;
  readonly busy: number;
  /** No answer was seen, or the service said that it does not know. */
  readonly unknown: number;
  /** Answers that the contract does not have. */
  readonly unexpected: number;
  /** Accepted ÷ seconds from the first invocation to the completion of the last accepted attempt. */
  readonly acceptedPerSecond: number;
  /** Completed attempts ÷ seconds from the first invocation to the last completion. */
  readonly attemptsPerSecond: number;
  /** Of completed attempts, whatever their outcome; null: none was completed. */
  readonly latencyMs: Latency | null;
  /**
   * From the first invocation to the completion of the last accepted attempt, ms; null: active orders did not reach
   * the stock.
   */
  readonly timeToSellOutMs: number | null;
  /** Of accepted attempts alone; null: there is none. */
  readonly acceptedLatencyMs: Latency | null;
  /** Of attempts that were told sold out; null: there is none. */
  readonly refusedLatencyMs: Latency | null;
  /** Latency of accepted attempts by percentile, ascending: what a curve is drawn from. */
  readonly latencyCurve: readonly (readonly [percent: number, ms: number])[];
  /** Share of the units that went to the first `stock` customers to come, 0 to 1; null: none was sold. */
  readonly firstComeShare: number | null;
  /** Units that were left, ms after the first invocation; at most some dozens of moments. */
  readonly remainingOverTime: readonly (readonly [ms: number, units: number])[];
}

/** One row of `results.json`: one load in one trial. */
export interface TrialResult extends LoadNumbers {
  readonly strategy: string;
  readonly lock: string | null;
  /** Declared unsafe: the audit is expected to fail. */
  readonly unsafe: boolean;
  /** The baseline once more: what differs between the two is noise. */
  readonly twin: boolean;
  /** Counted from 1. */
  readonly round: number;
  readonly load: LoadKind;
  readonly point: Point;
  /** Null: not an open loop. In one of the bench's own, latency counts from the intended start. */
  readonly rush: Rush | null;
  /** Null: not measured with this load. */
  readonly cost: Cost | null;
  /** Null: measured in the first round only, or not at all. */
  readonly roundTrips: RoundTrips | null;
  /** Share of the load's time in which the generator's event loop was busy, 0 to 1; null: not known. */
  readonly generatorUtilization: number | null;
  /** Why the figures say more about the generator than about the service; empty: they do not. */
  readonly invalid: readonly string[];
  /** When the trial began, ISO 8601 UTC. */
  readonly startedAt: string;
  /** From empty stores to the audit's verdict. */
  readonly durationMs: number;
  /** Orders that were paid, cancelled, and paid after that, when the load was over: what the audit has to judge. */
  readonly aftermath: Aftermath;
  readonly audit: AuditReport;
  /** The history's file name, in the folder of the results. */
  readonly history: string;
  /** The service process ended by itself. */
  readonly serviceDied: boolean;
  /** What was odd about the trial itself: the service died, or gave answers that the contract does not have. */
  readonly notes: readonly string[];
}

const curvePercents = [0, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 100];
const timelinePoints = 40;

export interface LoadFacts {
  /** Units that were on offer, all sales together. */
  readonly stock: number;
  /** Active orders reached the stock. */
  readonly soldOut: boolean;
  /** The intended start of each attempt by its id, µs since the load began; null: it is when the request was sent. */
  readonly schedule: Float64Array | null;
}

export function loadNumbers(history: readonly HistoryRecord[], facts: LoadFacts): LoadNumbers {
  const counts = new Map<AttemptOutcome, number>();
  const latenciesUs: number[] = [];
  const acceptedUs: number[] = [];
  const refusedUs: number[] = [];
  const acceptedAtUs: number[] = [];
  let firstInvokedUs = Number.POSITIVE_INFINITY;
  let lastCompletedUs = Number.NEGATIVE_INFINITY;
  let lastAcceptedUs = Number.NEGATIVE_INFINITY;
  for (const { id, outcome, invokedUs, completedUs } of history) {
    counts.set(outcome, (counts.get(outcome) ?? 0) + 1);
    firstInvokedUs = Math.min(firstInvokedUs, invokedUs);
    if (completedUs === null) continue;
    const latencyUs = completedUs - (facts.schedule?.[id] ?? invokedUs);
    latenciesUs.push(latencyUs);
    lastCompletedUs = Math.max(lastCompletedUs, completedUs);
    if (outcome === 'sold-out') refusedUs.push(latencyUs);
    if (outcome !== 'accepted') continue;
    lastAcceptedUs = Math.max(lastAcceptedUs, completedUs);
    acceptedUs.push(latencyUs);
    acceptedAtUs.push(completedUs);
  }
  const count = (outcome: AttemptOutcome): number => counts.get(outcome) ?? 0;
  const accepted = count('accepted');
  const acceptedSorted = Float64Array.from(acceptedUs).sort();
  return {
    attempts: history.length,
    accepted,
    replayed: count('replayed'),
    soldOut: count('sold-out'),
    notOpen: count('not-open'),
    busy: count('busy'),
    unknown: count('unknown'),
    unexpected: count('unexpected'),
    acceptedPerSecond: perSecond(accepted, lastAcceptedUs - firstInvokedUs),
    attemptsPerSecond: perSecond(latenciesUs.length, lastCompletedUs - firstInvokedUs),
    latencyMs: latency(Float64Array.from(latenciesUs).sort()),
    timeToSellOutMs: facts.soldOut && accepted > 0 ? (lastAcceptedUs - firstInvokedUs) / 1_000 : null,
    acceptedLatencyMs: latency(acceptedSorted),
    refusedLatencyMs: latency(Float64Array.from(refusedUs).sort()),
    latencyCurve:
      acceptedSorted.length === 0
        ? []
        : curvePercents.map((percent) => [percent, percentileMs(acceptedSorted, percent)] as const),
    firstComeShare: firstComeShare(history, facts),
    remainingOverTime: remainingOverTime(acceptedAtUs, firstInvokedUs, facts.stock),
  };
}

/** Rounded to a tenth; 0 when nothing was counted. */
function perSecond(count: number, us: number): number {
  return count === 0 || us <= 0 ? 0 : Math.round((count / us) * 10_000_000) / 10;
}

function latency(sortedUs: Float64Array): Latency | null {
  if (sortedUs.length === 0) return null;
  const at = (percent: number): number => percentileMs(sortedUs, percent);
  return { p50: at(50), p90: at(90), p99: at(99), max: at(100) };
}

function percentileMs(sortedUs: Float64Array, percent: number): number {
  // In whole tenths of a percent: 99.9 / 100 × 1,000 is more than 999 in floating point.
  const place = Math.ceil((Math.round(percent * 10) * sortedUs.length) / 1_000);
  return Math.round(sortedUs[Math.max(0, place - 1)] ?? 0) / 1_000;
}

/** Who came first by the intended start, or else by when the request was sent. */
function firstComeShare(history: readonly HistoryRecord[], { stock, schedule }: LoadFacts): number | null {
  const winners = new Set(
    history.filter(({ outcome }) => outcome === 'accepted').map(({ userId }) => userId),
  );
  if (winners.size === 0) return null;
  const startUs = (record: HistoryRecord): number => schedule?.[record.id] ?? record.invokedUs;
  const first = new Set<string>();
  for (const { userId } of [...history].sort((a, b) => startUs(a) - startUs(b))) {
    if (first.size === stock) break;
    first.add(userId);
  }
  const served = [...winners].filter((user) => first.has(user)).length;
  return served / Math.min(winners.size, stock);
}

/** Below zero where more were accepted than there were units. */
function remainingOverTime(
  acceptedAtUs: readonly number[],
  originUs: number,
  stock: number,
): (readonly [number, number])[] {
  const sorted = Float64Array.from(acceptedAtUs).sort();
  const points: (readonly [number, number])[] = [[0, stock]];
  const steps = Math.min(timelinePoints, sorted.length);
  for (let step = 1; step <= steps; step++) {
    const sold = Math.round((step * sorted.length) / steps);
    const ms = ((sorted[sold - 1] ?? 0) - originUs) / 1_000;
    points.push([Math.round(ms * 10) / 10, stock - sold]);
  }
  return points;
}
