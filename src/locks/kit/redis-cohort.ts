/**
 * The acquisitions of one process under the lock `redis`, and their handoff from one local contender to the next.
 *
 *   acquisition ──lease──▶ released ──a local contender waits, and a handoff is allowed──▶ the next contender's lease
 *                       └──▶ released in Redis, which notifies one waiting process; this process re-enters the queue at
 *                            its end if local contenders wait
 *
 * A handoff costs no round trip: the acquisition stays in Redis, and the next contender gets the next of the fencing tokens that
 * the acquisition reserved. MAX_HANDOFFS and HANDOFF_MS bound how long one process keeps the lock. The idea is lock cohorting
 * (Dice, Marathe and Shavit, 2012).
 */
import { randomUUID } from 'node:crypto';
import type { RedisClient } from '../clients.ts';
import type { CheckedOptions } from '../options.ts';
import { resolveAmbiguous } from './ambiguous-write.ts';
import type { Compensations } from './compensations.ts';
import { Turn } from './local-queue.ts';
import type { Listener, Notifications } from './notifications.ts';
import { lockKey, resourceScript } from './redis.ts';
import { RenewingLease } from './renewing-lease.ts';

const MAX_HANDOFFS = 63;
const HANDOFF_MS = 50;
/** The share of the TTL that a handoff must leave. A renewal follows after a third of it. */
const MIN_TTL_SHARE = 0.5;

export interface Acquisition {
  readonly token: string;
  /** The token itself for an acquisition without owner. */
  readonly owner: string;
  readonly ttlMs: number;
  /** The first of the reserved fencing tokens. */
  readonly fencingToken: number;
  readonly requestedAtMs: number;
  /** When the newest granted request was sent. */
  readonly confirmedAtMs: number;
  readonly handoffs: number;
}

/** A place in the queue. */
export interface Place {
  readonly listener: Listener;
  /** The channel that is enqueued; empty: none is. */
  readonly channel: string;
}

/** What a contender hands to the next one of its process. */
export interface Handoff {
  readonly acquisition?: Acquisition;
  readonly place?: Place;
}

export class RedisCohort {
  readonly #acquire;
  readonly #renew;
  readonly #release;
  readonly #notifications: Notifications;
  readonly #compensations: Compensations;

  constructor(redis: RedisClient, notifications: Notifications, compensations: Compensations) {
    this.#acquire = resourceScript(redis, 'lock/reentrant-acquire', 'lock', 'fence', 'waiters');
    this.#renew = resourceScript(redis, 'lock/reentrant-renew', 'lock');
    const release = resourceScript(redis, 'lock/reentrant-release', 'lock', 'waiters');
    this.#release = (resource: string, token: string, channel: string, requeue: boolean) =>
      release(resource, token, channel, requeue ? 1 : 0, redis.isCluster ? 1 : 0);
    this.#notifications = notifications;
    this.#compensations = compensations;
  }

  /** Makes one attempt, and enqueues `channel` unless it is empty. @throws RequestError */
  async tryAcquire(
    resource: string,
    { ttlMs, owner }: CheckedOptions,
    channel: string,
  ): Promise<Acquisition | { readonly leftMs: number }> {
    const token = randomUUID();
    const requestedAtMs = performance.now();
    const write = () => this.#acquire(resource, token, owner ?? token, ttlMs, MAX_HANDOFFS + 1, channel);
    const compensate = () => this.#release(resource, token, '', false);
    const compensations = this.#compensations;
    const reply = await resolveAmbiguous({ write, retry: write, compensate, ttlMs, compensations });
    if (reply <= 0) return { leftMs: -reply };
    const acquisition = { token, owner: owner ?? token, ttlMs, fencingToken: reply };
    return { ...acquisition, requestedAtMs, confirmedAtMs: requestedAtMs, handoffs: 0 };
  }

  /** @param turn of the contender that has the acquisition now */
  lease(resource: string, acquisition: Acquisition, turn: Turn<Handoff>): RenewingLease {
    const { token, ttlMs, handoffs } = acquisition;
    const release = async () => {
      const next = { ...acquisition, confirmedAtMs: lease.confirmedAtMs, handoffs: handoffs + 1 };
      if (mayHandOff(next) && turn.pass({ acquisition: next })) return true;
      // The loss of a lease ends its turn. The next contender has its own listener and place, which this release leaves alone.
      return this.release(resource, acquisition, lease.signal.aborted ? new Turn() : turn);
    };
    const renew = async () => (await this.#renew(resource, token, ttlMs)) === 1;
    const fencingToken = acquisition.fencingToken + handoffs;
    const lease: RenewingLease = new RenewingLease(
      { renew, release },
      {
        resource,
        token: `${token}:${handoffs}`,
        fencingToken,
        ttlMs,
        requestedAtMs: acquisition.confirmedAtMs,
      },
    );
    return lease;
  }

  /** Releases an acquisition in Redis. @returns whether it was held @throws if that is unknown; a compensation then runs */
  async release(resource: string, { token, ttlMs }: Acquisition, turn: Turn<Handoff>): Promise<boolean> {
    const { channel } = this.#notifications;
    const release = (requeue: boolean) => this.#release(resource, token, channel, requeue);
    // Before the request: the notification may follow at once.
    const listener = turn.waiting > 0 ? this.#notifications.listen(lockKey(resource)) : null;
    let isAnotherNotified = false;
    try {
      const reply = await release(listener !== null && channel !== '');
      isAnotherNotified = reply === 2;
      return reply > 0;
    } catch (error) {
      this.#compensations.add(() => release(false).then(() => true), ttlMs);
      throw error;
    } finally {
      // The next local contender does not overtake the process that was notified.
      if (listener !== null && !(isAnotherNotified && turn.pass({ place: { listener, channel } }))) {
        listener.close();
        if (isAnotherNotified && channel !== '') this.leaveQueue(resource, channel, ttlMs);
      }
    }
  }

  /** Runs in the background. If this process was just notified, Redis notifies another one. */
  leaveQueue(resource: string, channel: string, ttlMs: number): void {
    this.#compensations.add(() => this.#release(resource, '', channel, false).then(() => true), ttlMs);
  }
}

function mayHandOff({ token, owner, ttlMs, requestedAtMs, confirmedAtMs, handoffs }: Acquisition): boolean {
  const nowMs = performance.now();
  const isInTime = nowMs - requestedAtMs < HANDOFF_MS && nowMs - confirmedAtMs < ttlMs * (1 - MIN_TTL_SHARE);
  return owner === token && handoffs <= MAX_HANDOFFS && isInTime;
}
