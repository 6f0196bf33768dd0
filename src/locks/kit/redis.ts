/** What the locks on one Redis server share: key names, the scripts of a key that holds a token, and a known flaw. */
import type { RedisClient } from '../clients.ts';

/**
 * All keys of a resource share one hash tag: the name, or the tag with which it begins, as `{sale:7}:segment:3`. No two resources
 * have the same key. Locks of two kinds share these names and must not share a resource.
 */
export const keyOf = (resource: string, part: string): string =>
  /^\{[^{}]+\}[^}]+$/.test(resource) ? `stampede:${resource}:${part}` : `stampede:{${resource}}:${part}`;
export const lockKey = (resource: string): string => keyOf(resource, 'lock');
/** Holds the newest fencing token. */
export const fenceKey = (resource: string): string => keyOf(resource, 'fence');

/** Defines renewal and release of a lock key that holds the token of its acquisition. Both return whether the token held it. */
export function defineTokenScripts(redis: Pick<RedisClient, 'script'>) {
  const renew = redis.script<number>('lock/renew', 1);
  const release = redis.script<number>('lock/release', 1);
  return {
    renew: async (resource: string, token: string, ttlMs: number) =>
      (await renew(lockKey(resource), token, ttlMs)) === 1,
    release: async (resource: string, token: string) => (await release(lockKey(resource), token)) === 1,
  };
}

/** Leases and fencing tokens follow the server's clock; the holder's deadline follows the holder's clock. */
export const SERVER_CLOCK_FLAW =
  "If the server's clock jumps ahead, a lease expires there before its holder's deadline.";
/** The same for a lock with fencing tokens. */
export const FENCED_CLOCK_FLAW = `${SERVER_CLOCK_FLAW.slice(0, -1)}; if the server restarts empty with its clock set back, it issues lower fencing tokens than before.`;
