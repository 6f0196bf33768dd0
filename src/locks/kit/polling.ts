/**
 * Asking again and again, while another holds the lock.
 *
 *   ask ──held by another──▶ pause (jittered, growing) ──▶ ask …     until waitMs is over: contended
 *    │ got it
 *    ▼
 *   held; but an answer that took longer than the lease is `unavailable`: another may hold the lock by then
 */
import { expectedRedisFailure } from '../../store/redis/connection.ts';
import type { AcquireResult, Lease, Lock } from '../lock.ts';
import { Settlements } from './ambiguous-write.ts';
import { type Waiter, waitingLock } from './waiting-lock.ts';

/** Between two questions while another holds the lock, in milliseconds. */
const POLL_FIRST_MS = 2;
const POLL_MOST_MS = 25;

/** Somebody else is there; `extraMs` lengthens the pause before the next question. */
export type Wait = { readonly kind: 'wait'; readonly extraMs?: number };

/** Asks until the answer is another than `wait`, or the waiter is done with waiting. */
export async function poll(waiter: Waiter, ask: () => Promise<AcquireResult | Wait>): Promise<AcquireResult> {
  for (let pollMs = POLL_FIRST_MS; ; pollMs = Math.min(pollMs * 1.6, POLL_MOST_MS)) {
    if (waiter.signal.aborted) return waiter.ended();
    const answer = await ask();
    if (answer.kind !== 'wait') return answer;
    const leftMs = waiter.untilMs - performance.now();
    if (leftMs <= 0) return waiter.ended();
    await waiter.pause(Math.min(leftMs, pollMs * (0.5 + Math.random()) + (answer.extraMs ?? 0)));
  }
}

/** What was taken counts unless the answer took too long, or nobody waits for it any more: then it is given back. */
export async function inTime(lease: Lease, waiter: Waiter, slow: string): Promise<AcquireResult> {
  const late = performance.now() >= lease.deadlineMs;
  if (!late && !waiter.signal.aborted) return { kind: 'held', lease };
  await lease.release();
  return late ? { kind: 'unavailable', reason: slow } : waiter.ended();
}

/** Asks once. @returns null when another holds the lock @throws what Redis throws */
export type Ask = (resource: string, ttlMs: number, settlements: Settlements) => Promise<Lease | null>;

/** Makes a rung of a question: a lock in one Redis, without a queue. */
export function pollingLock(name: string, ask: Ask, onClose: () => void = () => {}): Lock {
  const settlements = new Settlements();
  return waitingLock({
    name,
    queue: null,
    ask: (resource, { ttlMs }, waiter) =>
      poll(waiter, async () => {
        try {
          const lease = await ask(resource, ttlMs, settlements);
          return lease === null ? { kind: 'wait' } : await inTime(lease, waiter, 'redis-slow');
        } catch (error) {
          return { kind: 'unavailable', reason: expectedRedisFailure(error).reason };
        }
      }),
    async close() {
      onClose();
      await settlements.close();
    },
  });
}
