/**
 * Token buckets in the memory of this process, for the hot route. A key may send `perSecond` requests a second, and at most that
 * many at once.
 *
 * A bucket is one number: the instant at which it is full again (GCRA, ITU-T I.371). The table has a fixed size and is 4-way
 * set-associative: one hash of the key selects the set, another is the tag. A new key evicts the bucket that is full first. A full
 * bucket equals a new one, so state is lost only if five keys of one second fall into the same set. A map took several times as
 * long, mostly garbage collection.
 */
import { randomInt } from 'node:crypto';
import { limits } from '../config/limits.ts';

export interface TokenBuckets {
  /** Takes a token. @param nowMs on a clock that is never set back @returns whether there was one */
  take(key: string, nowMs?: number): boolean;
}

const SECOND_MS = 1_000;
const WAYS = 4;

/** @param perSecond 0: no limit */
export function tokenBuckets(perSecond: number): TokenBuckets {
  if (perSecond === 0) return { take: () => true };
  const tokenMs = SECOND_MS / perSecond;
  // Allows a millionth of a token for rounding of the sums.
  const latestMs = SECOND_MS - tokenMs * (1 - 1e-6);
  const tags = new Uint32Array(limits.clients.buckets);
  const fullMs = new Float64Array(limits.clients.buckets);
  // Random seeds: clients cannot choose keys that collide.
  const [seed, tagSeed] = [randomInt(2 ** 32), randomInt(2 ** 32)];

  /** Index of the key's bucket, or of the bucket that it evicts. */
  function placeOf(hash: number, tag: number): number {
    const first = (hash * WAYS) & (limits.clients.buckets - 1);
    let place = first;
    for (let at = first; at < first + WAYS; at++) {
      if (tags[at] === tag) return at;
      if (fullMs[at]! < fullMs[place]!) place = at;
    }
    return place;
  }

  return {
    take(key, nowMs = performance.now()) {
      let [hash, tag] = [seed, tagSeed];
      for (let i = 0; i < key.length; i++) {
        const code = key.charCodeAt(i);
        hash = Math.imul(hash ^ code, 0x01000193);
        tag = Math.imul(tag ^ code, 0x5bd1e995);
        tag ^= tag >>> 15;
      }
      tag >>>= 0;
      const at = placeOf(hash ^ (hash >>> 16), tag);
      const aheadMs = tags[at] === tag ? Math.max(0, fullMs[at]! - nowMs) : 0;
      const hasToken = aheadMs <= latestMs;
      tags[at] = tag;
      fullMs[at] = nowMs + aheadMs + (hasToken ? tokenMs : 0);
      return hasToken;
    },
  };
}
