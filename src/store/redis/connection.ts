/**
 * The connection to Redis, and what its errors mean.
 *
 * A command without an answer within `limits.redisCommandMs` fails as *unknown*: it may have run. A command that cannot be
 * sent because the connection is down fails at once as *busy*: it did not run. ioredis is configured neither to queue commands
 * while the connection is down nor to resend them.
 */
import { Redis, type RedisOptions } from 'ioredis';
import { limits } from '../../config/limits.ts';
import { parseRedisUrl, type RedisAddress } from '../../config/redis-url.ts';
import { type StoreClock, storeClock } from '../late-requests.ts';
import { type Replication, waitingFor } from './replication.ts';
import { defineLockScripts } from './script.ts';
import { defineSaleScripts, NOT_SENT, type SaleScripts } from './scripts.ts';

export interface RedisStore {
  readonly redis: Redis;
  readonly scripts: SaleScripts & ReturnType<typeof defineLockScripts>;
  readonly clock: StoreClock;
  /** Null: nothing waits for replicas. */
  readonly replication: Replication | null;
  /** @throws when Redis does not answer. */
  ping(): Promise<void>;
  /** The eviction policy; null when Redis does not report it. Any other policy than `noeviction` loses sales. */
  evictionPolicy(): Promise<string | null>;
  close(): Promise<void>;
}

/**
 * Connects, and reconnects in the background whenever Redis is unreachable.
 * @param replicas that must have an attempt's reservation before it counts: see `REDIS_WAIT`
 * @throws when the first connection fails
 */
export async function openRedis(
  redisUrl: string,
  onError: (error: Error) => void,
  replicas = 0,
): Promise<RedisStore> {
  const address = parseRedisUrl(redisUrl);
  if (typeof address === 'string') throw new Error(`the URL ${address}`);
  const redis = clientOf(address);
  redis.on('error', onError);
  await redis.connect();
  const clock = storeClock(async () => {
    const [seconds, micros] = await redis.time();
    return Number(seconds) * 1_000 + Number(micros) / 1_000;
  });
  redis.on('close', () => clock.invalidate()); // another server, with another clock, may answer next
  return {
    redis,
    clock,
    replication: replicas > 0 ? waitingFor(redis, replicas) : null,
    scripts: { ...defineSaleScripts(redis, clock), ...defineLockScripts(redis) },
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

/** A lost connection is retried soon, because the renewal of a lease may be waiting. */
const retryMs = (times: number) => Math.min(25 * 2 ** Math.min(times, 5), 250);

const CLIENT = {
  lazyConnect: true,
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  commandTimeout: limits.redisCommandMs,
  connectTimeout: limits.redisCommandMs,
  retryStrategy: retryMs,
  // A primary that became a replica accepts no write: find the new primary, or follow the host name to it.
  reconnectOnError: ({ message }: Error) => message.startsWith('READONLY'),
} satisfies RedisOptions;

/**
 * With Sentinel the client asks one Sentinel after the other for the primary. It also subscribes to their `+switch-master`
 * events, so that it leaves an old primary that it still reaches (a split brain) when any Sentinel announces the new one.
 */
function clientOf(address: RedisAddress): Redis {
  if (address.kind === 'server') return new Redis(address.url, CLIENT);
  const { sentinels, service, db, tls, username, password } = address;
  let wasReady = false;
  const redis = new Redis({
    ...CLIENT,
    sentinels: [...sentinels],
    name: service,
    db,
    ...(username !== null && { username }),
    ...(password !== null && { password }),
    ...(tls && { tls: {}, sentinelTLS: {}, enableTLSForSentinelMode: true }),
    failoverDetector: true,
    sentinelCommandTimeout: limits.redisCommandMs,
    // Without Sentinels the first connection fails; a later one is retried for as long as it takes.
    sentinelRetryStrategy: (times) => (wasReady ? retryMs(times) : null),
    sentinelReconnectStrategy: retryMs,
  });
  redis.once('ready', () => {
    wasReady = true;
  });
  return redis;
}

/** What a failed command means for its sender: see postgres/failures.ts. */
export type RedisFailure =
  | { readonly kind: 'busy'; readonly reason: string }
  | { readonly kind: 'unknown'; readonly reason: string }
  | { readonly kind: 'defect'; readonly reason: 'defect'; readonly error: unknown };

/** Replies to a command that did not run: Redis is not ready for it, or this connection may not send it. */
const NOT_RUN =
  /^(?:ERR Error running script.*? -?)?(LOADING|BUSY|UNKILLABLE|OOM|READONLY|MASTERDOWN|NOREPLICAS|CLUSTERDOWN|TRYAGAIN|MISCONF|NOAUTH|WRONGPASS|NOPERM)\b/;
const NO_ANSWER =
  /Command timed out|Connection is closed|aborted due to connection close|Socket timeout|ECONNRESET|ECONNABORTED|EPIPE|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|max retries/i;

/**
 * Classifies an error of ioredis or Redis. Never throws. A defect is a reply that no state of a healthy Redis explains
 * (WRONGTYPE, a script's own error): Redis rejected this command and would accept another one.
 */
export function classifyRedisError(error: unknown): RedisFailure {
  const { message = '', name = '' } = error as Error;
  if (NOT_SENT.test(message)) return { kind: 'busy', reason: 'redis-unreachable' };
  const reply = NOT_RUN.exec(message)?.[1];
  if (reply !== undefined) return { kind: 'busy', reason: `redis-${reply.toLowerCase()}` };
  if (NO_ANSWER.test(message) || name === 'MaxRetriesPerRequestError') {
    return { kind: 'unknown', reason: 'redis-no-answer' };
  }
  return { kind: 'defect', reason: 'defect', error };
}

/** The same for errors that a caller handles. @throws the error itself when it is a defect */
export function expectedRedisFailure(error: unknown): Exclude<RedisFailure, { kind: 'defect' }> {
  const failure = classifyRedisError(error);
  if (failure.kind === 'defect') throw error;
  return failure;
}

export const isRedisDefect = (error: unknown) => classifyRedisError(error).kind === 'defect';
