/**
 * A request whose answer may be lost, settled.
 *
 *   ask ──answered──▶ the answer
 *    └──no answer──▶ ask again, so that what the first one did is found ──answered──▶ the answer
 *                     └──no answer for a while──▶ given up; undone in the background until the server answers or the
 *                                                 TTL has ended it
 *
 * Not settled: a first request that lingers in the network until after the undoing. What it took ends with its TTL.
 */
import { setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { expectedRedisFailure, type RedisStore } from '../../store/redis/connection.ts';
import { lockKey } from './keys.ts';

/** How long a lost answer is asked for; ioredis needs about 100 ms for a new connection. */
const SETTLE_MS = 1_000;
const PAUSE_MS = 50;

/** What requests without an answer may have taken, given back in the background. */
export class Settlements {
  readonly #closing = new AbortController();
  readonly #underWay = new Set<Promise<void>>();

  constructor() {
    setMaxListeners(0, this.#closing.signal); // as many as are under way
  }

  get closed(): boolean {
    return this.#closing.signal.aborted;
  }

  /** Ends early when the lock is closed. */
  async pause(ms: number): Promise<void> {
    await sleep(ms, undefined, { signal: this.#closing.signal }).catch(() => {});
  }

  /** Tries until `undo` resolves with true, or the TTL is over: then there is nothing left to give back. */
  undo(undo: () => Promise<boolean>, ttlMs: number): void {
    const work = this.#undo(undo, performance.now() + ttlMs);
    this.#underWay.add(work);
    void work.finally(() => this.#underWay.delete(work));
  }

  async #undo(undo: () => Promise<boolean>, untilMs: number): Promise<void> {
    // Tried at least once, also when the TTL is over: a request may be on its way.
    while (!(await undo().catch(() => false)) && !this.closed && performance.now() < untilMs) {
      await this.pause(PAUSE_MS);
    }
  }

  /** Each is tried once more at most. */
  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all(this.#underWay);
  }
}

export interface Settling<T> {
  ask(): Promise<T>;
  /** Asks in a way that finds what a lost `ask` did. */
  again(): Promise<T>;
  undo(): Promise<unknown>;
  readonly ttlMs: number;
  readonly settlements: Settlements;
}

/** @throws what `ask` threw when Redis does not tell */
export async function settled<T>({ ask, again, undo, ttlMs, settlements }: Settling<T>): Promise<T> {
  try {
    return await ask();
  } catch (error) {
    if (expectedRedisFailure(error).kind === 'busy') throw error; // it did not run
    const settleUntilMs = performance.now() + SETTLE_MS;
    while (!settlements.closed && performance.now() < settleUntilMs) {
      try {
        return await again();
      } catch (failure) {
        expectedRedisFailure(failure);
        await settlements.pause(PAUSE_MS);
      }
    }
    settlements.undo(() => undo().then(() => true), ttlMs);
    throw error;
  }
}

/** `SET key token NX PX ttl`, settled. @returns whether this token holds the lock now */
export function settledSet(
  { redis, scripts }: RedisStore,
  resource: string,
  token: string,
  ttlMs: number,
  settlements: Settlements,
): Promise<boolean> {
  const key = lockKey(resource);
  const ask = async () => (await redis.set(key, token, 'PX', ttlMs, 'NX')) === 'OK';
  const again = async () => (await ask()) || (await redis.get(key)) === token;
  return settled({ ask, again, undo: () => scripts.unlock(key, token), ttlMs, settlements });
}
