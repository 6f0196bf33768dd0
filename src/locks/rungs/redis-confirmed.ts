/** The fifth rung: "timed out but succeeded" is settled, under the same token: see settled.ts. */
import { randomUUID } from 'node:crypto';
import type { RedisStore } from '../../store/redis/connection.ts';
import { settledSet } from '../kit/ambiguous-write.ts';
import { lockKey } from '../kit/keys.ts';
import { PlainLease } from '../kit/plain-lease.ts';
import { pollingLock } from '../kit/polling.ts';
import type { Lock, LockDescription } from '../lock.ts';

export const description: LockDescription = {
  name: 'redis-confirmed',
  summary:
    'One Redis: SET NX PX with a token, asked again when its answer was lost, and a compare-and-delete.',
  flaw: 'Work that takes longer than the TTL goes on beside the next holder.',
  needs: 'REDIS_URL',
  capabilities: {
    expires: true,
    checksOwner: true,
    settlesLostAnswers: true,
    renews: false,
    signalsLoss: false,
    reentrant: false,
    fair: false,
    fenced: false,
    waitsByEvent: false,
    survivesFailover: false,
  },
};

export async function create({ redis: store }: { readonly redis: RedisStore }): Promise<Lock> {
  return pollingLock(description.name, async (resource, ttlMs, settlements) => {
    const token = randomUUID();
    const askedMs = performance.now();
    if (!(await settledSet(store, resource, token, ttlMs, settlements))) return null;
    return new PlainLease({
      resource,
      token,
      deadlineMs: askedMs + ttlMs,
      giveBack: () => store.scripts.unlock(lockKey(resource), token),
    });
  });
}
