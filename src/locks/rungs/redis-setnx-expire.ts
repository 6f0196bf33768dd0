/**
 * The second rung: an expiry, given in a command of its own.
 *
 *   SETNX ──▶ held for ever ──PEXPIRE──▶ held until the TTL is over
 *                  └──a crash here──▶ nobody gets in any more
 */
import { randomUUID } from 'node:crypto';
import type { RedisStore } from '../../store/redis/connection.ts';
import { lockKey } from '../kit/keys.ts';
import { PlainLease } from '../kit/plain-lease.ts';
import { pollingLock } from '../kit/polling.ts';
import type { Lock, LockDescription } from '../lock.ts';

export const description: LockDescription = {
  name: 'redis-setnx-expire',
  summary: 'One Redis: SETNX, then PEXPIRE, and DEL to give it back.',
  flaw: 'A crash between its two commands leaves a lock that never ends.',
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
    if ((await redis.setnx(key, token)) === 0) return null;
    await redis.pexpire(key, ttlMs);
    return new PlainLease({
      resource,
      token,
      deadlineMs: askedMs + ttlMs,
      giveBack: async () => (await redis.del(key)) === 1,
    });
  });
}
