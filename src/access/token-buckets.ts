/**
 * Token buckets in the memory of this process, for the hot route: a look into a map for each request. A key may have `perSecond`
 * requests a second, and that many at once. Memory is bounded: when half of `maxKeys` are new, the older ones are forgotten.
 */
import { limits } from '../config/limits.ts';

interface Bucket {
  tokens: number;
  atMs: number;
}

export interface TokenBuckets {
  /** Takes a token. @returns whether there was one */
  take(key: string, nowMs: number): boolean;
}

/** @param perSecond 0: no limit */
export function tokenBuckets(perSecond: number, maxKeys: number = limits.clients.remembered): TokenBuckets {
  if (perSecond === 0) return { take: () => true };
  let recent = new Map<string, Bucket>();
  let older = new Map<string, Bucket>();
  return {
    take(key, nowMs) {
      let bucket = recent.get(key);
      if (bucket === undefined) {
        bucket = older.get(key) ?? { tokens: perSecond, atMs: nowMs };
        if (recent.size >= maxKeys / 2) [older, recent] = [recent, new Map()];
        recent.set(key, bucket);
      }
      bucket.tokens = Math.min(perSecond, bucket.tokens + ((nowMs - bucket.atMs) * perSecond) / 1_000);
      bucket.atMs = nowMs;
      if (bucket.tokens < 1) return false;
      bucket.tokens -= 1;
      return true;
    },
  };
}
