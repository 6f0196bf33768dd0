/**
 * The frame of the simple rungs in one Redis: every contender polls, without a local queue, and no holder learns of a loss.
 *
 *   acquire ──contended──▶ pause ──▶ acquire …
 *      │ granted
 *      ▼
 *     held ──every TTL/3, if there is a `renew`──▶ renew ──yes──▶ held, with a later deadline
 *      │                                            ├──no: the watchdog stops, and the holder is not notified
 *      │                                            ├──no reply: the next renewal tries again
 *      │                                            └──held for longer than the cap: the watchdog stops, and the lease expires
 *      └──release──▶ released
 */
import { randomUUID } from 'node:crypto';
import type { AcquireResult, Lock } from '../lock.ts';
import { Compensations } from './compensations.ts';
import { PlainLease } from './plain-lease.ts';
import { poll, type Retry } from './poll.ts';
import type { ByToken } from './redis.ts';
import { waitingLock } from './waiting-lock.ts';

/** A request to Redis. @returns whether the token got the lock, still has it, or had it @throws RequestError */
export type Step = (acquisition: ByToken, compensations: Compensations) => Promise<boolean>;

export interface RungSteps<S> {
  readonly acquire: S;
  readonly renew?: S | undefined;
  readonly release: S;
  /** The lock has no TTL, and its lease no deadline. Default: false. */
  readonly neverExpires?: boolean | undefined;
}

export interface RungLock extends RungSteps<Step> {
  readonly name: string;
  /** Renewal stops this long after the acquire, so that a hung holder loses its lock. Default: ten minutes. */
  readonly maxHoldMs?: number | undefined;
}

const MAX_HOLD_MS = 600_000;

export function rungLock(rung: RungLock): Lock {
  const { name, neverExpires = false, maxHoldMs = MAX_HOLD_MS } = rung;
  const compensations = new Compensations();

  async function attempt(resource: string, ttlMs: number): Promise<AcquireResult | Retry> {
    const acquisition = { resource, token: randomUUID(), ttlMs };
    const deadlineMs = neverExpires ? Number.POSITIVE_INFINITY : performance.now() + ttlMs;
    if (!(await rung.acquire(acquisition, compensations))) return { kind: 'retry' };
    const release = () => {
      clearInterval(watchdog);
      return rung.release(acquisition, compensations);
    };
    const lease = new PlainLease({ ...acquisition, deadlineMs, release });
    const watchdog = rung.renew && watch(lease, acquisition, rung.renew);
    return { kind: 'held', lease };
  }

  function watch(lease: PlainLease, acquisition: ByToken, renew: Step): NodeJS.Timeout {
    const { ttlMs } = acquisition;
    const holdUntilMs = performance.now() + maxHoldMs;
    const tick = async () => {
      const untilMs = performance.now() + ttlMs;
      try {
        const isOver = compensations.isClosed || untilMs > holdUntilMs;
        if (isOver || !(await renew(acquisition, compensations))) return clearInterval(watchdog);
        lease.deadlineMs = Math.max(lease.deadlineMs, untilMs);
      } catch {
        // The next renewal may succeed before the TTL expires.
      }
    };
    const watchdog = setInterval(tick, ttlMs / 3).unref();
    // After a lost reply little of the lease may be left.
    if (lease.deadlineMs - performance.now() < (ttlMs * 2) / 3) void tick();
    return watchdog;
  }

  return waitingLock({
    name,
    slowReason: 'redis-slow',
    queue: null,
    acquire: (resource, { ttlMs }, waiter) => poll(waiter, () => attempt(resource, ttlMs)),
    close: () => compensations.close(),
  });
}
