/**
 * The sixth rung: a watchdog renews the lease.
 *
 *   held ──every TTL/3──▶ renew ──yes──▶ held, the deadline moved
 *    │                     ├──no: the watchdog ends, and the holder is not told
 *    │                     ├──no answer: tried again
 *    │                     └──held for longer than the cap: the watchdog ends, and the lease runs out
 *    └──release──▶ over
 */
import { randomUUID } from 'node:crypto';
import type { RedisStore } from '../../store/redis/connection.ts';
import { settledSet } from '../kit/ambiguous-write.ts';
import { lockKey } from '../kit/keys.ts';
import { PlainLease } from '../kit/plain-lease.ts';
import { type Ask, pollingLock } from '../kit/polling.ts';
import type { Lock, LockDescription } from '../lock.ts';

export const description: LockDescription = {
  name: 'redis-watchdog',
  summary:
    'One Redis: token, atomic expiry, lost answers settled, and renewal at a third of the TTL up to a cap.',
  flaw: 'A holder whose renewals fail, or that was stopped for longer than the TTL, is not told and writes beside the next one.',
  needs: 'REDIS_URL',
  capabilities: {
    expires: true,
    checksOwner: true,
    settlesLostAnswers: true,
    renews: true,
    signalsLoss: false,
    reentrant: false,
    fair: false,
    fenced: false,
    waitsByEvent: false,
    survivesFailover: false,
  },
};

/** A hung holder does not hold for ever: the cap on one hold, in milliseconds. */
const MAX_HOLD_MS = 600_000;

export async function create(
  { redis: store }: { readonly redis: RedisStore },
  maxHoldMs = MAX_HOLD_MS,
): Promise<Lock> {
  const { scripts } = store;
  const watchdogs = new Set<NodeJS.Timeout>();

  function stop(watchdog: NodeJS.Timeout): void {
    clearInterval(watchdog);
    watchdogs.delete(watchdog);
  }

  function watch(lease: PlainLease, ttlMs: number): NodeJS.Timeout {
    const capMs = performance.now() + maxHoldMs;
    const watchdog = setInterval(async () => {
      const askedMs = performance.now();
      if (askedMs + ttlMs > capMs) return stop(watchdog);
      try {
        if (await scripts.renew(lockKey(lease.resource), lease.token, ttlMs)) {
          lease.deadlineMs = Math.max(lease.deadlineMs, askedMs + ttlMs);
        } else stop(watchdog);
      } catch {
        // The next one may come through before the TTL is over.
      }
    }, ttlMs / 3);
    watchdogs.add(watchdog);
    return watchdog;
  }

  const ask: Ask = async (resource, ttlMs, settlements) => {
    const token = randomUUID();
    const deadlineMs = performance.now() + ttlMs;
    if (!(await settledSet(store, resource, token, ttlMs, settlements))) return null;
    const giveBack = () => {
      stop(watchdog);
      return scripts.unlock(lockKey(resource), token);
    };
    const lease = new PlainLease({ resource, token, deadlineMs, giveBack });
    const watchdog = watch(lease, ttlMs);
    return lease;
  };
  return pollingLock(description.name, ask, () => watchdogs.forEach(stop));
}
