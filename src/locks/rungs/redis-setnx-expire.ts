/**
 * The second rung: an expiry, set by a second command.
 *
 *   SETNX ──▶ held without expiry ──PEXPIRE──▶ held until the TTL expires
 *                  └──a crash here──▶ held for ever
 */
import { randomUUID } from 'node:crypto';
import type { RedisClient } from '../clients.ts';
import { PlainLease } from '../kit/plain-lease.ts';
import { lockKey } from '../kit/redis.ts';
import { rungLock } from '../kit/rung-lock.ts';
import type { Lock, LockDescription } from '../lock.ts';

export const description: LockDescription = {
  name: 'redis-setnx-expire',
  summary: 'One Redis: SETNX, then PEXPIRE; DEL to release.',
  flaw: 'A crash between its two commands leaves a lock that never expires.',
  needs: 'REDIS_URL',
  capabilities: ['expires-after-holder-death'],
};

export async function create({ redis }: { readonly redis: RedisClient }): Promise<Lock> {
  return rungLock(description.name, async (resource, ttlMs) => {
    const key = lockKey(resource);
    const token = randomUUID();
    const deadlineMs = performance.now() + ttlMs;
    if ((await redis.send('SETNX', key, token)) === 0) return null;
    await redis.send('PEXPIRE', key, ttlMs);
    const release = async () => (await redis.send('DEL', key)) === 1;
    return new PlainLease({ resource, token, deadlineMs, release });
  });
}
