/**
 * Polls a lock that another contender holds.
 *
 *   attempt ──contended──▶ pause (growing, with jitter) ──▶ attempt …     waitMs elapsed: contended
 *    └──granted, or unavailable──▶ its result
 */
import type { AcquireResult } from '../lock.ts';
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
    const result = await attempt();
    if (result.kind !== 'retry') return result;
    const isWaiting = await waiter.pause(pauseMs * (0.5 + Math.random()) + (result.extraMs ?? 0));
    if (!isWaiting) return waiter.notAcquired();
  }
}
