/**
 * A lock in Redis with renewed leases, local queue and polling; unanswered requests are compensated.
 *
 *   local turn ──▶ attempt ──contended──▶ pause ──▶ attempt …      waitMs elapsed: contended
 *                    │ granted  │ no reply
 *                    ▼          ▼
 *                  held     unavailable; a compensation releases what the request may have taken
 *
 * With `queuesAtServer` the server keeps a queue: a claim uses one token for its whole wait, leaves the queue when the wait
 * ends, and does not queue locally, because the server knows the order. Otherwise every attempt has a new token, so that a
 * delayed release of one attempt cannot end the next.
 */
import { randomUUID } from 'node:crypto';
import { localQueue } from '../../concurrency/local-queue.ts';
import { expectedRedisFailure } from '../../store/failures/redis.ts';
import type { AcquireOptions, AcquireResult, Lock } from '../lock.ts';
import { Compensations } from './compensations.ts';
import { acceptLease, poll, type Retry } from './poll.ts';
import { RenewingLease } from './renewing-lease.ts';
import { type Waiter, waitingLock } from './waiting-lock.ts';

/** One contender's claim on a resource. */
export interface Claim {
  readonly resource: string;
  readonly token: string;
  readonly options: AcquireOptions;
}

export type AttemptResult =
  | { readonly kind: 'held'; readonly fencingToken: number | null }
  | Retry
  /** Nothing is held, and no compensation is needed. */
  | { readonly kind: 'unavailable'; readonly reason: string };

export interface PolledBackend {
  readonly name: string;
  readonly queuesAtServer: boolean;
  /** Makes one attempt. If it throws, the claim may be held. */
  tryAcquire(claim: Claim): Promise<AttemptResult>;
  /** @returns whether the claim was still held; throws if that is unknown */
  renew(claim: Claim): Promise<boolean>;
  /** Releases the lock and removes the claim from the queue. @returns whether the claim held the lock */
  release(claim: Claim): Promise<boolean>;
  /** Closes the lock's own connections. */
  close?(): void;
}

export function polledLock(backend: PolledBackend): Lock {
  const compensations = new Compensations();
  const compensate = (claim: Claim) =>
    compensations.add(() => backend.release(claim).then(() => true), claim.options.ttlMs);

  async function release(claim: Claim): Promise<boolean> {
    try {
      return await backend.release(claim);
    } catch (error) {
      compensate(claim);
      throw error;
    }
  }

  async function tryAcquire(claim: Claim, waiter: Waiter): Promise<AcquireResult | Retry> {
    const { resource, token, options } = claim;
    const requestedAtMs = performance.now();
    try {
      const result = await backend.tryAcquire(claim);
      if (result.kind !== 'held') return result;
      const lease = new RenewingLease(
        { renew: () => backend.renew(claim), release: () => release(claim) },
        { resource, token, fencingToken: result.fencingToken, ttlMs: options.ttlMs, requestedAtMs },
      );
      return await acceptLease(lease, waiter, `${backend.name}-slow`);
    } catch (error) {
      compensate(claim);
      return { kind: 'unavailable', reason: expectedRedisFailure(error).reason };
    }
  }

  return waitingLock({
    name: backend.name,
    queue: backend.queuesAtServer ? null : localQueue(),
    async acquire(resource, options, waiter) {
      const claim = { resource, token: randomUUID(), options };
      const result = await poll(waiter, () =>
        tryAcquire(backend.queuesAtServer ? claim : { ...claim, token: randomUUID() }, waiter),
      );
      const isQueued = backend.queuesAtServer && result.kind !== 'held';
      if (isQueued && (result.kind !== 'unavailable' || waiter.signal.aborted)) {
        await release(claim).catch(() => {});
      }
      return result;
    },
    async close() {
      await compensations.close();
      backend.close?.();
    },
  });
}
