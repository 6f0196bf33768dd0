/** The fifth rung: resolves "timed out but succeeded" under the same token, as kit/ambiguous-write.ts describes. */
import { randomUUID } from 'node:crypto';
import type { RedisClient } from '../clients.ts';
import { defineResolvedSet } from '../kit/ambiguous-write.ts';
import { PlainLease } from '../kit/plain-lease.ts';
import { defineTokenScripts } from '../kit/redis.ts';
import { rungLock } from '../kit/rung-lock.ts';
import type { Lock, LockDescription } from '../lock.ts';

export const description: LockDescription = {
  name: 'redis-confirmed',
  summary: 'One Redis: SET NX PX with a token, retried if its reply is lost; compare-and-delete to release.',
  flaw: 'Work longer than the TTL continues alongside the next holder.',
  needs: 'REDIS_URL',
  capabilities: ['expires-after-holder-death', 'release-checks-ownership', 'ambiguous-acquire-resolved'],
};

export async function create({ redis }: { readonly redis: RedisClient }): Promise<Lock> {
  const scripts = defineTokenScripts(redis);
  const setToken = defineResolvedSet(redis);
  return rungLock(description.name, async (resource, ttlMs, compensations) => {
    const token = randomUUID();
    const deadlineMs = performance.now() + ttlMs;
    if (!(await setToken(resource, token, ttlMs, compensations))) return null;
    const release = () => scripts.release(resource, token);
    return new PlainLease({ resource, token, deadlineMs, release });
  });
}
