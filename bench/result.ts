/** The numbers of one trial, computed from its history. Pure. */
import type { AuditReport } from './audit/audit.ts';
import type { AttemptOutcome, HistoryRecord } from './history.ts';
import type { Aftermath } from './load/aftermath.ts';

/** In ms, with µs resolution. Percentiles are exact: the smallest value that p % of all values do not exceed. */
interface Latency {
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
  readonly max: number;
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
}

/** One row of `results.json`. */
export interface TrialResult extends LoadNumbers {
  readonly strategy: string;
  readonly lock: string | null;
  /** Declared unsafe: the audit is expected to fail. */
  readonly unsafe: boolean;
  /** Counted from 1. */
  readonly round: number;
  readonly load: 'closed';
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

/** `soldOut`: active orders reached the stock. */
export function loadNumbers(history: readonly HistoryRecord[], soldOut: boolean): LoadNumbers {
  const counts = new Map<AttemptOutcome, number>();
  const latenciesUs: number[] = [];
  let firstInvokedUs = Number.POSITIVE_INFINITY;
  let lastCompletedUs = Number.NEGATIVE_INFINITY;
  let lastAcceptedUs = Number.NEGATIVE_INFINITY;
  for (const { outcome, invokedUs, completedUs } of history) {
    counts.set(outcome, (counts.get(outcome) ?? 0) + 1);
    firstInvokedUs = Math.min(firstInvokedUs, invokedUs);
    if (completedUs === null) continue;
    latenciesUs.push(completedUs - invokedUs);
    lastCompletedUs = Math.max(lastCompletedUs, completedUs);
    if (outcome === 'accepted') lastAcceptedUs = Math.max(lastAcceptedUs, completedUs);
  }
  const count = (outcome: AttemptOutcome): number => counts.get(outcome) ?? 0;
  const accepted = count('accepted');
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
    latencyMs: latency(latenciesUs),
    timeToSellOutMs: soldOut && accepted > 0 ? (lastAcceptedUs - firstInvokedUs) / 1_000 : null,
  };
}

/** Rounded to a tenth; 0 when nothing was counted. */
function perSecond(count: number, us: number): number {
  return count === 0 || us <= 0 ? 0 : Math.round((count / us) * 10_000_000) / 10;
}

function latency(valuesUs: readonly number[]): Latency | null {
  if (valuesUs.length === 0) return null;
  const sorted = Float64Array.from(valuesUs).sort();
  const percentileMs = (percent: number): number =>
    (sorted[Math.max(0, Math.ceil((percent / 100) * sorted.length) - 1)] ?? 0) / 1_000;
  return { p50: percentileMs(50), p90: percentileMs(90), p99: percentileMs(99), max: percentileMs(100) };
}
