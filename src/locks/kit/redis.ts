/** What the locks on one Redis server share: key names, the scripts of a key that holds a token, and a known flaw. */
import type { RedisClient } from '../clients.ts';

/**
 * All keys of a resource share one hash tag: the name, or the tag with which it begins, as `{sale:7}:segment:3`. No two resources
 * have the same key. `lock` is the lock itself, `fence` has its newest fencing token. Locks of two kinds share these names and must not share a resource.
 */
const keyOf = (resource: string, part: string): string =>
  /^\{[^{}]+\}[^}]+$/.test(resource) ? `stampede:${resource}:${part}` : `stampede:{${resource}}:${part}`;
export const lockKey = (resource: string): string => keyOf(resource, 'lock');

/** Prepares a script of lua/. @param parts of a resource, whose keys the script gets */
export function resourceScript(redis: Pick<RedisClient, 'script'>, name: string, ...parts: string[]) {
  const call = redis.script<number>(name, parts.length);
  return (resource: string, ...given: (string | number)[]): Promise<number> =>
    call(...parts.map((part) => keyOf(resource, part)), ...given);
}

/** What renews and releases an acquisition. */
export interface ByToken {
  readonly resource: string;
  readonly token: string;
  readonly ttlMs: number;
}

/**
 * Defines renewal and release of what an acquisition holds: a lock key with its token or, with `share-`, one of several in a sorted set.
 * Both return whether the token held it.
 */
export function defineTokenScripts(
  redis: Pick<RedisClient, 'script'>,
  kind: '' | 'share-' = '',
  part = 'lock',
) {
  const isShare = kind === 'share-';
  const renew = resourceScript(redis, isShare ? 'lock/share-renew' : 'lock/renew', part);
  const release = resourceScript(redis, isShare ? 'lock/share-release' : 'lock/release', part);
  return {
    renew: async ({ resource, token, ttlMs }: ByToken) => (await renew(resource, token, ttlMs)) === 1,
    release: async ({ resource, token }: ByToken) => (await release(resource, token)) === 1,
  };
}

/** Leases and fencing tokens follow the server's clock; the holder's deadline follows the holder's clock. */
export const SERVER_CLOCK_FLAW =
  "If the server's clock jumps ahead, a lease expires there before its holder's deadline.";
/** The same for a lock with fencing tokens. */
export const FENCED_CLOCK_FLAW = `${SERVER_CLOCK_FLAW.slice(0, -1)}; if the server restarts empty with its clock set back, it issues lower fencing tokens than before.`;
