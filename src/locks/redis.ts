/**
 * A lock in one Redis: a token under a key that expires.
 *
 *   local turn ──▶ ask ──held by another──▶ wait a little ──▶ ask …        until waitMs is over: contended
 *                   │ got it
 *                   ▼
 *                 held: see renewing-lease.ts
 *
 * A request whose answer was lost may have taken the lock: it is released by its token.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { classifyRedisError, type RedisStore } from '../store/redis.ts';
import { localQueue } from './local-queue.ts';
import type { AcquireOptions, AcquireResult, Lock, LockDescription } from './lock.ts';
import { type LeaseServer, RenewingLease } from './renewing-lease.ts';

export const description: LockDescription = {
  name: 'redis',
  summary:
    'One Redis: token, atomic expiry, compare-and-delete release, renewal, fencing token, loss signalled before expiry.',
  flaw: null,
  needs: 'REDIS_URL',
  capabilities: {
    expires: true,
    checksOwner: true,
    settlesLostAnswers: true,
    renews: true,
    signalsLoss: true,
    reentrant: false,
    fair: false,
    fenced: true,
    waitsByEvent: false,
    survivesFailover: false,
  },
};

/** Between two questions while another process holds the lock: jittered, growing, in milliseconds. */
const POLL_FIRST_MS = 2;
const POLL_MOST_MS = 25;

/** Makes the lock on the service's own connection. */
export async function create({ redis }: { readonly redis: RedisStore }): Promise<Lock> {
  return createRedisLock(redis);
}

export function createRedisLock(store: RedisStore): Lock {
  const { scripts } = store;
  const queue = localQueue();
  const held = new Set<RenewingLease>();

  const server = (resource: string, token: string, ttlMs: number): LeaseServer => ({
    renew: () => scripts.renew(lockKey(resource), token, ttlMs),
    release: () => scripts.unlock(lockKey(resource), token),
  });

  type Asked =
    | Exclude<AcquireResult, { kind: 'held' }>
    | { readonly kind: 'held'; readonly lease: RenewingLease };

  async function ask(resource: string, options: AcquireOptions, untilMs: number): Promise<Asked> {
    const token = randomUUID();
    for (let pollMs = POLL_FIRST_MS; ; pollMs = Math.min(pollMs * 1.6, POLL_MOST_MS)) {
      const askedMs = performance.now();
      try {
        const fence = await scripts.acquire(lockKey(resource), fenceKey(resource), token, options.ttlMs);
        if (fence > 0) {
          const lease = new RenewingLease(server(resource, token, options.ttlMs), {
            resource,
            token,
            fencingToken: fence,
            ttlMs: options.ttlMs,
            askedMs,
          });
          if (!lease.signal.aborted) return { kind: 'held', lease };
          void scripts.unlock(lockKey(resource), token).catch(() => {}); // the answer took longer than the lease
          return { kind: 'unavailable', reason: 'redis-slow' };
        }
      } catch (error) {
        const { reason } = classifyRedisError(error);
        void scripts.unlock(lockKey(resource), token).catch(() => {}); // else it runs out with its TTL
        return { kind: 'unavailable', reason };
      }
      const leftMs = untilMs - performance.now();
      if (leftMs <= 0) return { kind: 'contended' };
      await sleep(Math.min(leftMs, pollMs * (0.5 + Math.random())), undefined, {
        signal: options.signal,
      }).catch(() => {});
      if (options.signal?.aborted) return { kind: 'aborted' };
    }
  }

  function hold(lease: RenewingLease, leave: () => void): void {
    held.add(lease);
    lease.onEnd = () => {
      held.delete(lease);
      leave();
    };
  }

  return {
    name: description.name,
    async acquire(resource, options) {
      const untilMs = performance.now() + options.waitMs;
      const leave = await queue.enter(resource, options.waitMs, options.signal);
      if (leave === null) return options.signal?.aborted ? { kind: 'aborted' } : { kind: 'contended' };
      let lease: RenewingLease | undefined;
      try {
        const result = await ask(resource, options, untilMs);
        if (result.kind === 'held') lease = result.lease;
        return result;
      } finally {
        if (lease === undefined) leave();
        else hold(lease, leave);
      }
    },
    async close() {
      await Promise.all([...held].map((lease) => lease.release()));
    },
  };
}

const lockKey = (resource: string) => `stampede:{${resource}}:lock`;
const fenceKey = (resource: string) => `stampede:{${resource}}:fence`;
