/**
 * A lock in Redis that is asked for again and again.
 *
 *   ask ──held by another──▶ pause (jittered, growing) ──▶ ask …     until waitMs is over: contended
 *    │ got it
 *    ▼
 *   held; but an answer that took longer than the lease is `unavailable`: another may hold the lock by then
 */
import { classifyRedisError } from '../store/redis.ts';
import type { AcquireOptions, AcquireResult, Lease, Lock } from './lock.ts';

/** Between two questions while another holds the lock, in milliseconds. */
const POLL_FIRST_MS = 2;
const POLL_MOST_MS = 25;

/** The key of a resource's lock; the same for all locks in one Redis, which are never mixed on one resource. */
export const lockKey = (resource: string): string => `stampede:{${resource}}:lock`;

/** Timers that end early when the lock is closed. */
export class Pauses {
  closed = false;
  readonly #sleepers = new Set<() => void>();

  /** Ends after so many milliseconds, when `signal` fires, or when the lock is closed. */
  wait(ms: number, signal?: AbortSignal): Promise<void> {
    if (this.closed || signal?.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const end = () => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', end);
        this.#sleepers.delete(end);
        resolve();
      };
      const timer = setTimeout(end, ms);
      signal?.addEventListener('abort', end, { once: true });
      this.#sleepers.add(end);
    });
  }

  close(): void {
    this.closed = true;
    for (const end of [...this.#sleepers]) end();
  }
}

/** Asks once. @returns null when another holds the lock @throws what Redis throws */
export type Ask = (resource: string, ttlMs: number, pauses: Pauses) => Promise<Lease | null>;

/** Makes a lock of a question. */
export function pollingLock(name: string, ask: Ask, onClose: () => void = () => {}): Lock {
  const pauses = new Pauses();

  async function askOnce(resource: string, options: AcquireOptions): Promise<AcquireResult> {
    try {
      const lease = await ask(resource, options.ttlMs, pauses);
      if (lease === null) return { kind: 'contended' };
      const late = performance.now() >= lease.deadlineMs;
      if (!late && !pauses.closed && !options.signal?.aborted) return { kind: 'held', lease };
      await lease.release();
      if (options.signal?.aborted) return { kind: 'aborted' };
      return { kind: 'unavailable', reason: late ? 'redis-slow' : 'closed' };
    } catch (error) {
      return { kind: 'unavailable', reason: classifyRedisError(error).reason };
    }
  }

  return {
    name,
    async acquire(resource, options) {
      const { waitMs, signal } = options;
      const untilMs = performance.now() + waitMs;
      for (let pollMs = POLL_FIRST_MS; ; pollMs = Math.min(pollMs * 1.6, POLL_MOST_MS)) {
        if (signal?.aborted) return { kind: 'aborted' };
        if (pauses.closed) return { kind: 'unavailable', reason: 'closed' };
        const result = await askOnce(resource, options);
        const leftMs = untilMs - performance.now();
        if (result.kind !== 'contended' || leftMs <= 0) return result;
        await pauses.wait(Math.min(leftMs, pollMs * (0.5 + Math.random())), signal);
      }
    },
    async close() {
      pauses.close();
      onClose();
    },
  };
}
