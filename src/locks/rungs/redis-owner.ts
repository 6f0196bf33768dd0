/** The fourth rung: the key holds a token, and only who knows it gives the lock back. */
import { randomUUID } from 'node:crypto';
import type { RedisStore } from '../../store/redis/connection.ts';
import { lockKey } from '../kit/keys.ts';
import { PlainLease } from '../kit/plain-lease.ts';
import { pollingLock } from '../kit/polling.ts';
import type { Lock, LockDescription } from '../lock.ts';

export const description: LockDescription = {
  name: 'redis-owner',
  summary: 'One Redis: SET NX PX with a token, and a compare-and-delete to give it back.',
  flaw: 'A SET that ran but whose answer was lost locks everyone out, its own caller too, until the TTL is over.',
  needs: 'REDIS_URL',
  capabilities: {
    expires: true,
    checksOwner: true,
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

export async function create({ redis: { redis, scripts } }: { readonly redis: RedisStore }): Promise<Lock> {
  return pollingLock(description.name, async (resource, ttlMs) => {
    const key = lockKey(resource);
    const token = randomUUID();
    const askedMs = performance.now();
    if ((await redis.set(key, token, 'PX', ttlMs, 'NX')) === null) return null;
    return new PlainLease({
      resource,
      token,
      deadlineMs: askedMs + ttlMs,
      giveBack: () => scripts.unlock(key, token),
    });
  });
}
