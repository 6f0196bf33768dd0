/**
 * A lock whose leases renew, and whose server is asked again and again; and what has to be tidied up afterwards.
 *
 *   turn in this process ──▶ ask ──held by another──▶ pause ──▶ ask …      until waitMs is over: contended
 *                             │ got it      │ the answer was lost
 *                             ▼             ▼
 *                           held       unavailable; what the request may have taken is given back: see settled.ts
 *
 * A lock that keeps places at its server (`keepsPlace`) asks with one token for as long as it waits, gives the place
 * back when it stops waiting, and lets every contender of this process ask for itself, since the server knows who
 * is next. Any other lock asks with a fresh token each time, so that a late release of one try cannot end the next.
 */
import { randomUUID } from 'node:crypto';
import { localQueue } from '../../concurrency/local-queue.ts';
import { expectedRedisFailure } from '../../store/redis/connection.ts';
import type { AcquireOptions, AcquireResult, Lock } from '../lock.ts';
import { Settlements } from './ambiguous-write.ts';
import { inTime, poll, type Wait } from './polling.ts';
import { RenewingLease } from './renewing-lease.ts';
import { type Waiter, waitingLock } from './waiting-lock.ts';

/** One contender's claim on a resource. */
export interface Claim {
  readonly resource: string;
  readonly token: string;
  readonly options: AcquireOptions;
}

export type Answer =
  | { readonly kind: 'held'; readonly fencingToken: number | null }
  | Wait
  /** The server itself saw to it that nothing stays held. */
  | { readonly kind: 'unavailable'; readonly reason: string };

export interface PolledServer {
  readonly name: string;
  readonly keepsPlace: boolean;
  /** Asks once. What it throws says that the claim may be held all the same. */
  ask(claim: Claim): Promise<Answer>;
  /** @returns whether the claim was still held; throws when that is not known */
  renew(claim: Claim): Promise<boolean>;
  /** Gives back what the claim holds and the place where it waits. @returns whether it was held */
  release(claim: Claim): Promise<boolean>;
  /** Ends the connections of the lock's own. */
  close?(): void;
}

export function polledLock(server: PolledServer): Lock {
  const settlements = new Settlements();
  const settle = (claim: Claim) =>
    settlements.undo(() => server.release(claim).then(() => true), claim.options.ttlMs);

  async function release(claim: Claim): Promise<boolean> {
    try {
      return await server.release(claim);
    } catch (error) {
      settle(claim);
      throw error;
    }
  }

  /** One question. */
  async function askOnce(claim: Claim, waiter: Waiter): Promise<AcquireResult | Wait> {
    const { resource, token, options } = claim;
    const askedMs = performance.now();
    try {
      const answer = await server.ask(claim);
      if (answer.kind !== 'held') return answer;
      const lease = new RenewingLease(
        { renew: () => server.renew(claim), release: () => release(claim) },
        { resource, token, fencingToken: answer.fencingToken, ttlMs: options.ttlMs, askedMs },
      );
      return await inTime(lease, waiter, `${server.name}-slow`);
    } catch (error) {
      settle(claim);
      return { kind: 'unavailable', reason: expectedRedisFailure(error).reason };
    }
  }

  return waitingLock({
    name: server.name,
    queue: server.keepsPlace ? null : localQueue(),
    async ask(resource, options, waiter) {
      const claim = { resource, token: randomUUID(), options };
      const result = await poll(waiter, () =>
        askOnce(server.keepsPlace ? claim : { ...claim, token: randomUUID() }, waiter),
      );
      const place = server.keepsPlace && result.kind !== 'held';
      if (place && (result.kind !== 'unavailable' || waiter.signal.aborted)) {
        await release(claim).catch(() => {});
      }
      return result;
    },
    async close() {
      await settlements.close();
      server.close?.();
    },
  });
}
