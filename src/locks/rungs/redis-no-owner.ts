/** The third rung: key and expiry in one command. Its release deletes the key, whichever acquisition holds it. */
import { randomUUID } from 'node:crypto';
import type { RedisClient } from '../clients.ts';
import { PlainLease } from '../kit/plain-lease.ts';
import { lockKey } from '../kit/redis.ts';
import { rungLock } from '../kit/rung-lock.ts';
import type { Lock, LockDescription } from '../lock.ts';

export const description: LockDescription = {
  name: 'redis-no-owner',
  summary: 'One Redis: SET NX PX to acquire, DEL to release.',
  flaw: "A holder that resumes after its TTL deletes the next holder's lock and so admits a third.",
  needs: 'REDIS_URL',
  capabilities: ['expires-after-holder-death'],
};

export async function create({ redis }: { readonly redis: RedisClient }): Promise<Lock> {
  return rungLock(description.name, async (resource, ttlMs) => {
    const key = lockKey(resource);
    const token = randomUUID();
    const deadlineMs = performance.now() + ttlMs;
    if ((await redis.send('SET', key, token, 'PX', ttlMs, 'NX')) === null) return null;
    const release = async () => (await redis.send('DEL', key)) === 1;
    return new PlainLease({ resource, token, deadlineMs, release });
  });
}
