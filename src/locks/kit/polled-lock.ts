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
export interface Acquisition extends CheckedOptions {
  readonly resource: string;
  readonly token: string;
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

  async function release(acquisition: Acquisition): Promise<boolean> {
    try {
      return await backend.release(acquisition);
    } catch (error) {
      compensations.add(() => backend.release(acquisition).then(() => true), acquisition.ttlMs);
      throw error;
    }
  }

  async function tryAcquire(acquisition: Acquisition, waiter: Waiter): Promise<AcquireResult | Retry> {
    const requestedAtMs = performance.now();
    const attempt = backend.tryAcquire(acquisition, waiter.signal);
    const undo = () => compensations.add(releaseOf(backend, acquisition, attempt), acquisition.ttlMs);
    try {
      const result = await within(attempt, undefined, waiter.signal);
      if (result === null) undo();
      if (result?.kind !== 'held') return result ?? waiter.notAcquired();
      const lease = new RenewingLease(
        { renew: () => backend.renew(acquisition), release: () => release(acquisition) },
        { ...acquisition, fencingToken: result.fencingToken, requestedAtMs },
      );
      return { kind: 'held', lease };
    } catch (error) {
      undo();
      throw error;
    }
  }

  return waitingLock({
    ...backend,
    queue: queuesAtServer ? null : new LocalQueue(),
    async acquire(resource, options, waiter) {
      const acquisition = { ...options, resource, token: randomUUID() };
      if (!queuesAtServer)
        return poll(waiter, () => tryAcquire({ ...acquisition, token: randomUUID() }, waiter));
      const result = await poll(waiter, () => tryAcquire(acquisition, waiter));
      if (result.kind !== 'held' && (result.kind !== 'unavailable' || waiter.signal.aborted))
        await release(acquisition).catch(() => {});
      return result;
    },
    async close() {
      await compensations.close();
      await backend.close?.();
    },
  });
}

/** Releases what an attempt took, or may still take. */
function releaseOf(backend: PolledBackend, acquisition: Acquisition, attempt: Promise<AttemptResult>) {
  const mayHold = attempt.then(
    ({ kind }) => kind === 'held' || backend.queuesAtServer,
    () => true,
  );
  return async () => !(await mayHold) || (await backend.release(acquisition)) || !backend.mayRunLate;
}
