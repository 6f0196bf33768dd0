/** The third rung: key and expiry in one command. Whoever calls DEL gives the lock back, its holder or not. */
import { randomUUID } from 'node:crypto';
import type { RedisStore } from '../../store/redis/connection.ts';
import { lockKey } from '../kit/keys.ts';
import { PlainLease } from '../kit/plain-lease.ts';
import { pollingLock } from '../kit/polling.ts';
import type { Lock, LockDescription } from '../lock.ts';

export const description: LockDescription = {
  name: 'redis-no-owner',
  summary: 'One Redis: SET NX PX, and DEL to give it back.',
  flaw: 'A holder that comes back after its TTL deletes the lock of the next one, and lets a third one in.',
  needs: 'REDIS_URL',
  capabilities: {
    expires: true,
    checksOwner: false,
    settlesLostAnswers: false,
    renews: false,
    signalsLoss: false,
    reentrant: false,
    fair: false,
    fenced: false,
    waitsByEvent: false,
    survivesFailover: false,
  },
};

export async function create({ redis: { redis } }: { readonly redis: RedisStore }): Promise<Lock> {
  return pollingLock(description.name, async (resource, ttlMs) => {
    const key = lockKey(resource);
    const token = randomUUID();
    const askedMs = performance.now();
    if ((await redis.set(key, token, 'PX', ttlMs, 'NX')) === null) return null;
    return new PlainLease({
      resource,
      token,
      deadlineMs: askedMs + ttlMs,
      giveBack: async () => (await redis.del(key)) === 1,
    });
  });
}
