/**
 * A lock in one Redis, first come first served across processes.
 *
 *   attempt ──free, and the queue is empty──▶ held
 *     └──▶ queued ──polls, which keeps the place──▶ first, and free ──▶ held
 *             ├──wait ends──▶ leaves the queue
 *             └──dies──▶ its place expires PLACE_TTL_MS after its last poll
 *
 * Acquisitions further back poll less often. An acquisition with `waitMs` 0 takes no place and does not overtake.
 */
import type { RedisClient } from './clients.ts';
import { polledLock } from './kit/polled-lock.ts';
import { defineTokenScripts, FENCED_CLOCK_FLAW, resourceScript } from './kit/redis.ts';
import { LEASE_CAPABILITIES, type Lock, type LockDescription } from './lock.ts';

export const description: LockDescription = {
  name: 'redis-fair',
  summary: 'One Redis, first come first served across processes; the place of a dead waiter expires.',
  flaw: FENCED_CLOCK_FLAW,
  needs: 'REDIS_URL',
  capabilities: [...LEASE_CAPABILITIES, 'fencing-tokens', 'fair'],
};

/** How long a dead waiter at the head blocks the queue. A live one that stalls for longer moves to the end. */
const PLACE_TTL_MS = 1_000;
/** Added to the poll pause for each waiter ahead. The maximum leaves several polls within PLACE_TTL_MS. */
const EXTRA_MS = 4;
const MAX_EXTRA_MS = 100;

export async function create(
  { redis }: { readonly redis: RedisClient },
  placeTtlMs = PLACE_TTL_MS,
): Promise<Lock> {
  const acquire = resourceScript(redis, 'lock/fair-acquire', 'lock', 'fence', 'queue', 'places');
  const release = resourceScript(redis, 'lock/queued-release', 'lock', 'queue', 'places');
  return polledLock({
    name: description.name,
    queuesAtServer: true,
    async tryAcquire({ resource, token, ttlMs, waitMs }) {
      const reply = await acquire(resource, token, ttlMs, waitMs > 0 ? placeTtlMs : 0);
      if (reply > 0) return { kind: 'held', fencingToken: reply };
      return { kind: 'retry', extraMs: Math.min((-reply - 1) * EXTRA_MS, MAX_EXTRA_MS) };
    },
    renew: defineTokenScripts(redis).renew,
    release: async ({ resource, token }) => (await release(resource, token)) === 1,
  });
}
