/** What the locks on one Redis server share: key names, the scripts of a key that holds a token, and a known flaw. */
import type { Redis } from 'ioredis';
import { defineScript } from '../../store/redis/script.ts';

/** All keys of a resource share one hash tag. Locks of two kinds share these names and must not share a resource. */
export const keyOf = (resource: string, part: string): string => `stampede:{${resource}}:${part}`;
export const lockKey = (resource: string): string => keyOf(resource, 'lock');
/** Holds the newest fencing token. */
export const fenceKey = (resource: string): string => keyOf(resource, 'fence');

/** Defines renewal and release of a lock key that holds the token of its claim. */
export function defineTokenScripts(redis: Redis) {
  const renew = defineScript<number>(redis, 'lock/renew', 1);
  const release = defineScript<number>(redis, 'lock/release', 1);
  return {
    /** @returns whether the token still held the lock */
    renew: async (resource: string, token: string, ttlMs: number): Promise<boolean> =>
      (await renew(lockKey(resource), token, ttlMs)) === 1,
    /** @returns whether the token still held the lock */
    release: async (resource: string, token: string): Promise<boolean> =>
      (await release(lockKey(resource), token)) === 1,
  };
}

/** Leases and fencing tokens follow the server's clock; the holder's deadline follows the holder's clock. */
export const SERVER_CLOCK_FLAW =
  "If the server's clock jumps ahead, a lease expires there before its holder's deadline; if the server restarts empty with its clock set back, it issues lower fencing tokens than before.";
