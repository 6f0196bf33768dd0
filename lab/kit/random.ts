/** Seeded random numbers: the same seed gives the same run. */

/** The next number of a sequence, 0 ≤ n < 1. */
export type Random = () => number;

/** mulberry32: small, fast, and good enough to choose customers; the sequence depends on `seed` alone. */
export function seededRandom(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
}
