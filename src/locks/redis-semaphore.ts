/**
 * A semaphore in one Redis: at most `permits` acquisitions hold a resource at once. For the package only: it is no mutual exclusion, so
 * no value of LOCK.
 *
 *   local turn ──▶ attempt ──fewer than `permits` hold one──▶ held: the next local turn begins
 *                    └──all are held──▶ pause ──▶ attempt …          waitMs elapsed: contended
 *
 * A permit is a member of a sorted set with its expiry by the server's clock, so that of a dead holder becomes free. Waiters poll, one of
 * each process: a notification would have to wake as many as permits become free. There is no order between processes.
 *
 * No fencing token: a store that rejects all holders before the newest would reject those that hold the other permits.
 */
import type { RedisClient } from './clients.ts';
import { polledLock } from './kit/polled-lock.ts';
import { defineTokenScripts, resourceScript, SERVER_CLOCK_FLAW } from './kit/redis.ts';
import { LEASE_CAPABILITIES, type Lock, type LockDescription } from './lock.ts';
import { LockOptionsError } from './options.ts';

/** What it can do, for the contract suite. */
export const SEMAPHORE: LockDescription = {
  name: 'redis-semaphore',
  summary: 'One Redis: at most so many leases of a resource at once as there are permits.',
  flaw: SERVER_CLOCK_FLAW,
  needs: 'REDIS_URL',
  capabilities: LEASE_CAPABILITIES,
};

/** Most permits of a resource: each attempt may remove as many that have expired. */
const MAX_PERMITS = 100_000;

interface Context {
  readonly redis: RedisClient;
  /** Holders of a resource at once. Processes with different numbers each count all holders against their own. */
  readonly permits: number;
}

/** @throws LockOptionsError */
export async function create({ redis, permits }: Context): Promise<Lock> {
  if (!(Number.isInteger(permits) && permits > 0 && permits <= MAX_PERMITS))
    throw new LockOptionsError('permits', `a whole number from 1 to ${MAX_PERMITS}, not ${permits}`);
  const acquire = resourceScript(redis, 'lock/permit-acquire', 'permits');
  return polledLock({
    name: SEMAPHORE.name,
    admitsSeveral: true,
    async tryAcquire({ resource, token, ttlMs }) {
      const isGranted = (await acquire(resource, token, ttlMs, permits)) === 1;
      return isGranted ? { kind: 'held', fencingToken: null } : { kind: 'retry' };
    },
    ...defineTokenScripts(redis, 'share-', 'permits'),
  });
}
