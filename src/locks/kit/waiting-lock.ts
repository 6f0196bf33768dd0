/**
 * The frame of every lock: local queue, wait, abort and close.
 *
 *   acquire ──▶ arguments checked ──▶ local turn (contenders of one process take turns) ──▶ attempts ──▶ held ──ended──▶ next local turn
 *                 └──────────── waitMs elapsed, aborted, closed ──────┴──▶ not acquired
 *
 * Each waiter has one signal, which fires with its caller's signal, when the lock closes, and when a request is still unanswered
 * after the wait. The call returns with the signal; a lease that a request on its way brings is released. So is one whose reply took
 * longer than the lease: another contender may hold the lock by then.
 */
import { failureOf } from '../clients.ts';
import type { AcquireResult, Lease, Lock, NotAcquired } from '../lock.ts';
import { type AcquireOptions, type CheckedOptions, checkedOptions, MAX_MS } from '../options.ts';
import { type LocalQueue, Turn } from './local-queue.ts';
import { MIN_TTL_MS, RenewingLease } from './renewing-lease.ts';
import { within } from './within.ts';

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
  /** Resolves after `ms`, with the wait, or with `sooner`, whichever is first. @returns false if the wait was over before, or is aborted */
  pause(ms: number, sooner?: Promise<void>): Promise<boolean>;
}

export interface WaitingLock<Handoff> {
  readonly name: string;
  /** Shortest `ttlMs`. Default: that of a lease that renews. */
  readonly minTtlMs?: number | undefined;
  /** Of a reply that took longer than the lease. Default: the name and `-slow`. */
  readonly slowReason?: string | undefined;
  /** A local turn ends with the grant, and not with the lease. Default: false. */
  readonly admitsSeveral?: boolean | undefined;
  /** An owner first makes one attempt without a local turn: it may hold the lock already. Default: false. */
  readonly admitsOwner?: boolean;
  /** Null if every contender goes to the lock's server by itself. */
  readonly queue: LocalQueue<Handoff> | null;
  /**
   * Attempts until the lock is held or the wait is over. It owns what the previous turn handed off. After the waiter's signal only a lease
   * counts, which is released.
   * @throws RequestError: the lock is unavailable
   */
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
      async pause(ms, sooner = new Promise(() => {})) {
        const leftMs = this.untilMs - performance.now();
        if (leftMs > 0) await within(sooner, Math.min(ms, leftMs), end.signal);
        return leftMs > 0 && !end.signal.aborted;
      },
    };
    const work = this.#acquire(resource, options, waiter);
    const done = () => this.#pending.delete(work);
    this.#pending.add(work);
    work.then(done, done);
    try {
      const result = await within(work, undefined, end.signal);
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

  async #acquire(resource: string, options: CheckedOptions, waiter: Waiter): Promise<AcquireResult> {
    if (this.#lock.admitsOwner && options.owner !== undefined) {
      const once = { ...waiter, untilMs: 0 };
      const result = await this.#acquireIn(new Turn(), resource, { ...options, waitMs: 0 }, once);
      if (result.kind !== 'contended' || performance.now() >= waiter.untilMs) return result;
    }
    const { queue, admitsSeveral } = this.#lock;
    const isUnqueued = queue === null || (admitsSeveral && options.waitMs === 0); // the contenders ahead may not be holders
    const leftMs = waiter.untilMs - performance.now();
    const turn = isUnqueued ? new Turn<Handoff>() : await queue.enter(resource, leftMs, waiter.signal);
    return turn === null ? waiter.notAcquired() : this.#acquireIn(turn, resource, options, waiter);
  }

  /** The turn ends with what it acquires. */
  async #acquireIn(
    turn: Turn<Handoff>,
    resource: string,
    options: CheckedOptions,
    waiter: Waiter,
  ): Promise<AcquireResult> {
    let lease: Lease | null = null;
    try {
      if (waiter.signal.aborted && turn.handoff === null) return waiter.notAcquired();
      const result = await this.#lock.acquire(resource, options, waiter, turn);
      if (result.kind !== 'held') return result;
      const isLate = performance.now() >= result.lease.deadlineMs;
      if (!isLate && !waiter.signal.aborted) {
        lease = result.lease;
        return result;
      }
      await result.lease.release();
      const reason = this.#lock.slowReason ?? `${this.name}-slow`;
      return isLate ? { kind: 'unavailable', reason } : waiter.notAcquired();
    } catch (error) {
      return { kind: 'unavailable', reason: failureOf(error).reason };
    } finally {
      if (lease === null) turn.leave();
      else this.#hold(lease, turn);
    }
  }

  #hold(lease: Lease, turn: Turn<Handoff>): void {
    const isRenewing = lease instanceof RenewingLease; // a plain lease does not report its expiry
    if (!isRenewing || this.#lock.admitsSeveral) turn.leave();
    if (!isRenewing) return;
    const { onEnd } = lease;
    this.#held.add(lease);
    lease.onEnd = (ended) => {
      this.#held.delete(lease);
      onEnd(ended);
      turn.leave();
    };
  }
}
