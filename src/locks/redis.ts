/**
 * A lock in one Redis, as a hash of an owner and its acquisitions with an expiry.
 *
 *   local turn ──▶ attempt ──contended──▶ queued ──notified, or after SAFETY_POLL_MS──▶ attempt …
 *       │             │ granted              └──waitMs elapsed, aborted──▶ leaves the queue
 *       │             ▼
 *       │           held: kit/redis-cohort.ts
 *       ├──an acquisition was handed off──▶ held
 *       └──a place in the queue was handed off──▶ queued
 *
 * An acquisition that names its owner is granted at once, with the same fencing token, wherever that owner already holds the lock.
 * kit/ambiguous-write.ts resolves requests whose reply was lost.
 */
import { failureOf, type RedisClient } from './clients.ts';
import { Compensations } from './kit/compensations.ts';
import { localQueue, type Turn, unqueued } from './kit/local-queue.ts';
import { Notifications } from './kit/notifications.ts';
import { acceptLease } from './kit/poll.ts';
import { FENCED_CLOCK_FLAW, lockKey } from './kit/redis.ts';
import { type Handoff, type Place, RedisCohort } from './kit/redis-cohort.ts';
import { type Waiter, waitingLock } from './kit/waiting-lock.ts';
import { type AcquireResult, LEASE_CAPABILITIES, type Lock, type LockDescription } from './lock.ts';
import type { AcquireOptions, CheckedOptions } from './options.ts';

export const description: LockDescription = {
  name: 'redis',
  summary:
    'One Redis, the recommended lock: reentrant, renewed, fenced, notified instead of polling, loss signalled before expiry.',
  flaw: FENCED_CLOCK_FLAW,
  needs: 'REDIS_URL',
  capabilities: [...LEASE_CAPABILITIES, 'fencing-tokens', 'reentrant', 'waits-by-notification'],
};

/** Longest pause between two attempts of a waiter, in milliseconds: a message may be lost. */
const SAFETY_POLL_MS = 300;
/** The same while this process cannot receive messages. */
const UNNOTIFIED_POLL_MS = 25;

interface Context {
  readonly redis: RedisClient;
  /** Receives failures of background work. */
  readonly onError?: (doing: string, error: unknown) => void;
}

/** Uses the service's connection; the first waiter opens another one for notifications. */
export const create = async (context: Context): Promise<Lock> => createRedisLock(context);
export const createRedisLock = (context: Context): Lock => new RedisLock(context);

class RedisLock implements Lock {
  readonly name = description.name;
  readonly #notifications: Notifications;
  readonly #cohort: RedisCohort;
  readonly #queued: Lock;
  /** An owner first tries without the local queue: it may hold the lock already. */
  readonly #unqueued: Lock;

  constructor({ redis, onError = () => {} }: Context) {
    const compensations = new Compensations();
    this.#notifications = new Notifications(redis, onError);
    this.#cohort = new RedisCohort(redis, this.#notifications, compensations);
    this.#queued = waitingLock<Handoff>({
      name: this.name,
      queue: localQueue(),
      acquire: (...given) => this.#acquireInTurn(...given),
      close: () => compensations.close(),
    });
    this.#unqueued = waitingLock<Handoff>({
      name: this.name,
      queue: null,
      acquire: (resource, options, waiter, turn) =>
        this.#acquireInTurn(resource, { ...options, waitMs: 0 }, { ...waiter, untilMs: 0 }, turn),
      close: () => this.#queued.close(),
    });
  }

  check(resource: string, options?: AcquireOptions): CheckedOptions {
    return this.#queued.check(resource, options);
  }

  async acquire(resource: string, given?: AcquireOptions): Promise<AcquireResult> {
    const options = this.check(resource, given);
    if (options.owner === undefined) return this.#queued.acquire(resource, options);
    const untilMs = performance.now() + options.waitMs;
    const result = await this.#unqueued.acquire(resource, options);
    const waitMs = untilMs - performance.now();
    if (result.kind !== 'contended' || waitMs <= 0) return result;
    return this.#queued.acquire(resource, { ...options, waitMs });
  }

  async close(): Promise<void> {
    await this.#unqueued.close();
    this.#notifications.close();
  }

  /** @param inherited a place that the last turn handed off */
  async #attemptUntilHeld(
    resource: string,
    options: CheckedOptions,
    waiter: Waiter,
    turn: Turn<Handoff>,
    inherited?: Place,
  ): Promise<AcquireResult> {
    const waits = options.waitMs > 0;
    const listener = inherited?.listener ?? (waits ? this.#notifications.listen(lockKey(resource)) : null);
    let channel = inherited === undefined ? '' : this.#notifications.channel;
    let enqueued = inherited?.channel ?? '';
    try {
      for (let pauseMs = inherited === undefined ? 0 : SAFETY_POLL_MS; ; ) {
        if (pauseMs > 0) {
          const leftMs = waiter.untilMs - performance.now();
          if (leftMs <= 0) return waiter.notAcquired();
          const pollMs = channel === '' ? UNNOTIFIED_POLL_MS : SAFETY_POLL_MS;
          await listener?.wait(Math.min(leftMs, pauseMs, pollMs * (0.9 + Math.random() * 0.1)), waiter);
        }
        if (waiter.signal.aborted) return waiter.notAcquired();
        if (waits) channel = this.#notifications.channel;
        enqueued ||= channel; // also if the request fails: it may have run
        const result = await this.#cohort.tryAcquire(resource, options, channel);
        if ('token' in result) {
          if (channel !== '') enqueued = ''; // the grant has removed it
          return await acceptLease(this.#cohort.lease(resource, result, turn), waiter, 'redis-slow');
        }
        const subscribes = channel === '' && waits;
        pauseMs = subscribes && (await this.#notifications.subscribe(waiter)) ? 0 : result.leftMs + 1;
      }
    } finally {
      listener?.close();
      if (enqueued !== '') this.#cohort.leaveQueue(resource, enqueued, options.ttlMs);
    }
  }

  async #acquireInTurn(
    resource: string,
    options: CheckedOptions,
    waiter: Waiter,
    turn: Turn<Handoff>,
  ): Promise<AcquireResult> {
    const { acquisition, place } = turn.handoff ?? {};
    try {
      if (acquisition !== undefined && options.owner === undefined && options.ttlMs === acquisition.ttlMs) {
        return await acceptLease(this.#cohort.lease(resource, acquisition, turn), waiter, 'redis-slow');
      }
      if (acquisition !== undefined) await this.#cohort.release(resource, acquisition, unqueued());
      return await this.#attemptUntilHeld(resource, options, waiter, turn, place);
    } catch (error) {
      return { kind: 'unavailable', reason: failureOf(error).reason };
    }
  }
}
