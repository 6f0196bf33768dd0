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
import type { RedisClient } from './clients.ts';
import { Compensations } from './kit/compensations.ts';
import { LocalQueue, Turn } from './kit/local-queue.ts';
import { Notifications } from './kit/notifications.ts';
import { FENCED_CLOCK_FLAW, lockKey } from './kit/redis.ts';
import { type Handoff, type Place, RedisCohort } from './kit/redis-cohort.ts';
import { type Waiter, waitingLock } from './kit/waiting-lock.ts';
import { type AcquireResult, LEASE_CAPABILITIES, type Lock, type LockDescription } from './lock.ts';
import type { CheckedOptions } from './options.ts';

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

export function createRedisLock({ redis, onError = () => {} }: Context): Lock {
  const compensations = new Compensations();
  const notifications = new Notifications(redis, onError);
  const cohort = new RedisCohort(redis, notifications, compensations);

  /** @param inherited a place that the last turn handed off */
  async function attemptUntilHeld(
    resource: string,
    options: CheckedOptions,
    waiter: Waiter,
    turn: Turn<Handoff>,
    inherited?: Place,
  ): Promise<AcquireResult> {
    const waits = options.waitMs > 0;
    const listener = inherited?.listener ?? (waits ? notifications.listen(lockKey(resource)) : null);
    let channel = inherited === undefined ? '' : notifications.channel;
    let enqueued = inherited?.channel ?? '';
    try {
      for (let pauseMs = inherited === undefined ? 0 : SAFETY_POLL_MS; ; ) {
        if (pauseMs > 0) {
          const pollMs = (channel === '' ? UNNOTIFIED_POLL_MS : SAFETY_POLL_MS) * (0.9 + Math.random() * 0.1);
          if (!(await listener?.wait(Math.min(pauseMs, pollMs), waiter))) return waiter.notAcquired();
        }
        if (waiter.signal.aborted) return waiter.notAcquired();
        if (waits) channel = notifications.channel;
        enqueued ||= channel; // also if the request fails: it may have run
        const result = await cohort.tryAcquire(resource, options, channel);
        if ('token' in result) {
          if (channel !== '') enqueued = ''; // the grant has removed it
          return { kind: 'held', lease: cohort.lease(resource, result, turn) };
        }
        const subscribes = channel === '' && waits;
        pauseMs = subscribes && (await notifications.subscribe(waiter)) ? 0 : result.leftMs + 1;
      }
    } finally {
      listener?.close();
      if (enqueued !== '') cohort.leaveQueue(resource, enqueued, options.ttlMs);
    }
  }

  return waitingLock<Handoff>({
    name: description.name,
    queue: new LocalQueue(),
    admitsOwner: true,
    async acquire(resource, options, waiter, turn) {
      const { acquisition, place } = turn.handoff ?? {};
      if (acquisition !== undefined && options.owner === undefined && options.ttlMs === acquisition.ttlMs)
        return { kind: 'held', lease: cohort.lease(resource, acquisition, turn) };
      if (acquisition !== undefined) await cohort.release(resource, acquisition, new Turn());
      return attemptUntilHeld(resource, options, waiter, turn, place);
    },
    async close() {
      await compensations.close();
      notifications.close();
    },
  });
}
