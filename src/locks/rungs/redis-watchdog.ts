/**
 * The sixth rung: a watchdog renews the lease.
 *
 *   held ──every TTL/3──▶ renew ──yes──▶ held, with a later deadline
 *    │                     ├──no: the watchdog stops, and the holder is not notified
 *    │                     ├──no reply: the next renewal tries again
 *    │                     └──held for longer than the cap: the watchdog stops, and the lease expires
 *    └──release──▶ released
 */
import { randomUUID } from 'node:crypto';
import type { RedisClient } from '../clients.ts';
import { defineResolvedSet } from '../kit/ambiguous-write.ts';
import { PlainLease } from '../kit/plain-lease.ts';
import { defineTokenScripts } from '../kit/redis.ts';
import { rungLock, type TryAcquire } from '../kit/rung-lock.ts';
import type { Lock, LockDescription } from '../lock.ts';

export const description: LockDescription = {
  name: 'redis-watchdog',
  summary:
    'One Redis: token, atomic expiry, ambiguous acquires resolved, renewal at a third of the TTL up to a cap.',
  flaw: 'A holder whose renewals fail, or that paused for longer than the TTL, is not notified and keeps writing alongside the next holder.',
  needs: 'REDIS_URL',
  capabilities: [
    'expires-after-holder-death',
    'release-checks-ownership',
    'ambiguous-acquire-resolved',
    'held-while-working',
  ],
};

/** Renewal stops this long after the acquire, so that a hung holder loses its lock. */
const MAX_HOLD_MS = 600_000;

export async function create(
  { redis }: { readonly redis: RedisClient },
  maxHoldMs = MAX_HOLD_MS,
): Promise<Lock> {
  const scripts = defineTokenScripts(redis);
  const setToken = defineResolvedSet(redis);
  const watchdogs = new Set<NodeJS.Timeout>();

  function stop(watchdog: NodeJS.Timeout): void {
    clearInterval(watchdog);
    watchdogs.delete(watchdog);
  }

  function watch(lease: PlainLease, ttlMs: number): NodeJS.Timeout {
    const holdUntilMs = performance.now() + maxHoldMs;
    const renew = async () => {
      const requestedAtMs = performance.now();
      if (requestedAtMs + ttlMs > holdUntilMs) return stop(watchdog);
      try {
        if (await scripts.renew(lease.resource, lease.token, ttlMs)) {
          lease.deadlineMs = Math.max(lease.deadlineMs, requestedAtMs + ttlMs);
        } else stop(watchdog);
      } catch {
        // The next renewal may succeed before the TTL expires.
      }
    };
    const watchdog = setInterval(renew, ttlMs / 3);
    watchdogs.add(watchdog);
    // After a lost reply little of the lease may be left.
    if (lease.deadlineMs - performance.now() < (ttlMs * 2) / 3) void renew();
    return watchdog;
  }

  const tryAcquire: TryAcquire = async (resource, ttlMs, compensations) => {
    const token = randomUUID();
    const deadlineMs = performance.now() + ttlMs;
    if (!(await setToken(resource, token, ttlMs, compensations))) return null;
    const release = () => {
      stop(watchdog);
      return scripts.release(resource, token);
    };
    const lease = new PlainLease({ resource, token, deadlineMs, release });
    const watchdog = watch(lease, ttlMs);
    return lease;
  };
  return rungLock(description.name, tryAcquire, () => watchdogs.forEach(stop));
}
