/**
 * The connection to Redis.
 *
 * A command that gets no answer within `limits.redisCommandMs` fails as *unknown*: it may have run. A command that
 * cannot be sent because the connection is down fails at once as *busy*: it did not run. Nothing is queued while
 * the connection is down and nothing is sent twice behind the caller's back.
 */
import { Redis } from 'ioredis';
import { limits } from '../../config/limits.ts';
import { type StoreClock, storeClock, UnansweredError } from '../late-requests.ts';
import {
  defineLockScripts,
  definePurchaseScripts,
  defineUpkeepScripts,
  type LockScripts,
  NOT_SENT,
  type PurchaseScripts,
  type UpkeepScripts,
} from './scripts.ts';

export interface RedisStore {
  readonly redis: Redis;
  readonly scripts: PurchaseScripts & UpkeepScripts & LockScripts;
  readonly clock: StoreClock;
  /** @throws when Redis does not answer. */
  ping(): Promise<void>;
  /** What Redis does when its memory is full; null when it does not tell. Anything but `noeviction` loses sales. */
  evictionPolicy(): Promise<string | null>;
  close(): Promise<void>;
}

/**
 * Connects, and goes on trying in the background when Redis is away.
 * @throws when the first connection cannot be made.
 */
export async function openRedis(redisUrl: string, onError: (error: Error) => void): Promise<RedisStore> {
  const redis = new Redis(redisUrl, {
    lazyConnect: true,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    commandTimeout: limits.redisCommandMs,
    connectTimeout: limits.redisCommandMs,
    retryStrategy: (times) => Math.min(25 * 2 ** Math.min(times, 5), 250), // a lease may depend on it
  });
  redis.on('error', onError);
  await redis.connect();
  const clock = storeClock(async () => {
    const [seconds, micros] = await redis.time();
    return Number(seconds) * 1_000 + Number(micros) / 1_000;
  });
  return {
    redis,
    clock,
    scripts: {
      ...definePurchaseScripts(redis, clock),
      ...defineUpkeepScripts(redis),
      ...defineLockScripts(redis),
    },
    async ping() {
      await redis.ping();
    },
    async evictionPolicy() {
      return /^maxmemory_policy:(\S+)/m.exec(await redis.info('memory'))?.[1] ?? null;
    },
    async close() {
      redis.disconnect();
    },
  };
}

/** What a failed command means for the attempt that sent it. */
export type RedisFailure =
  | { readonly kind: 'busy'; readonly reason: string }
  | {
      readonly kind: 'unknown';
      readonly reason: string;
      /** Until when the command may still be carried out, by Redis's clock: see late-requests.ts; 0: it is not late. */
      readonly lateUntilMs?: number;
    };

/** Replies that say that the command did not run: Redis is not ready for it, or this connection is not allowed to. */
const NOT_RUN =
  /^(?:ERR Error running script.*? -?)?(LOADING|BUSY|UNKILLABLE|OOM|READONLY|MASTERDOWN|NOREPLICAS|CLUSTERDOWN|TRYAGAIN|MISCONF|NOAUTH|WRONGPASS|NOPERM)\b/;
const NO_ANSWER =
  /Command timed out|Connection is closed|aborted due to connection close|Socket timeout|ECONNRESET|ECONNABORTED|EPIPE|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|max retries/i;

/**
 * Sorts an error of ioredis or Redis.
 * @throws the error itself when it is a reply that only a defect explains (WRONGTYPE, a script's own error).
 */
export function classifyRedisError(error: unknown): RedisFailure {
  if (error instanceof UnansweredError) {
    const { lateUntilMs } = error;
    return { kind: 'unknown', reason: 'redis-no-answer', lateUntilMs };
  }
  const { message = '', name = '' } = error as Error;
  if (NOT_SENT.test(message)) return { kind: 'busy', reason: 'redis-unreachable' };
  const reply = NOT_RUN.exec(message)?.[1];
  if (reply !== undefined) return { kind: 'busy', reason: `redis-${reply.toLowerCase()}` };
  if (NO_ANSWER.test(message) || name === 'MaxRetriesPerRequestError') {
    return { kind: 'unknown', reason: 'redis-no-answer' };
  }
  throw error;
}

/** Whether it is none of the failures that a Redis has: it refused this command, and would take another one. */
export function isUnforeseen(error: unknown): boolean {
  try {
    classifyRedisError(error);
    return false;
  } catch {
    return true;
  }
}
