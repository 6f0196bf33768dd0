/**
 * The figures of an overload, from the history. Pure. An attempt belongs to the second in which it was due, whenever its
 * answer came, and its latency counts from that moment. Admitted means accepted or replayed.
 */
import type { HistoryRecord } from '../../kit/history.ts';
import { percentiles } from '../../load/sending.ts';

export interface Overload {
  readonly admittedP99Ms: number | null;
  readonly busyP99Ms: number | null;
  readonly admitted: number;
  readonly busy: number;
  /** Sent, and neither admitted nor busy. */
  readonly other: number;
  /** Of each second: admitted attempts, and their p99. */
  readonly admittedBySecond: readonly (readonly [second: number, attempts: number])[];
  readonly p99BySecond: readonly (readonly [second: number, ms: number])[];
}

const usPerSecond = 1_000_000;
/** The share of the capacity that counts as full speed. */
const fullSpeedShare = 0.9;
const windowUs = usPerSecond / 2;
const stepUs = 50_000;
const binUs = 100_000;

/** @param schedule when each attempt was due, µs */
export function overloadOf(history: readonly HistoryRecord[], schedule: Float64Array): Overload {
  const bySecond = new Map<number, number[]>();
  const admittedUs: number[] = [];
  const busyUs: number[] = [];
  let other = 0;
  for (const { id, outcome, completedUs } of history) {
    const dueUs = schedule[id] ?? 0;
    if (completedUs === null || !['accepted', 'replayed', 'busy'].includes(outcome)) {
      other++;
      continue;
    }
    const latencyUs = completedUs - dueUs;
    if (outcome === 'busy') {
      busyUs.push(latencyUs);
      continue;
    }
    admittedUs.push(latencyUs);
    const second = Math.floor(dueUs / usPerSecond);
    bySecond.set(second, [...(bySecond.get(second) ?? []), latencyUs]);
  }
  const seconds = [...bySecond].sort(([a], [b]) => a - b);
  return {
    admittedP99Ms: p99Ms(admittedUs),
    busyP99Ms: p99Ms(busyUs),
    admitted: admittedUs.length,
    busy: busyUs.length,
    other,
    admittedBySecond: seconds.map(([second, latencies]) => [second, latencies.length]),
    p99BySecond: seconds.map(([second, latencies]) => [second, p99Ms(latencies) ?? 0]),
  };
}

const p99Ms = (valuesUs: readonly number[]): number | null =>
  valuesUs.length === 0 ? null : percentiles(Float64Array.from(valuesUs).sort()).p99;

export interface Recovery {
  /** From the end of the load to the end of the first half second with 90 % of the capacity; null: there was none. */
  readonly fullSpeedAfterMs: number | null;
  /** In each 100 ms since the end of the load, as a rate a second. */
  readonly acceptedPerSecond: readonly (readonly [ms: number, rate: number])[];
}

/** @param history of the load that began when the overload ended */
export function recoveryOf(
  history: readonly HistoryRecord[],
  { durationMs, capacityPerSecond }: { readonly durationMs: number; readonly capacityPerSecond: number },
): Recovery {
  const accepted = history.flatMap(({ outcome, completedUs }) =>
    outcome === 'accepted' ? [completedUs ?? 0] : [],
  );
  const untilUs = durationMs * 1_000;
  const within = (fromUs: number, toUs: number): number =>
    accepted.filter((us) => us >= fromUs && us < toUs).length;
  const enough = fullSpeedShare * capacityPerSecond * (windowUs / usPerSecond);
  let fullSpeedAfterMs: number | null = null;
  for (let us = 0; us + windowUs <= untilUs && fullSpeedAfterMs === null; us += stepUs) {
    if (within(us, us + windowUs) >= enough) fullSpeedAfterMs = (us + windowUs) / 1_000;
  }
  const acceptedPerSecond = Array.from({ length: Math.floor(untilUs / binUs) }, (_, bin) => {
    const rate = within(bin * binUs, (bin + 1) * binUs) * (usPerSecond / binUs);
    return [(bin * binUs) / 1_000, rate] as const;
  });
  return { fullSpeedAfterMs, acceptedPerSecond };
}
