/**
 * What all locks have in common that can be waited for:
 *
 *   acquire ──▶ local turn (where contenders of one process queue here) ──▶ ask ──▶ held ──over──▶ the turn ends
 *                 └──────────── waitMs over, aborted, closed ────────────────┴──▶ how the wait ended
 *
 * A waiter has one signal, which fires with its caller's own and when the lock is closed. (`AbortSignal.any` on the
 * long-lived signal of a lock keeps about 60 bytes for every call: measured, Node 20.)
 */
import { type LocalQueue, type Turn, unqueued } from '../../concurrency/local-queue.ts';
import type { AcquireOptions, AcquireResult, Lease, Lock } from '../lock.ts';
import { RenewingLease } from './renewing-lease.ts';

export type Refusal = Exclude<AcquireResult, { kind: 'held' }>;

export interface Waiter {
  readonly signal: AbortSignal;
  /** On `performance.now()`'s clock. */
  readonly untilMs: number;
  /** How the wait ended, when no lock came of it. */
  ended(): Refusal;
  /** Sleeps, but not beyond the signal, nor beyond `sooner`. */
  pause(ms: number, sooner?: Promise<void>): Promise<void>;
}

export interface WaitingLock<Gift> {
  readonly name: string;
  /** Null where every contender goes to the lock's server by itself. */
  readonly queue: LocalQueue<Gift> | null;
  /** Asks the lock's server, until it is held or the waiter is done with waiting. A gift is this contender's now. */
  ask(resource: string, options: AcquireOptions, waiter: Waiter, turn: Turn<Gift>): Promise<AcquireResult>;
  /** After the last lease was given back. */
  close(): Promise<void>;
}

export function waitingLock<Gift = never>({ name, queue, ask, close }: WaitingLock<Gift>): Lock {
  const waiting = new Set<AbortController>();
  const underWay = new Set<Promise<unknown>>();
  const held = new Set<Lease>();
  let closed = false;

  function hold(lease: Lease, turn: Turn<Gift>): void {
    if (!(lease instanceof RenewingLease)) {
      turn.leave(); // nobody looks after it
      return;
    }
    const ended = lease.onEnd;
    held.add(lease);
    lease.onEnd = () => {
      held.delete(lease);
      ended();
      turn.leave();
    };
  }

  async function inTurn(resource: string, options: AcquireOptions, waiter: Waiter): Promise<AcquireResult> {
    const turn =
      queue === null ? unqueued<Gift>() : await queue.enter(resource, options.waitMs, waiter.signal);
    if (turn === null) return waiter.ended();
    let result: AcquireResult | undefined;
    try {
      if (waiter.signal.aborted && turn.handoff === null) return waiter.ended();
      result = await ask(resource, options, waiter, turn);
      return result;
    } finally {
      if (result?.kind === 'held') hold(result.lease, turn);
      else turn.leave();
    }
  }

  async function acquire(resource: string, options: AcquireOptions): Promise<AcquireResult> {
    const { signal, waitMs } = options;
    const end = new AbortController();
    const abort = () => end.abort();
    if (closed || signal?.aborted) abort();
    signal?.addEventListener('abort', abort, { once: true });
    waiting.add(end);
    const ended = (): Refusal => {
      if (signal?.aborted) return { kind: 'aborted' };
      return closed ? { kind: 'unavailable', reason: 'closed' } : { kind: 'contended' };
    };
    const pause = (ms: number, sooner?: Promise<void>) => pauseUnlessAborted(ms, end.signal, sooner);
    try {
      const untilMs = performance.now() + waitMs;
      return await inTurn(resource, options, { signal: end.signal, untilMs, ended, pause });
    } finally {
      signal?.removeEventListener('abort', abort);
      waiting.delete(end);
    }
  }

  return {
    name,
    acquire(resource, options) {
      const work = acquire(resource, options);
      const done = () => underWay.delete(work);
      underWay.add(work);
      work.then(done, done);
      return work;
    },
    async close() {
      closed = true;
      for (const end of [...waiting]) end.abort();
      await Promise.all([...held].map((lease) => lease.release()));
      // Who just got the lock sees that it is closed, and gives it back.
      await Promise.allSettled([...underWay]);
      await close();
    },
  };
}

/** What a promise came to, or null when the signal fired before that. */
export function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T | null> {
  return new Promise((resolve, reject) => {
    const give = () => resolve(null);
    const done = () => signal.removeEventListener('abort', give);
    promise.finally(done).then(resolve, reject);
    if (signal.aborted) give();
    else signal.addEventListener('abort', give, { once: true });
  });
}

function pauseUnlessAborted(ms: number, signal: AbortSignal, sooner?: Promise<void>): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener('abort', end, { once: true });
    sooner?.then(end, end);
  });
}
