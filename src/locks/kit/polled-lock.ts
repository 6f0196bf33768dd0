/**
 * A lock with renewed leases, local queue and polling; unanswered requests are compensated.
 *
 *   local turn ──▶ attempt ──contended──▶ pause ──▶ attempt …      waitMs elapsed: contended
 *                    │ granted  │ no reply, or aborted meanwhile
 *                    ▼          ▼
 *                  held     unavailable; a compensation releases what the request may have taken
 *
 * With `queuesAtServer` the server keeps a queue: an acquisition uses one token for its whole wait, leaves the queue when the wait
 * ends, and does not queue locally, because the server knows the order. Otherwise every attempt has a new token, so that a
 * delayed release of one attempt cannot end the next.
 */
import { randomUUID } from 'node:crypto';
import type { AcquireResult, Lock } from '../lock.ts';
import type { CheckedOptions } from '../options.ts';
import { Compensations } from './compensations.ts';
import { LocalQueue } from './local-queue.ts';
import { poll, type Retry } from './poll.ts';
import { RenewingLease } from './renewing-lease.ts';
import { type Waiter, type WaitingLock, waitingLock } from './waiting-lock.ts';
import { within } from './within.ts';

/** One contender's acquisition of a resource. */
export interface Acquisition {
  readonly resource: string;
  readonly token: string;
  readonly options: CheckedOptions;
}

export type AttemptResult =
  | { readonly kind: 'held'; readonly fencingToken: number | null }
  | Retry
  /** Nothing is held, and no compensation is needed. */
  | { readonly kind: 'unavailable'; readonly reason: string };

type Frame = Pick<WaitingLock<never>, 'name' | 'minTtlMs' | 'slowReason' | 'admitsSeveral'>;

export interface PolledBackend extends Frame {
  readonly queuesAtServer?: boolean;
  /** An attempt may have its effect after its error and after a release: that is repeated while nothing was held. Default: false. */
  readonly mayRunLate?: boolean;
  /** Makes one attempt. If it throws, the acquisition may be held. */
  tryAcquire(acquisition: Acquisition, signal: AbortSignal): Promise<AttemptResult>;
  /** @returns whether the acquisition was still held; throws if that is unknown */
  renew(acquisition: Acquisition): Promise<boolean>;
  /** Releases the lock and removes the acquisition from the queue. @returns whether the acquisition held the lock */
  release(acquisition: Acquisition): Promise<boolean>;
  /** Closes the lock's own connections. */
  close?(): void | Promise<void>;
}

export function polledLock(backend: PolledBackend): Lock {
  const { queuesAtServer = false } = backend;
  const compensations = new Compensations();
  const attempts = new Attempts(backend, compensations);
  return waitingLock({
    ...backend,
    queue: queuesAtServer ? null : new LocalQueue(),
    async acquire(resource, options, waiter) {
      const acquisition = { resource, token: randomUUID(), options };
      if (!queuesAtServer)
        return poll(waiter, () => attempts.make({ ...acquisition, token: randomUUID() }, waiter));
      const result = await poll(waiter, () => attempts.make(acquisition, waiter));
      if (result.kind !== 'held' && (result.kind !== 'unavailable' || waiter.signal.aborted))
        await attempts.release(acquisition).catch(() => {});
      return result;
    },
    async close() {
      await compensations.close();
      await backend.close?.();
    },
  });
}

class Attempts {
  readonly #backend: PolledBackend;
  readonly #compensations: Compensations;

  constructor(backend: PolledBackend, compensations: Compensations) {
    this.#backend = backend;
    this.#compensations = compensations;
  }

  async make(acquisition: Acquisition, waiter: Waiter): Promise<AcquireResult | Retry> {
    const { resource, token, options } = acquisition;
    const requestedAtMs = performance.now();
    const attempt = this.#backend.tryAcquire(acquisition, waiter.signal);
    try {
      const result = await within(attempt, undefined, waiter.signal);
      if (result === null) this.#undo(acquisition, attempt);
      if (result?.kind !== 'held') return result ?? waiter.notAcquired();
      const lease = new RenewingLease(
        { renew: () => this.#backend.renew(acquisition), release: () => this.release(acquisition) },
        { resource, token, fencingToken: result.fencingToken, ttlMs: options.ttlMs, requestedAtMs },
      );
      return { kind: 'held', lease };
    } catch (error) {
      this.#undo(acquisition, attempt);
      throw error;
    }
  }

  async release(acquisition: Acquisition): Promise<boolean> {
    const release = () => this.#backend.release(acquisition);
    try {
      return await release();
    } catch (error) {
      this.#compensations.add(() => release().then(() => true), acquisition.options.ttlMs);
      throw error;
    }
  }

  /** Releases what an attempt took, or may still take. */
  #undo(acquisition: Acquisition, attempt: Promise<AttemptResult>): void {
    const { queuesAtServer = false, mayRunLate = false } = this.#backend;
    const mayHold = attempt.then(
      ({ kind }) => kind === 'held' || queuesAtServer,
      () => true,
    );
    const compensate = async () =>
      !(await mayHold) || (await this.#backend.release(acquisition)) || !mayRunLate;
    this.#compensations.add(compensate, acquisition.options.ttlMs);
  }
}
