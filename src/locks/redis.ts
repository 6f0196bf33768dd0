/**
 * A lock in one Redis: a token under a key that expires.
 *
 *   local turn ──▶ ask ──held by another──▶ wait a little ──▶ ask …        until waitMs is over: contended
 *                   │ got it
 *                   ▼
 *                 held ──every TTL/3──▶ renew ──yes──▶ held, deadline moved
 *                   │                     └──no, or no answer until the deadline──▶ lost
 *                   └──release: compare and delete
 *
 * The deadline is counted from *before* the request was sent, on the monotonic clock, less a margin for drift
 * between the two machines' clocks; so it comes before Redis can have let the key expire. A request whose answer
 * was lost may have taken the lock: it is released by its token.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { classifyRedisError, type RedisStore } from '../store/redis.ts';
import { localQueue } from './local-queue.ts';
import {
  type AcquireOptions,
  type AcquireResult,
  type Lease,
  LeaseLostError,
  type Lock,
  type LockDescription,
} from './lock.ts';

export const description: LockDescription = {
  name: 'redis',
  summary:
    'One Redis: token, atomic expiry, compare-and-delete release, renewal, fencing token, loss signalled before expiry.',
  capabilities: {
    reentrant: false,
    fair: false,
    fenced: true,
    waitsByEvent: false,
    survivesFailover: false,
    needs: 'REDIS_URL',
  },
};

/** Clocks of two machines drift apart by less than this share of a lease, plus the constant. */
const DRIFT_SHARE = 0.01;
const DRIFT_MS = 2;
/** Between two questions while another process holds the lock: jittered, growing, in milliseconds. */
const POLL_FIRST_MS = 2;
const POLL_MOST_MS = 25;

export function createRedisLock(store: RedisStore): Lock {
  const { scripts } = store;
  const queue = localQueue();
  const held = new Set<RedisLease>();

  type Asked =
    | Exclude<AcquireResult, { kind: 'held' }>
    | { readonly kind: 'held'; readonly lease: RedisLease };

  async function ask(resource: string, options: AcquireOptions, untilMs: number): Promise<Asked> {
    const token = randomUUID();
    for (let pollMs = POLL_FIRST_MS; ; pollMs = Math.min(pollMs * 1.6, POLL_MOST_MS)) {
      const askedMs = performance.now();
      try {
        const fence = await scripts.acquire(lockKey(resource), fenceKey(resource), token, options.ttlMs);
        if (fence > 0) {
          const lease = new RedisLease(store, resource, token, fence, options.ttlMs, askedMs);
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

  function hold(lease: RedisLease, leave: () => void): void {
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
      let lease: RedisLease | undefined;
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

class RedisLease implements Lease {
  readonly resource: string;
  readonly token: string;
  readonly fencingToken: number;
  deadlineMs: number;
  /** Called once, when the lease is over for this process. */
  onEnd: () => void = () => {};
  readonly #store: RedisStore;
  readonly #ttlMs: number;
  readonly #lost = new AbortController();
  readonly #renewal: NodeJS.Timeout;
  #deadline: NodeJS.Timeout | undefined;
  #over = false;

  constructor(
    store: RedisStore,
    resource: string,
    token: string,
    fence: number,
    ttlMs: number,
    askedMs: number,
  ) {
    this.#store = store;
    this.resource = resource;
    this.token = token;
    this.fencingToken = fence;
    this.#ttlMs = ttlMs;
    this.deadlineMs = 0;
    this.#renewal = setInterval(() => void this.#renew(), ttlMs / 3);
    this.#setDeadline(askedMs);
  }

  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  async release(): Promise<boolean> {
    if (this.#over) return false;
    this.#end();
    try {
      return await this.#store.scripts.unlock(lockKey(this.resource), this.token);
    } catch {
      return false; // it runs out with its TTL
    } finally {
      this.onEnd();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  #setDeadline(askedMs: number): void {
    this.deadlineMs = askedMs + this.#ttlMs * (1 - DRIFT_SHARE) - DRIFT_MS;
    clearTimeout(this.#deadline);
    const leftMs = this.deadlineMs - performance.now();
    if (leftMs <= 0) this.#lose('the lease may have expired');
    else this.#deadline = setTimeout(() => this.#lose('the lease was not renewed in time'), leftMs);
  }

  async #renew(): Promise<void> {
    const askedMs = performance.now();
    try {
      const renewed = await this.#store.scripts.renew(lockKey(this.resource), this.token, this.#ttlMs);
      if (this.#over) return;
      if (renewed) this.#setDeadline(askedMs);
      else this.#lose('the lock is held by another, or was deleted');
    } catch {
      // The deadline stands; the next renewal may come through before it.
    }
  }

  #lose(reason: string): void {
    if (this.#over) return;
    this.#end();
    this.#lost.abort(new LeaseLostError(`${this.resource}: ${reason}`));
    // Whoever waits in this process asks Redis, which knows whether the key is gone.
    this.onEnd();
  }

  #end(): void {
    this.#over = true;
    clearInterval(this.#renewal);
    clearTimeout(this.#deadline);
  }
}
