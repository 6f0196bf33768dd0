/**
 * Token buckets in the memory of this process, for the hot route: a look into a map for each request. A key may have `perSecond`
 * requests a second, and that many at once. Memory is bounded: when half of `maxKeys` are new, the older ones are forgotten.
 *
 * A bucket is one number, the instant at which it is full again (GCRA, ITU-T I.371): two numbers and an object for each customer
 * doubled the work of the garbage collector.
 */
import { limits } from '../config/limits.ts';

export interface TokenBuckets {
  /** Takes a token. @returns whether there was one */
  take(key: string, nowMs: number): boolean;
}

const SECOND_MS = 1_000;

/** @param perSecond 0: no limit */
export function tokenBuckets(perSecond: number, maxKeys: number = limits.clients.remembered): TokenBuckets {
  if (perSecond === 0) return { take: () => true };
  const tokenMs = SECOND_MS / perSecond;
  // A millionth of a token: sums of such durations are rounded.
  const latestMs = SECOND_MS - tokenMs * (1 - 1e-6);
  let recent = new Map<string, number>();
  let older = new Map<string, number>();
  return {
    take(key, nowMs) {
      let fullMs = recent.get(key);
      if (fullMs === undefined) {
        fullMs = older.get(key) ?? nowMs;
        if (recent.size >= maxKeys / 2) [older, recent] = [recent, new Map()];
      }
      // Never more than a second ahead, also when the clock was set back.
      const aheadMs = Math.min(Math.max(0, fullMs - nowMs), SECOND_MS);
      const hasToken = aheadMs <= latestMs;
      recent.set(key, nowMs + aheadMs + (hasToken ? tokenMs : 0));
      return hasToken;
    },
  };
}
