/**
 * The package `@stampede/locks`: the locks of this folder on a caller's own clients. Each function connects, and rejects when it cannot;
 * the lock's `close` ends what it opened, never the given client. No client is imported but that of ZooKeeper, when it is used.
 */
import { openIoredis } from './adapters/ioredis.ts';
import { openNodeRedis } from './adapters/node-redis.ts';
import { type Opening, whenConnected } from './adapters/opening.ts';
import * as pg from './adapters/pg.ts';
import type { CallersRedis, PostgresPool } from './callers.ts';
import type { RedisClient } from './clients.ts';
import { type LockHooks, observed } from './hooks.ts';
import { type Lock, LockSetupError } from './lock.ts';
import * as postgresAdvisory from './postgres-advisory.ts';
import * as postgresRow from './postgres-row.ts';
import * as redis from './redis.ts';
import * as redisCas from './redis-cas.ts';
import * as redisFair from './redis-fair.ts';
import * as redisReadWrite from './redis-read-write.ts';
import * as redisWait from './redis-wait.ts';
import * as redlockOf from './redlock.ts';

export { acquireAll, type LeaseOfAll, usingAll } from './all-of.ts';
export type { CallersRedis, Ioredis, NodeRedis, PostgresPool } from './callers.ts';
export type { LockHooks } from './hooks.ts';
export {
  type AcquireOptions,
  type AcquireResult,
  type Done,
  type Lease,
  LeaseLostError,
  type Lock,
  LockSetupError,
  type NotAcquired,
  type ReleaseResult,
  using,
} from './lock.ts';
export { reentrant, type Using } from './reentrant.ts';

export interface OnRedis extends LockHooks {
  readonly redis: CallersRedis;
}

export interface OnPostgres extends LockHooks {
  readonly pool: PostgresPool;
}

type OnError = NonNullable<LockHooks['onError']>;
const ignore: OnError = () => {};

function open(given: CallersRedis, onError: OnError): Opening {
  const report = (error: Error) => onError('redis-connection', error);
  return 'status' in given ? openIoredis(given, report) : openNodeRedis(given, report);
}

/** A lock that also closes what was opened for it, and reports to the hooks. */
function owning(lock: Lock, opened: readonly Pick<RedisClient, 'close'>[], hooks: LockHooks): Lock {
  const reporting = observed(lock, hooks);
  return {
    name: lock.name,
    acquire: (resource, options) => reporting.acquire(resource, options),
    async close() {
      await lock.close();
      for (const client of opened) await client.close();
    },
  };
}

type OnClient = (context: { redis: RedisClient; onError: OnError }) => Promise<Lock>;

async function onRedis({ redis: given, ...hooks }: OnRedis, create: OnClient): Promise<Lock> {
  const { onError = ignore } = hooks;
  const client = await whenConnected(open(given, onError));
  try {
    return owning(await create({ redis: client, onError }), [client], hooks);
  } catch (error) {
    await client.close();
    throw error;
  }
}

/** One Redis, the recommended lock: reentrant by owner, renewed, fenced, notified, its loss signalled before expiry. */
export const redisLock = (options: OnRedis): Promise<Lock> => onRedis(options, redis.create);

/** First come, first served across processes. */
export const fairLock = (options: OnRedis): Promise<Lock> => onRedis(options, redisFair.create);

/** Readers share, a writer excludes all: `mode` of `acquire`. */
export const readWriteLock = (options: OnRedis): Promise<Lock> => onRedis(options, redisReadWrite.create);

/** Without scripts, on Valkey 9 or Redis 8.4. @throws LockSetupError on any other server */
export const redisCasLock = (options: OnRedis): Promise<Lock> => onRedis(options, redisCas.create);

/**
 * Held only once replicas have it (`WAIT`), so a failover to one of them keeps it.
 * @param options.replicas how many; by default so many that they are, with the primary, a majority
 */
export const redisWaitLock = ({
  replicas = 0,
  ...options
}: OnRedis & { readonly replicas?: number }): Promise<Lock> =>
  onRedis(options, (context) => redisWait.create({ ...context, redisWait: replicas }));

/** At least three independent servers. @throws LockSetupError when a majority is unreachable; the others are tried until `close` */
export async function redlock({
  redis: given,
  ...hooks
}: LockHooks & { readonly redis: readonly CallersRedis[] }): Promise<Lock> {
  if (given.length < 3) throw new LockSetupError('redlock needs at least three independent servers');
  const opened = given.map((one) => open(one, hooks.onError ?? ignore));
  const servers = opened.map(({ client }) => client);
  const tried = await Promise.allSettled(opened.map(({ connected }) => connected));
  const down = tried.filter(({ status }) => status === 'rejected').length;
  if (down < given.length / 2)
    return observed(await redlockOf.create({ openRedlock: async () => servers }), hooks);
  for (const server of servers) await server.close();
  throw new LockSetupError(`${down} of the ${given.length} servers are unreachable`);
}

/** A row in Postgres with the database's clock and a growing fence. Its table: `createLockRows`. */
export const postgresRowLock = async ({ pool, ...hooks }: OnPostgres): Promise<Lock> =>
  observed(await postgresRow.create({ postgres: pg.fromPool(pool) }), hooks);

/** Creates the table of `postgresRowLock` if there is none. @throws what Postgres answers */
export const createLockRows = (pool: PostgresPool): Promise<void> => pg.createLockRows(pool);

/** An advisory lock of a transaction, on a connection of a separate pool with the settings of the given one. No fencing token. */
export const postgresAdvisoryLock = async ({ pool, ...hooks }: OnPostgres): Promise<Lock> =>
  observed(await postgresAdvisory.create({ postgres: pg.fromPool(pool) }), hooks);

/**
 * Ephemeral nodes in ZooKeeper: a fair queue that a majority of its servers keeps. It needs the package `node-zookeeper-client`.
 * @param options.servers host:port,…
 * @param options.sessionMs the session's timeout, which is the length of each lease
 * @throws if no server answers
 */
export async function zookeeperLock({
  servers,
  sessionMs = 10_000,
  ...hooks
}: LockHooks & { readonly servers: string; readonly sessionMs?: number }): Promise<Lock> {
  const { create } = await import('./zookeeper.ts');
  return observed(await create({ zookeeperUrl: servers, lockTtlMs: sessionMs }), hooks);
}
