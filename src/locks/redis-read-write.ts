/**
 * A lock in one Redis that readers share and a writer holds alone.
 *
 *   read  ──no writer holds or waits──▶ a share with a separate expiry
 *   write ──no holder──▶ held
 *      └──▶ waits, which blocks new readers ──the last share is released or expires──▶ held
 *              └──wait ends, or the waiter dies: its intent expires INTENT_TTL_MS after its last poll──▶ readers enter again
 *
 * The server's clock decides when shares and intents expire. A writer's lease is a key with a token, as in other locks.
 */
import type { RedisClient } from './clients.ts';
import { polledLock } from './kit/polled-lock.ts';
import { defineTokenScripts, FENCED_CLOCK_FLAW, fenceKey, keyOf, lockKey } from './kit/redis.ts';
import { LEASE_CAPABILITIES, type Lock, type LockDescription } from './lock.ts';

export const description: LockDescription = {
  name: 'redis-read-write',
  summary: 'One Redis: readers share, a writer excludes all and does not starve; only writers are fenced.',
  flaw: `An unbroken series of writers starves readers. ${FENCED_CLOCK_FLAW}`,
  needs: 'REDIS_URL',
  capabilities: [...LEASE_CAPABILITIES, 'fencing-tokens'],
};

/** How long a dead waiting writer blocks readers. A live one polls many times within it. */
const INTENT_TTL_MS = 1_000;

export async function create(
  { redis }: { readonly redis: RedisClient },
  intentTtlMs = INTENT_TTL_MS,
): Promise<Lock> {
  const acquireRead = redis.script<number>('lock/read-acquire', 3);
  const renewRead = redis.script<number>('lock/share-renew', 1);
  const releaseRead = redis.script<number>('lock/share-release', 1);
  const acquireWrite = redis.script<number>('lock/write-acquire', 4);
  const releaseWrite = redis.script<number>('lock/queued-release', 2);
  const scripts = defineTokenScripts(redis);
  return polledLock({
    name: description.name,
    queuesAtServer: true,
    async tryAcquire({ resource, token, options: { ttlMs, waitMs, mode } }) {
      const { lock, fence, readers, writers } = keysOf(resource);
      if (mode === 'read') {
        const isGranted = (await acquireRead(lock, readers, writers, token, ttlMs)) === 1;
        return isGranted ? { kind: 'held', fencingToken: null } : { kind: 'retry' };
      }
      const intentMs = waitMs > 0 ? intentTtlMs : 0;
      const reply = await acquireWrite(lock, fence, readers, writers, token, ttlMs, intentMs);
      return reply > 0 ? { kind: 'held', fencingToken: reply } : { kind: 'retry' };
    },
    renew: async ({ resource, token, options: { ttlMs, mode } }) =>
      mode === 'read'
        ? (await renewRead(keysOf(resource).readers, token, ttlMs)) === 1
        : scripts.renew(resource, token, ttlMs),
    async release({ resource, token, options: { mode } }) {
      const { lock, readers, writers } = keysOf(resource);
      return (
        (mode === 'read' ? await releaseRead(readers, token) : await releaseWrite(lock, writers, token)) === 1
      );
    },
  });
}

const keysOf = (resource: string) => ({
  lock: lockKey(resource),
  fence: fenceKey(resource),
  readers: keyOf(resource, 'readers'),
  writers: keyOf(resource, 'writers'),
});
