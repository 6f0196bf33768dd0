/**
 * A lock in one Redis: an owner and its claims under a key that expires.
 *
 *   local turn ──▶ ask ──held by another──▶ in line ──woken, or SAFETY_MS over──▶ ask …   waitMs over: contended
 *       │           │ got it                  ▲                     └──stops waiting──▶ out of the line
 *       │           ▼                         │
 *       │         held: see locks/kit/redis-claims.ts    │
 *       ├──the last one left its claim──▶ held│
 *       └──the last one put us in line────────┘
 *
 * A claim that names its owner is let in where that owner is, in any process, at once, with the same fencing token. A
 * request whose answer was lost may have taken the lock: see settled.ts.
 */

import { localQueue, type Turn, unqueued } from '../../concurrency/local-queue.ts';
import { expectedRedisFailure, type RedisStore } from '../../store/redis/connection.ts';
import { Settlements } from '../kit/ambiguous-write.ts';
import { lockKey } from '../kit/keys.ts';
import { type Bell, Bells } from '../kit/notifications.ts';
import { inTime } from '../kit/polling.ts';
import { Claims, type Legacy } from '../kit/redis-claims.ts';
import { SERVER_CLOCK_FLAW } from '../kit/server-clock.ts';
import { type Waiter, waitingLock } from '../kit/waiting-lock.ts';
import type { AcquireOptions, AcquireResult, Lock, LockDescription } from '../lock.ts';

export const description: LockDescription = {
  name: 'redis',
  summary:
    'One Redis, the one to use: reentrant by owner, renewed, fenced, woken by notification, loss signalled before expiry.',
  flaw: SERVER_CLOCK_FLAW,
  needs: 'REDIS_URL',
  capabilities: {
    expires: true,
    checksOwner: true,
    settlesLostAnswers: true,
    renews: true,
    signalsLoss: true,
    reentrant: true,
    fair: false,
    fenced: true,
    waitsByEvent: true,
    survivesFailover: false,
  },
};

/** One who waits asks again after so long at the latest, in milliseconds: a message may be lost. */
const SAFETY_MS = 300;
/** The same while this process cannot be woken. */
const UNHEARD_MS = 25;

interface Context {
  readonly redis: RedisStore;
  /** Told of failures that no caller waits for. */
  readonly onError?: (doing: string, error: unknown) => void;
}

/** Makes the lock on the service's own connection; the first one who waits opens another, to be woken by. */
export async function create(context: Context): Promise<Lock> {
  return createRedisLock(context);
}

export function createRedisLock({ redis, onError = () => {} }: Context): Lock {
  const bells = new Bells(redis.redis, onError);
  const settlements = new Settlements();
  const claims = new Claims(redis, bells, settlements);

  /** Asks until the lock is held; in line with `bell`, when the last contender left one. */
  async function stand(
    resource: string,
    options: AcquireOptions,
    waiter: Waiter,
    turn: Turn<Legacy>,
    left: Bell | null,
  ): Promise<AcquireResult> {
    const bell = left ?? bells.arm(lockKey(resource));
    let channel = left === null ? '' : bells.channel;
    let taken = false;
    try {
      for (let pauseMs = left === null ? 0 : SAFETY_MS; ; ) {
        if (pauseMs > 0) {
          const waitMs = waiter.untilMs - performance.now();
          if (waitMs <= 0) return waiter.ended();
          const mostMs = (channel === '' ? UNHEARD_MS : SAFETY_MS) * (0.9 + Math.random() * 0.1);
          await bell.wait(Math.min(waitMs, pauseMs, mostMs), waiter);
        }
        if (waiter.signal.aborted) return waiter.ended();
        if (options.waitMs > 0) channel = bells.channel;
        const answer = await claims.ask(resource, options, channel);
        taken = 'token' in answer;
        if ('token' in answer)
          return await inTime(claims.lease(resource, answer, turn), waiter, 'redis-slow');
        const heard = channel === '' && options.waitMs > 0 && (await bells.listen(waiter));
        pauseMs = heard ? 0 : answer.leftMs + 1;
      }
    } finally {
      bell.disarm();
      if (channel !== '' && !taken) claims.leaveLine(resource, channel, options.ttlMs);
    }
  }

  async function ask(
    resource: string,
    options: AcquireOptions,
    waiter: Waiter,
    turn: Turn<Legacy>,
  ): Promise<AcquireResult> {
    const { claim, bell } = turn.handoff ?? {};
    try {
      if (claim !== undefined && options.owner === undefined && options.ttlMs === claim.ttlMs) {
        return await inTime(claims.lease(resource, claim, turn), waiter, 'redis-slow');
      }
      if (claim !== undefined) await claims.giveBack(resource, claim, unqueued());
      return await stand(resource, options, waiter, turn, bell ?? null);
    } catch (error) {
      return { kind: 'unavailable', reason: expectedRedisFailure(error).reason };
    }
  }

  const queued = waitingLock<Legacy>({
    name: description.name,
    queue: localQueue(),
    ask,
    close: () => settlements.close(),
  });
  /** An owner asks beside the queue first: it may be in already. */
  const beside = waitingLock<Legacy>({ ...description, queue: null, ask, close: () => queued.close() });

  return {
    name: description.name,
    async acquire(resource, options) {
      if (options.owner === undefined) return queued.acquire(resource, options);
      const untilMs = performance.now() + options.waitMs;
      const result = await beside.acquire(resource, { ...options, waitMs: 0 });
      const waitMs = untilMs - performance.now();
      if (result.kind !== 'contended' || waitMs <= 0) return result;
      return queued.acquire(resource, { ...options, waitMs });
    },
    async close() {
      await beside.close();
      bells.close();
    },
  };
}
