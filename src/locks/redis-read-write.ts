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
import { defineTokenScripts, FENCED_CLOCK_FLAW, resourceScript } from './kit/redis.ts';
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
  const acquireRead = resourceScript(redis, 'lock/read-acquire', 'lock', 'readers', 'writers');
  const shares = defineTokenScripts(redis, 'share-', 'readers');
  const acquireWrite = resourceScript(redis, 'lock/write-acquire', 'lock', 'fence', 'readers', 'writers');
  const releaseWrite = resourceScript(redis, 'lock/queued-release', 'lock', 'writers');
  const scripts = defineTokenScripts(redis);
  return polledLock({
    name: description.name,
    queuesAtServer: true,
    async tryAcquire({ resource, token, ttlMs, waitMs, mode }) {
      if (mode === 'read') {
        const isGranted = (await acquireRead(resource, token, ttlMs)) === 1;
        return isGranted ? { kind: 'held', fencingToken: null } : { kind: 'retry' };
      }
      const reply = await acquireWrite(resource, token, ttlMs, waitMs > 0 ? intentTtlMs : 0);
      return reply > 0 ? { kind: 'held', fencingToken: reply } : { kind: 'retry' };
    },
    renew: (acquisition) => (acquisition.mode === 'read' ? shares : scripts).renew(acquisition),
    async release(acquisition) {
      if (acquisition.mode === 'read') return shares.release(acquisition);
      return (await releaseWrite(acquisition.resource, acquisition.token)) === 1;
    },
  });
}
