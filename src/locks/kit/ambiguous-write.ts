/**
 * Resolves a write whose reply may be lost ("timed out but succeeded").
 *
 *   write ──reply──▶ done
 *     └──no reply──▶ retry, which detects what the write did ──reply──▶ done
 *                      └──no reply for RESOLVE_MS──▶ throws; a compensation runs in the background until the server
 *                                                    replies or the TTL has expired
 *
 * Not covered: a write that the network delivers after its compensation. The lock that it takes expires with its TTL.
 */
import { setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { expectedRedisFailure, type RedisStore } from '../../store/redis/connection.ts';
import { defineTokenScripts, lockKey } from './redis.ts';

/** How long to retry after a lost reply. ioredis needs about 100 ms for a new connection. */
const RESOLVE_MS = 1_000;
const PAUSE_MS = 50;

/** Background work that undoes what unanswered requests may have done. */
export class Compensations {
  readonly #closing = new AbortController();
  readonly #pending = new Set<Promise<void>>();

  constructor() {
    setMaxListeners(0, this.#closing.signal); // one listener per pending compensation
  }

  get isClosed(): boolean {
    return this.#closing.signal.aborted;
  }

  /** Ends early when the lock closes. */
  async pause(ms: number): Promise<void> {
    await sleep(ms, undefined, { signal: this.#closing.signal }).catch(() => {});
  }

  /** Runs `compensate` until it resolves to true or the TTL expires: nothing is held after that. */
  add(compensate: () => Promise<boolean>, ttlMs: number): void {
    const work = this.#run(compensate, performance.now() + ttlMs);
    this.#pending.add(work);
    void work.finally(() => this.#pending.delete(work));
  }

  async #run(compensate: () => Promise<boolean>, untilMs: number): Promise<void> {
    // At least one attempt, even after the TTL: the write may still be in flight.
    while (!(await compensate().catch(() => false)) && !this.isClosed && performance.now() < untilMs) {
      await this.pause(PAUSE_MS);
    }
  }

  /** Waits for the current attempts and makes no further ones. */
  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all(this.#pending);
  }
}

export interface AmbiguousWrite<T> {
  write(): Promise<T>;
  /** Repeats the write idempotently, or reads what it did. */
  retry(): Promise<T>;
  compensate(): Promise<unknown>;
  readonly ttlMs: number;
  readonly compensations: Compensations;
}

/** @throws the error of `write` if its outcome stays unknown */
export async function resolveAmbiguous<T>(request: AmbiguousWrite<T>): Promise<T> {
  const { write, retry, compensate, ttlMs, compensations } = request;
  try {
    return await write();
  } catch (error) {
    if (expectedRedisFailure(error).kind === 'busy') throw error; // it did not run
    const retryUntilMs = performance.now() + RESOLVE_MS;
    while (!compensations.isClosed && performance.now() < retryUntilMs) {
      try {
        return await retry();
      } catch (failure) {
        expectedRedisFailure(failure);
        await compensations.pause(PAUSE_MS);
      }
    }
    compensations.add(() => compensate().then(() => true), ttlMs);
    throw error;
  }
}

/** Prepares `SET key token NX PX ttl` with ambiguous replies resolved. The result says whether the token holds the lock. */
export function defineResolvedSet({ redis }: RedisStore) {
  const { release } = defineTokenScripts(redis);
  return (resource: string, token: string, ttlMs: number, compensations: Compensations): Promise<boolean> => {
    const key = lockKey(resource);
    const write = async () => (await redis.set(key, token, 'PX', ttlMs, 'NX')) === 'OK';
    const retry = async () => (await write()) || (await redis.get(key)) === token;
    const compensate = () => release(resource, token);
    return resolveAmbiguous({ write, retry, compensate, ttlMs, compensations });
  };
}
