/**
 * A request to Redis whose answer may be lost, settled.
 *
 *   ask ──answered──▶ the answer
 *    └──no answer──▶ ask again, so that what the first one did is found ──answered──▶ the answer
 *                     └──no answer for a while──▶ given up; undone in the background until Redis answers or the TTL
 *                                                 has ended it
 *
 * Not settled: a first request that lingers in the network until after the undoing. What it took ends with its TTL.
 */
import { classifyRedisError, type RedisStore } from '../store/redis.ts';
import { lockKey, type Pauses } from './polling.ts';

/** How long a lost answer is asked for; ioredis needs about 100 ms for a new connection. */
const SETTLE_MS = 1_000;
const PAUSE_MS = 50;

export interface Settling<T> {
  ask(): Promise<T>;
  /** Asks in a way that finds what a lost `ask` did. */
  again(): Promise<T>;
  undo(): Promise<unknown>;
  readonly ttlMs: number;
  readonly pauses: Pauses;
}

/** @throws what `ask` threw when Redis does not tell */
export async function settled<T>({ ask, again, undo, ttlMs, pauses }: Settling<T>): Promise<T> {
  const untilMs = performance.now() + ttlMs;
  try {
    return await ask();
  } catch (error) {
    if (classifyRedisError(error).kind === 'busy') throw error; // it did not run
    const settleUntilMs = performance.now() + SETTLE_MS;
    while (!pauses.closed && performance.now() < settleUntilMs) {
      try {
        return await again();
      } catch (failure) {
        classifyRedisError(failure);
        await pauses.wait(PAUSE_MS);
      }
    }
    void cleanUp();
    throw error;
  }

  async function cleanUp(): Promise<void> {
    // Asked at least once, also when the TTL is over: a request may be on its way.
    do {
      try {
        await undo();
        return;
      } catch {
        await pauses.wait(PAUSE_MS);
      }
    } while (!pauses.closed && performance.now() < untilMs);
  }
}

/** `SET key token NX PX ttl`, settled. @returns whether this token holds the lock now */
export function settledSet(
  { redis, scripts }: RedisStore,
  resource: string,
  token: string,
  ttlMs: number,
  pauses: Pauses,
): Promise<boolean> {
  const key = lockKey(resource);
  const ask = async () => (await redis.set(key, token, 'PX', ttlMs, 'NX')) === 'OK';
  const again = async () => (await ask()) || (await redis.get(key)) === token;
  return settled({ ask, again, undo: () => scripts.unlock(key, token), ttlMs, pauses });
}
