/**
 * The first rung: a key that exists while the lock is held. Without an expiry it suits work of any length, and it outlives
 * a dead holder.
 */
import { randomUUID } from 'node:crypto';
import type { RedisClient } from '../clients.ts';
import { PlainLease } from '../kit/plain-lease.ts';
import { lockKey } from '../kit/redis.ts';
import { rungLock } from '../kit/rung-lock.ts';
import type { Lock, LockDescription } from '../lock.ts';

export const description: LockDescription = {
  name: 'redis-setnx',
  summary: 'One Redis: SETNX to acquire, DEL to release.',
  flaw: 'It has no expiry: a holder that dies blocks everyone until an operator deletes the key.',
  needs: 'REDIS_URL',
  capabilities: ['held-while-working'],
};

export async function create({ redis }: { readonly redis: RedisClient }): Promise<Lock> {
  return rungLock(description.name, async (resource) => {
    const key = lockKey(resource);
    const token = randomUUID();
    if ((await redis.send('SETNX', key, token)) === 0) return null;
    const release = async () => (await redis.send('DEL', key)) === 1;
    return new PlainLease({ resource, token, deadlineMs: Number.POSITIVE_INFINITY, release });
  });
}
