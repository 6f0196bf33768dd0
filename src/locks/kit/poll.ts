/**
 * Polls a lock that another contender holds.
 *
 *   attempt ──contended──▶ pause (growing, with jitter) ──▶ attempt …     waitMs elapsed: contended
 *    │ granted
 *    ▼
 *   held; `unavailable` if the reply took longer than the lease, because another contender may hold the lock by then
 */
import type { AcquireResult, Lease } from '../lock.ts';
import type { Waiter } from './waiting-lock.ts';

/** First and longest pause between two attempts, in milliseconds. */
const FIRST_PAUSE_MS = 2;
const MAX_PAUSE_MS = 25;

/** Another contender holds the lock. `extraMs` lengthens the next pause. */
export type Retry = { readonly kind: 'retry'; readonly extraMs?: number };

/** Repeats `attempt` until its result is final or the waiter's time is over. */
export async function poll(
  waiter: Waiter,
  attempt: () => Promise<AcquireResult | Retry>,
): Promise<AcquireResult> {
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 1.6, MAX_PAUSE_MS)) {
    if (waiter.signal.aborted) return waiter.notAcquired();
    const result = await attempt();
    if (result.kind !== 'retry') return result;
    const leftMs = waiter.untilMs - performance.now();
    if (leftMs <= 0) return waiter.notAcquired();
    await waiter.pause(Math.min(leftMs, pauseMs * (0.5 + Math.random()) + (result.extraMs ?? 0)));
  }
}

/** Returns the lease, or releases it if its reply came after its deadline or after the wait was aborted. */
export async function acceptLease(lease: Lease, waiter: Waiter, slowReason: string): Promise<AcquireResult> {
  const isLate = performance.now() >= lease.deadlineMs;
  if (!isLate && !waiter.signal.aborted) return { kind: 'held', lease };
  await lease.release();
  return isLate ? { kind: 'unavailable', reason: slowReason } : waiter.notAcquired();
}
