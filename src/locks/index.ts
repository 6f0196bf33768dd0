/**
 * The package `@stampede/locks`: the locks of this folder on a caller's own clients. Each function connects, and rejects when it cannot;
 * the lock's `close` ends what it opened, never the given client. No client is imported but that of ZooKeeper, when it is used.
 */
import { fromIoredis, type Ioredis } from './adapters/ioredis.ts';
import { fromNodeRedis, type NodeRedis } from './adapters/node-redis.ts';
import { fromPool, type PostgresPool } from './adapters/pg.ts';
import type { RedisClient } from './clients.ts';
import { type Lock, LockSetupError } from './lock.ts';
import * as postgresAdvisory from './postgres-advisory.ts';
import * as postgresRow from './postgres-row.ts';
import * as redis from './redis.ts';
import * as redisCas from './redis-cas.ts';
import * as redisFair from './redis-fair.ts';
import * as redisReadWrite from './redis-read-write.ts';
import * as redisWait from './redis-wait.ts';
import * as redlockOf from './redlock.ts';

export { createLockRows } from './adapters/pg.ts';
export {
  type AcquireOptions,
  type AcquireResult,
  type Lease,
  LeaseLostError,
  type Lock,
  LockSetupError,
  using,
} from './lock.ts';

export interface LockHooks {
  /** Receives failures of background work, which no caller waits for. `doing` is an operation's name in kebab case. */
  onError?(doing: string, error: unknown): void;
}

/** A client of ioredis or of node-redis: of one server, of Sentinels or of a cluster. It need not be connected. */
export type CallersRedis = Ioredis | NodeRedis;

export interface OnRedis extends LockHooks {
  readonly redis: CallersRedis;
}

const ignore = () => {};

async function clientOf(
  given: CallersRedis,
  onError: NonNullable<LockHooks['onError']>,
): Promise<RedisClient> {
  const report = (error: Error) => onError('redis-connection', error);
  return 'status' in given ? fromIoredis(given, report) : fromNodeRedis(given, report);
}

/** A lock that also closes what was opened for it. */
function owning(lock: Lock, opened: readonly Pick<RedisClient, 'close'>[]): Lock {
  return {
    name: lock.name,
    acquire: (resource, options) => lock.acquire(resource, options),
    async close() {
      await lock.close();
      for (const client of opened) await client.close();
    },
  };
}

type OnClient = (context: {
  redis: RedisClient;
  onError: NonNullable<LockHooks['onError']>;
}) => Promise<Lock>;

async function onRedis({ redis: given, onError = ignore }: OnRedis, create: OnClient): Promise<Lock> {
  const client = await clientOf(given, onError);
  try {
    return owning(await create({ redis: client, onError }), [client]);
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

/** A majority of at least three independent servers. @throws LockSetupError */
export async function redlock({
  redis: given,
  onError = ignore,
}: LockHooks & { readonly redis: readonly CallersRedis[] }): Promise<Lock> {
  if (given.length < 3) throw new LockSetupError('redlock needs at least three independent servers');
  const opened = await Promise.allSettled(given.map((one) => clientOf(one, onError)));
  const servers = opened.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
  if (servers.length === given.length) return redlockOf.create({ openRedlock: async () => servers });
  for (const server of servers) await server.close();
  throw new LockSetupError(`${given.length - servers.length} of the ${given.length} servers are unreachable`);
}

/** A row in Postgres with the database's clock and a growing fence. Its table: `createLockRows`. */
export const postgresRowLock = ({ pool }: { readonly pool: PostgresPool }): Promise<Lock> =>
  postgresRow.create({ postgres: fromPool(pool) });

/** An advisory lock of a transaction, on a connection of a separate pool with the settings of the given one. No fencing token. */
export const postgresAdvisoryLock = ({ pool }: { readonly pool: PostgresPool }): Promise<Lock> =>
  postgresAdvisory.create({ postgres: fromPool(pool) });

/**
 * Ephemeral nodes in ZooKeeper: a fair queue that a majority of its servers keeps. It needs the package `node-zookeeper-client`.
 * @param options.servers host:port,…
 * @param options.sessionMs the session's timeout, which is the length of each lease
 * @throws if no server answers
 */
export async function zookeeperLock({
  servers,
  sessionMs = 10_000,
}: {
  readonly servers: string;
  readonly sessionMs?: number;
}): Promise<Lock> {
  const { create } = await import('./zookeeper.ts');
  return create({ zookeeperUrl: servers, lockTtlMs: sessionMs });
}
