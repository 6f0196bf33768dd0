/**
 * The figures of an overload, from the history of one open loop: the overload, then arrivals at the capacity. An attempt
 * belongs to the second in which it was due, whenever its answer came, and its latency counts from that moment.
 */
import type { AttemptOutcome, HistoryRecord } from '../../../lab/history.ts';
import { groupBy } from '../../../lab/kit/group-by.ts';
import { percentilesMs } from '../../kit/percentile.ts';

export type Overload = Readonly<ReturnType<typeof overloadOf>>;
export type Recovery = Readonly<ReturnType<typeof recoveryOf>>;

/** @param schedule when each attempt was due, µs */
export function overloadOf(history: readonly HistoryRecord[], schedule: Float64Array) {
  const p99Ms = (records: readonly HistoryRecord[]): number | null =>
    records.length === 0 ? null : percentilesMs(records.map((r) => r.completedUs! - schedule[r.id]!)).p99;
  const ended = (...outcomes: readonly AttemptOutcome[]): HistoryRecord[] =>
    history.filter(({ outcome, completedUs }) => completedUs !== null && outcomes.includes(outcome));
  const [admitted, busy] = [ended('accepted', 'replayed'), ended('busy')];
  const bySecond = groupBy(admitted, ({ id }) => Math.floor(schedule[id]! / 1e6));
  const seconds = [...bySecond].sort(([a], [b]) => a - b);
  return {
    /** Admitted: accepted or replayed. */
    admittedP99Ms: p99Ms(admitted),
    busyP99Ms: p99Ms(busy),
    /** Sent, and neither admitted nor busy. */
    other: history.length - admitted.length - busy.length,
    /** For each second, the number of admitted attempts; for those with some, their p99 in ms. */
    admittedBySecond: Array.from({ length: secondsOf(history, schedule) }, (_, second) => {
      return [second, bySecond.get(second)?.length ?? 0] as const;
    }),
    p99BySecond: seconds.map(([second, records]) => [second, p99Ms(records) ?? 0] as const),
  };
}

/** Up to the last in which an attempt was due. */
const secondsOf = (history: readonly HistoryRecord[], schedule: Float64Array): number =>
  history.reduce((most, { id }) => Math.max(most, Math.floor(schedule[id]! / 1e6) + 1), 0);

/** @param acceptedMs when attempts due after the overload were accepted, ms since its end */
export function recoveryOf(acceptedMs: readonly number[], durationMs: number, capacity: number) {
  const rate = (fromMs: number, lengthMs: number): number =>
    acceptedMs.filter((ms) => ms >= fromMs && ms < fromMs + lengthMs).length * (1_000 / lengthMs);
  const every = (stepMs: number, untilMs = durationMs): number[] =>
    Array.from({ length: Math.floor(untilMs / stepMs) }, (_, n) => n * stepMs);
  const windowMs = 500;
  const full = every(50, durationMs - windowMs + 50).find((ms) => rate(ms, windowMs) >= 0.9 * capacity);
  return {
    /** From the end of the overload to the end of the first half second with 90 % of the capacity; null: there was none. */
    fullSpeedAfterMs: full === undefined ? null : full + windowMs,
    /** Accepted attempts/s in each 100 ms since the end of the overload. */
    acceptedPerSecond: every(100).map((ms) => [ms, rate(ms, 100)] as const),
  };
}
