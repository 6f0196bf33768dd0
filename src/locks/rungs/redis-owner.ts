/** The fourth rung: the key holds its acquisition's token, and a release compares the token before it deletes. */
import { randomUUID } from 'node:crypto';
import type { RedisClient } from '../clients.ts';
import { PlainLease } from '../kit/plain-lease.ts';
import { defineTokenScripts, lockKey } from '../kit/redis.ts';
import { rungLock } from '../kit/rung-lock.ts';
import type { Lock, LockDescription } from '../lock.ts';

export const description: LockDescription = {
  name: 'redis-owner',
  summary: 'One Redis: SET NX PX with a token, compare-and-delete to release.',
  flaw: 'A SET that ran but whose reply was lost blocks everyone, its own caller included, until the TTL expires.',
  needs: 'REDIS_URL',
  capabilities: ['expires-after-holder-death', 'release-checks-ownership'],
};

export async function create({ redis }: { readonly redis: RedisClient }): Promise<Lock> {
  const scripts = defineTokenScripts(redis);
  return rungLock(description.name, async (resource, ttlMs) => {
    const token = randomUUID();
    const deadlineMs = performance.now() + ttlMs;
    if ((await redis.send('SET', lockKey(resource), token, 'PX', ttlMs, 'NX')) === null) return null;
    const release = () => scripts.release(resource, token);
    return new PlainLease({ resource, token, deadlineMs, release });
  });
}
