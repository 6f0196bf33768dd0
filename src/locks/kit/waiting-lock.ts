/**
 * The frame of every lock: local queue, wait, abort and close.
 *
 *   acquire ──▶ arguments checked ──▶ local turn (contenders of one process take turns) ──▶ attempts ──▶ held ──ended──▶ next local turn
 *                 └──────────── waitMs elapsed, aborted, closed ──────┴──▶ not acquired
 *
 * Each waiter has one signal, which fires with its caller's signal, when the lock closes, and when a request is still unanswered
 * after the wait. The call returns with the signal; a lease that a request on its way brings is released.
 * (`AbortSignal.any` on the lock's long-lived signal leaks about 60 bytes a call: measured, Node 20.)
 */
import type { AcquireResult, Lease, Lock, NotAcquired } from '../lock.ts';
import { type AcquireOptions, type CheckedOptions, checkedOptions, MAX_MS } from '../options.ts';
import { type LocalQueue, type Turn, unqueued } from './local-queue.ts';
import { MIN_TTL_MS, RenewingLease } from './renewing-lease.ts';

/** How long after the end of a wait the reply to its last request may take, in milliseconds. */
const LAST_REPLY_MS = 100;
/** Longest single attempt, in milliseconds: more than any of the clients' own timeouts together, which a caller's pool may lack. */
const SINGLE_ATTEMPT_MS = 5_000;

export interface Waiter {
  readonly signal: AbortSignal;
  /** When the wait is over, on `performance.now()`'s clock. */
  readonly untilMs: number;
  /** The result of a wait that ended without the lock. */
  notAcquired(): NotAcquired;
  /** Resolves after `ms`, when the signal fires, or with `sooner`, whichever is first. */
  pause(ms: number, sooner?: Promise<void>): Promise<void>;
}

export interface WaitingLock<Handoff> {
  readonly name: string;
  /** Shortest `ttlMs`. Default: that of a lease that renews. */
  readonly minTtlMs?: number | undefined;
  /** A local turn ends with the grant, and not with the lease. Default: false. */
  readonly admitsSeveral?: boolean | undefined;
  /** Null if every contender goes to the lock's server by itself. */
  readonly queue: LocalQueue<Handoff> | null;
  /** Attempts until the lock is held or the wait is over. It owns what the previous turn handed off. */
  acquire(
    resource: string,
    options: CheckedOptions,
    waiter: Waiter,
    turn: Turn<Handoff>,
  ): Promise<AcquireResult>;
  /** Called after the last lease was released. */
  close(): Promise<void>;
}

export const waitingLock = <Handoff = never>(lock: WaitingLock<Handoff>): Lock => new Waiting(lock);

class Waiting<Handoff> implements Lock {
  readonly name: string;
  readonly #lock: WaitingLock<Handoff>;
  readonly #waiting = new Set<AbortController>();
  readonly #pending = new Set<Promise<unknown>>();
  readonly #held = new Set<Lease>();
  #isClosed = false;

  constructor(lock: WaitingLock<Handoff>) {
    this.name = lock.name;
    this.#lock = lock;
  }

  check(resource: string, options: AcquireOptions = {}): CheckedOptions {
    return checkedOptions(resource, options, this.#lock.minTtlMs ?? MIN_TTL_MS);
  }

  async acquire(resource: string, given?: AcquireOptions): Promise<AcquireResult> {
    const options = this.check(resource, given);
    const { signal, waitMs } = options;
    const end = new AbortController();
    const abort = () => end.abort();
    if (this.#isClosed || signal?.aborted) abort();
    signal?.addEventListener('abort', abort, { once: true });
    this.#waiting.add(end);
    // After the sockets were read: a process that was busy may find the reply there.
    const late = () => setImmediate(abort);
    const timer = setTimeout(late, waitMs > 0 ? Math.min(waitMs + LAST_REPLY_MS, MAX_MS) : SINGLE_ATTEMPT_MS);
    const waiter: Waiter = {
      signal: end.signal,
      untilMs: performance.now() + waitMs,
      notAcquired: () => {
        if (signal?.aborted) return { kind: 'aborted' };
        if (this.#isClosed) return { kind: 'unavailable', reason: 'closed' };
        return end.signal.aborted ? { kind: 'unavailable', reason: 'no-answer' } : { kind: 'contended' };
      },
      pause: (ms, sooner) => pauseUnlessAborted(ms, end.signal, sooner),
    };
    const work = this.#acquireInTurn(resource, options, waiter);
    const done = () => this.#pending.delete(work);
    this.#pending.add(work);
    work.then(done, done);
    try {
      const result = await unlessAborted(work, end.signal);
      if (result !== null) return result;
      void work.then((unused) => void (unused.kind === 'held' && unused.lease.release())).catch(() => {});
      return waiter.notAcquired();
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener('abort', abort);
      this.#waiting.delete(end);
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    for (const end of [...this.#waiting]) end.abort();
    await Promise.all([...this.#held].map((lease) => lease.release()));
    // A contender that was granted the lock meanwhile sees its aborted signal and releases.
    await Promise.allSettled([...this.#pending]);
    await this.#lock.close();
  }

  /** Ends the turn with the lease. */
  #hold(lease: Lease, turn: Turn<Handoff>): void {
    const isRenewing = lease instanceof RenewingLease; // a plain lease does not report its end
    if (!isRenewing || this.#lock.admitsSeveral) turn.leave();
    if (!isRenewing) return;
    const { onEnd } = lease;
    this.#held.add(lease);
    lease.onEnd = () => {
      this.#held.delete(lease);
      onEnd();
      turn.leave();
    };
  }

  async #acquireInTurn(resource: string, options: CheckedOptions, waiter: Waiter): Promise<AcquireResult> {
    const { queue, admitsSeveral } = this.#lock;
    const isUnqueued = queue === null || (admitsSeveral && options.waitMs === 0); // the contenders ahead may not be holders
    const turn = isUnqueued
      ? unqueued<Handoff>()
      : await queue.enter(resource, options.waitMs, waiter.signal);
    if (turn === null) return waiter.notAcquired();
    let result: AcquireResult | undefined;
    try {
      if (waiter.signal.aborted && turn.handoff === null) return waiter.notAcquired();
      result = await this.#lock.acquire(resource, options, waiter, turn);
      return result;
    } finally {
      if (result?.kind === 'held') this.#hold(result.lease, turn);
      else turn.leave();
    }
  }
}

/** The promise's value, or null if the signal fires first. */
export function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T | null> {
  return new Promise((resolve, reject) => {
    const onAbort = () => resolve(null);
    const done = () => signal.removeEventListener('abort', onAbort);
    promise.finally(done).then(resolve, reject);
    if (signal.aborted) onAbort();
    else signal.addEventListener('abort', onAbort, { once: true });
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
