/** Exact percentiles: values that occurred, none in between. */

/** The smallest value that `percent` % of all values do not exceed; 0: no values. @param percent in whole tenths */
export function percentile(sorted: ArrayLike<number>, percent: number): number {
  // In tenths: 99.9 / 100 × 1,000 is more than 999 in floating point.
  const place = Math.ceil((Math.round(percent * 10) * sorted.length) / 1_000);
  return sorted[Math.max(0, place - 1)] ?? 0;
}
