/**
 * A lock in one Redis: a token under a key that expires.
 *
 *   local turn ──▶ ask ──held by another──▶ pause ──▶ ask …        see polling.ts; until waitMs is over: contended
 *                   │ got it
 *                   ▼
 *                 held: see renewing-lease.ts
 *
 * A request whose answer was lost may have taken the lock: see settled.ts.
 */
import { randomUUID } from 'node:crypto';
import type { RedisStore } from '../store/redis.ts';
import { localQueue } from './local-queue.ts';
import type { Lease, Lock, LockDescription } from './lock.ts';
import { lockKey, type Pauses, pollingLock } from './polling.ts';
import { RenewingLease } from './renewing-lease.ts';
import { settled } from './settled.ts';

export const description: LockDescription = {
  name: 'redis',
  summary:
    'One Redis: token, atomic expiry, compare-and-delete release, renewal, fencing token, loss signalled before expiry.',
  flaw: null,
  needs: 'REDIS_URL',
  capabilities: {
    expires: true,
    checksOwner: true,
    settlesLostAnswers: true,
    renews: true,
    signalsLoss: true,
    reentrant: false,
    fair: false,
    fenced: true,
    waitsByEvent: false,
    survivesFailover: false,
  },
};

/** Makes the lock on the service's own connection. */
export async function create({ redis }: { readonly redis: RedisStore }): Promise<Lock> {
  return createRedisLock(redis);
}

export function createRedisLock({ scripts }: RedisStore): Lock {
  const queue = localQueue();
  const held = new Set<RenewingLease>();

  async function ask(resource: string, ttlMs: number, pauses: Pauses): Promise<Lease | null> {
    const token = randomUUID();
    const [key, fenceKey] = [lockKey(resource), `stampede:{${resource}}:fence`];
    const askedMs = performance.now();
    const acquire = () => scripts.acquire(key, fenceKey, token, ttlMs);
    const release = () => scripts.unlock(key, token);
    const fencingToken = await settled({ ask: acquire, again: acquire, undo: release, ttlMs, pauses });
    if (fencingToken <= 0) return null;
    const renew = () => scripts.renew(key, token, ttlMs);
    return new RenewingLease({ renew, release }, { resource, token, fencingToken, ttlMs, askedMs });
  }

  const polled = pollingLock(description.name, ask, () => queue.close());

  return {
    name: description.name,
    async acquire(resource, options) {
      const untilMs = performance.now() + options.waitMs;
      const leave = await queue.enter(resource, options.waitMs, options.signal);
      if (leave === null) {
        if (queue.closed) return { kind: 'unavailable', reason: 'closed' };
        return options.signal?.aborted ? { kind: 'aborted' } : { kind: 'contended' };
      }
      let lease: RenewingLease | undefined;
      try {
        const waitMs = Math.max(0, untilMs - performance.now());
        const result = await polled.acquire(resource, { ...options, waitMs });
        if (result.kind === 'held') lease = result.lease as RenewingLease;
        return result;
      } finally {
        if (lease === undefined) leave();
        else hold(lease, leave);
      }
    },
    async close() {
      await polled.close();
      await Promise.all([...held].map((lease) => lease.release()));
    },
  };

  function hold(lease: RenewingLease, leave: () => void): void {
    held.add(lease);
    lease.onEnd = () => {
      held.delete(lease);
      leave();
    };
  }
}
