/**
 * The first rung: a key that exists while somebody holds the lock. It has no expiry, so work of any length keeps it,
 * and so does a holder that died.
 */
import { randomUUID } from 'node:crypto';
import type { RedisStore } from '../../store/redis/connection.ts';
import { lockKey } from '../kit/keys.ts';
import { PlainLease } from '../kit/plain-lease.ts';
import { pollingLock } from '../kit/polling.ts';
import type { Lock, LockDescription } from '../lock.ts';

export const description: LockDescription = {
  name: 'redis-setnx',
  summary: 'One Redis: SETNX to take it, DEL to give it back.',
  flaw: 'It has no expiry: a holder that dies locks everyone out until somebody deletes the key.',
  needs: 'REDIS_URL',
  capabilities: {
    expires: false,
    checksOwner: false,
    settlesLostAnswers: false,
    renews: true,
    signalsLoss: false,
    reentrant: false,
    fair: false,
    fenced: false,
    waitsByEvent: false,
    survivesFailover: false,
  },
};

export async function create({ redis: { redis } }: { readonly redis: RedisStore }): Promise<Lock> {
  return pollingLock(description.name, async (resource) => {
    const key = lockKey(resource);
    const token = randomUUID();
    if ((await redis.setnx(key, token)) === 0) return null;
    return new PlainLease({
      resource,
      token,
      deadlineMs: Number.POSITIVE_INFINITY,
      giveBack: async () => (await redis.del(key)) === 1,
    });
  });
}
