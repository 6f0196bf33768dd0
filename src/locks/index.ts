/**
 * The package `@stampede/locks`: the locks of this folder on a caller's own clients. Each function connects; the lock's `close` ends what
 * it opened, never the given client. No client is imported but that of ZooKeeper, when it is used.
 *
 * Each function rejects with a `LockOptionsError` for a mistake in its options, and with a `LockSetupError` when its server cannot be
 * reached or lacks what the lock needs. The latter's `cause` is the error of the client.
 */
import { openIoredis } from './adapters/ioredis.ts';
import { openNodeRedis } from './adapters/node-redis.ts';
import { type Opening, whenConnected } from './adapters/opening.ts';
import * as pg from './adapters/pg.ts';
import type { CallersRedis, PostgresPool } from './callers.ts';
import type { RedisClient } from './clients.ts';
import { type LockHooks, observed } from './hooks.ts';
import { type Lock, LockSetupError } from './lock.ts';
import {
  checkedOptions,
  checkNames,
  DEFAULT_TTL_MS,
  DEFAULT_WAIT_MS,
  type LockDefaults,
  LockOptionsError,
  MAX_MS,
} from './options.ts';
import * as postgresAdvisory from './postgres-advisory.ts';
import * as postgresRow from './postgres-row.ts';
import * as redis from './redis.ts';
import * as redisCas from './redis-cas.ts';
import * as redisFair from './redis-fair.ts';
import * as redisReadWrite from './redis-read-write.ts';
import * as redisSemaphoreOf from './redis-semaphore.ts';
import * as redisWait from './redis-wait.ts';
import * as redlockOf from './redlock.ts';

export { acquireAll, type LeaseOfAll, usingAll } from './all-of.ts';
export type { CallersRedis, Ioredis, NodeRedis, PostgresPool } from './callers.ts';
export type { LockHooks } from './hooks.ts';
export {
  type AcquireResult,
  type Done,
  type Lease,
  LeaseLostError,
  type Lock,
  LockSetupError,
  type NotAcquired,
  NotAcquiredError,
  type ReleaseResult,
  using,
  usingOrThrow,
} from './lock.ts';
export { type AcquireOptions, type CheckedOptions, type LockDefaults, LockOptionsError } from './options.ts';
export { reentrant, type Using } from './reentrant.ts';

/** What every lock takes: defaults for its acquisitions, and hooks. */
export interface LockSettings extends LockDefaults, LockHooks {}

export interface OnRedis extends LockSettings {
  readonly redis: CallersRedis;
}

export interface OnPostgres extends LockSettings {
  readonly pool: PostgresPool;
}

type OnError = NonNullable<LockHooks['onError']>;
const ignore: OnError = () => {};
const SETTINGS = ['ttlMs', 'waitMs', 'onError', 'onAcquire', 'onEnd'];

/** Before anything is opened. @param own names of the options besides those of every lock @throws LockOptionsError */
function checkSettings(given: LockSettings, ...own: string[]): void {
  checkNames('options', given, [...own, ...SETTINGS]);
  const { ttlMs = DEFAULT_TTL_MS, waitMs = DEFAULT_WAIT_MS } = given;
  checkedOptions('defaults', { ttlMs, waitMs }, 1);
}

const isClient = (given: unknown): boolean =>
  typeof (given as Partial<CallersRedis> | undefined)?.duplicate === 'function';

function open(given: CallersRedis, onError: OnError): Opening {
  const report = (error: Error) => onError('redis-connection', error);
  return 'status' in given ? openIoredis(given, report) : openNodeRedis(given, report);
}

/** A lock that also closes what was opened for it, has the defaults, and reports to the hooks. @throws LockOptionsError; it is closed then */
async function configured(
  lock: Lock,
  { ttlMs, waitMs, ...hooks }: LockSettings,
  opened: readonly Pick<RedisClient, 'close'>[] = [],
): Promise<Lock> {
  const close = async () => {
    await lock.close();
    for (const client of opened) await client.close();
  };
  const check: Lock['check'] = (resource, given = {}) => {
    const checked = lock.check(resource, given);
    const own = { ttlMs: given.ttlMs ?? ttlMs, waitMs: given.waitMs ?? waitMs };
    return { ...checked, ttlMs: own.ttlMs ?? checked.ttlMs, waitMs: own.waitMs ?? checked.waitMs };
  };
  try {
    lock.check('defaults', check('defaults'));
  } catch (error) {
    await close();
    throw error;
  }
  const acquire: Lock['acquire'] = async (resource, given) => lock.acquire(resource, check(resource, given));
  return observed({ name: lock.name, check, acquire, close }, hooks);
}

type OnClient = (context: { redis: RedisClient; onError: OnError }) => Promise<Lock>;

async function onRedis(options: OnRedis, create: OnClient, ...own: string[]): Promise<Lock> {
  checkSettings(options, 'redis', ...own);
  const { redis: given, onError = ignore } = options;
  if (!isClient(given)) throw new LockOptionsError('redis', 'a client of ioredis or of node-redis');
  let cause: unknown;
  const noted: OnError = (doing, error) => {
    cause = error; // ioredis rejects with "Connection is closed."
    onError(doing, error);
  };
  try {
    const client = await whenConnected(open(given, noted));
    try {
      return await configured(await create({ redis: client, onError }), options, [client]);
    } catch (error) {
      await client.close();
      throw error;
    }
  } catch (error) {
    if (error instanceof LockOptionsError || error instanceof LockSetupError) throw error;
    cause ??= (error as Error).cause ?? error;
    const { message } = cause as Error;
    throw new LockSetupError(
      `Redis cannot be used (${message}): check its address and the options of the client`,
      { cause },
    );
  }
}

/** One Redis, the recommended lock: reentrant by owner, renewed, fenced, notified, its loss signalled before expiry. */
export const redisLock = (options: OnRedis): Promise<Lock> => onRedis(options, redis.create);

/** First come, first served across processes. */
export const fairLock = (options: OnRedis): Promise<Lock> => onRedis(options, redisFair.create);

/** Readers share, a writer excludes all: `mode` of `acquire`. */
export const readWriteLock = (options: OnRedis): Promise<Lock> => onRedis(options, redisReadWrite.create);

/** Without scripts, on Valkey 9 or Redis 8.4. On any other server it rejects with a LockSetupError. */
export const redisCasLock = (options: OnRedis): Promise<Lock> => onRedis(options, redisCas.create);

/**
 * At most `permits` leases of a resource at once, from 1 on. Every process gives the same number. The leases have no fencing token.
 */
export const redisSemaphore = (options: OnRedis & { readonly permits: number }): Promise<Lock> =>
  onRedis(options, ({ redis }) => redisSemaphoreOf.create({ redis, permits: options.permits }), 'permits');

/**
 * Held only once replicas have it (`WAIT`), so a failover to one of them keeps it.
 * @param options.replicas how many. With fewer than all, a failover can promote one of the others: see docs/explanation/locks.md
 */
export const redisWaitLock = (options: OnRedis & { readonly replicas: number }): Promise<Lock> =>
  onRedis(options, (context) => redisWait.create({ ...context, redisWait: options.replicas }), 'replicas');

/** At least three independent servers. It needs a majority of them at its start; the others are tried until `close`. */
export async function redlock(
  options: LockSettings & { readonly redis: readonly CallersRedis[] },
): Promise<Lock> {
  checkSettings(options, 'redis');
  const { redis: given, onError = ignore } = options;
  if (!Array.isArray(given) || given.length < 3 || !given.every(isClient))
    throw new LockOptionsError('redis', 'an array of clients of at least three independent servers');
  const causes: unknown[] = []; // as in `onRedis`
  const noted =
    (server: number): OnError =>
    (doing, error) => {
      causes[server] = error;
      onError(doing, error);
    };
  const opened = given.map((one, server) => open(one, noted(server)));
  const servers = opened.map(({ client }) => client);
  const tried = await Promise.allSettled(opened.map(({ connected }) => connected));
  const down = tried.flatMap((one, server) =>
    one.status === 'rejected' ? [causes[server] ?? one.reason.cause ?? one.reason] : [],
  );
  if (down.length < given.length / 2)
    return configured(await redlockOf.create({ openRedlock: async () => servers }), options);
  for (const server of servers) await server.close();
  const cause = new AggregateError(down, [...new Set(down.map(({ message }) => message))].join('; '));
  throw new LockSetupError(
    `${down.length} of the ${given.length} servers are unreachable (${cause.message})`,
    { cause },
  );
}

function poolOf(options: OnPostgres) {
  checkSettings(options, 'pool');
  const { pool } = options;
  if (typeof pool?.query !== 'function' || typeof pool.connect !== 'function')
    throw new LockOptionsError('pool', 'a pool of node-postgres');
  return pg.fromPool(pool);
}

/** A row in Postgres with the database's clock and a growing fence. Its table: `createLockRows`. */
export const postgresRowLock = async (options: OnPostgres): Promise<Lock> =>
  configured(await postgresRow.create({ postgres: poolOf(options), onError: options.onError }), options);

/** Creates the table of `postgresRowLock` if there is none. @throws what Postgres answers */
export const createLockRows = (pool: PostgresPool): Promise<void> => pg.createLockRows(pool);

/** An advisory lock of a transaction, on a connection of a separate pool with the settings of the given one. No fencing token. */
export const postgresAdvisoryLock = async (options: OnPostgres): Promise<Lock> =>
  configured(await postgresAdvisory.create({ postgres: poolOf(options) }), options);

export interface OnZookeeper extends LockSettings {
  /** host:port,… */
  readonly servers: string;
  /** The session's timeout, which is the length of each lease, in milliseconds. Default: 10,000. */
  readonly sessionMs?: number;
}

/** Ephemeral nodes in ZooKeeper: a fair queue that a majority of its servers keeps. It needs the package `node-zookeeper-client`. */
export async function zookeeperLock(options: OnZookeeper): Promise<Lock> {
  checkSettings(options, 'servers', 'sessionMs');
  const { servers, sessionMs = 10_000 } = options;
  if (typeof servers !== 'string' || servers === '')
    throw new LockOptionsError('servers', 'a text host:port,…');
  if (!(Number.isInteger(sessionMs) && sessionMs > 0 && sessionMs <= MAX_MS))
    throw new LockOptionsError('sessionMs', `a whole number from 1 to ${MAX_MS}, not ${sessionMs}`);
  const { create } = await import('./zookeeper.ts');
  return configured(await create({ zookeeperUrl: servers, lockTtlMs: sessionMs }), options);
}
