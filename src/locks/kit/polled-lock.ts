/**
 * A lock in Redis with renewed leases, local queue and polling; unanswered requests are compensated.
 *
 *   local turn ──▶ attempt ──contended──▶ pause ──▶ attempt …      waitMs elapsed: contended
 *                    │ granted  │ no reply
 *                    ▼          ▼
 *                  held     unavailable; a compensation releases what the request may have taken
 *
 * With `queuesAtServer` the server keeps a queue: an acquisition uses one token for its whole wait, leaves the queue when the wait
 * ends, and does not queue locally, because the server knows the order. Otherwise every attempt has a new token, so that a
 * delayed release of one attempt cannot end the next.
 */
import { randomUUID } from 'node:crypto';
import { failureOf } from '../clients.ts';
import type { AcquireResult, Lock } from '../lock.ts';
import type { CheckedOptions } from '../options.ts';
import { Compensations } from './compensations.ts';
import { localQueue } from './local-queue.ts';
import { acceptLease, poll, type Retry } from './poll.ts';
import { RenewingLease } from './renewing-lease.ts';
import { type Waiter, waitingLock } from './waiting-lock.ts';

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

export interface PolledBackend {
  readonly name: string;
  /** See `WaitingLock`. */
  readonly minTtlMs?: number;
  readonly queuesAtServer: boolean;
  /** See `WaitingLock`. */
  readonly admitsSeveral?: boolean;
  /** Makes one attempt. If it throws, the acquisition may be held. */
  tryAcquire(acquisition: Acquisition): Promise<AttemptResult>;
  /** @returns whether the acquisition was still held; throws if that is unknown */
  renew(acquisition: Acquisition): Promise<boolean>;
  /** Releases the lock and removes the acquisition from the queue. @returns whether the acquisition held the lock */
  release(acquisition: Acquisition): Promise<boolean>;
  /** Closes the lock's own connections. */
  close?(): void;
}

export function polledLock(backend: PolledBackend): Lock {
  const compensations = new Compensations();
  const compensate = (acquisition: Acquisition) =>
    compensations.add(() => backend.release(acquisition).then(() => true), acquisition.options.ttlMs);

  async function release(acquisition: Acquisition): Promise<boolean> {
    try {
      return await backend.release(acquisition);
    } catch (error) {
      compensate(acquisition);
      throw error;
    }
  }

  async function tryAcquire(acquisition: Acquisition, waiter: Waiter): Promise<AcquireResult | Retry> {
    const { resource, token, options } = acquisition;
    const requestedAtMs = performance.now();
    try {
      const result = await backend.tryAcquire(acquisition);
      if (result.kind !== 'held') return result;
      const lease = new RenewingLease(
        { renew: () => backend.renew(acquisition), release: () => release(acquisition) },
        { resource, token, fencingToken: result.fencingToken, ttlMs: options.ttlMs, requestedAtMs },
      );
      return await acceptLease(lease, waiter, `${backend.name}-slow`);
    } catch (error) {
      compensate(acquisition);
      return { kind: 'unavailable', reason: failureOf(error).reason };
    }
  }

  return waitingLock({
    name: backend.name,
    minTtlMs: backend.minTtlMs,
    admitsSeveral: backend.admitsSeveral,
    queue: backend.queuesAtServer ? null : localQueue(),
    async acquire(resource, options, waiter) {
      const acquisition = { resource, token: randomUUID(), options };
      const result = await poll(waiter, () =>
        tryAcquire(backend.queuesAtServer ? acquisition : { ...acquisition, token: randomUUID() }, waiter),
      );
      const isQueued = backend.queuesAtServer && result.kind !== 'held';
      if (isQueued && (result.kind !== 'unavailable' || waiter.signal.aborted)) {
        await release(acquisition).catch(() => {});
      }
      return result;
    },
    async close() {
      await compensations.close();
      backend.close?.();
    },
  });
}
