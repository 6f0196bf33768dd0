/** Exact percentiles: values that occurred, none in between. */

/** The smallest value that `percent` % of all values do not exceed; 0: no values. @param percent in whole tenths */
export function percentile(sorted: ArrayLike<number>, percent: number): number {
  // In tenths: 99.9 / 100 × 1,000 is more than 999 in floating point.
  const place = Math.ceil((Math.round(percent * 10) * sorted.length) / 1_000);
  return sorted[Math.max(0, place - 1)] ?? 0;
}

/** In ms, with µs resolution. */
export interface Percentiles {
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
  readonly max: number;
}

/** A percentile of sorted µs, in ms. */
export const percentileMs = (sortedUs: ArrayLike<number>, percent: number): number =>
  Math.round(percentile(sortedUs, percent)) / 1_000;

/** All 0 without values. */
export function percentilesMs(valuesUs: ArrayLike<number>): Percentiles {
  const sorted = Float64Array.from(valuesUs).sort();
  const at = (percent: number): number => percentileMs(sorted, percent);
  return { p50: at(50), p90: at(90), p99: at(99), max: at(100) };
}
