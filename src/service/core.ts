/**
 * The stores, the lock and the strategy of a configuration, and error reporting: the part that `service.ts`, the command `reconcile`, tests
 * and bench share.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { Choices, Config } from '../config/env.ts';
import { StartError } from '../config/errors.ts';
import { limits } from '../config/limits.ts';
import type { RedisClient } from '../locks/clients.ts';
import { observed } from '../locks/hooks.ts';
import type { Lock } from '../locks/lock.ts';
import { type LockContext, locks } from '../locks/registry.ts';
import { errorLog } from '../metrics/error-log.ts';
import { createInstruments, type Instruments } from '../metrics/instruments.ts';
import { type BackgroundHealth, backgroundHealth } from '../metrics/loop-health.ts';
import { storeOf } from '../store/failures/any-store.ts';
import { createOutboxRelay, type OutboxRelay } from '../store/outbox-relay.ts';
import { type OrderTable, orderTable } from '../store/postgres/orders.ts';
import { openPostgres, type PostgresStore } from '../store/postgres/pool.ts';
import { type SaleTable, saleTable } from '../store/postgres/sales.ts';
import { openRedis, type RedisStore } from '../store/redis/connection.ts';
import { redisEpochs } from '../store/redis/epochs.ts';
import { commandsFor } from '../store/redis/permissions.ts';
import { openRedlockServers } from '../store/redis/redlock-servers.ts';
import { strategies } from '../strategies/registry.ts';
import type { Strategy } from '../strategies/strategy.ts';
import { reach, type StoreUrls } from './startup.ts';

/**
 * Stops what was started, in reverse order.
 *
 *   serving ──close()──▶ not ready, still serving ──after `delayMs`──▶ stopping
 */
export class Closers {
  /** Time for load balancers to notice that /readyz is 503, milliseconds. */
  delayMs = 0;
  #isClosing = false;
  readonly #closers: (() => Promise<unknown>)[] = [];
  readonly #stopping = new AbortController();

  /** Whether `close` was called. */
  get isClosing(): boolean {
    return this.#isClosing;
  }

  /** Fires after the delay, before anything is stopped: streams to clients do not end by themselves. */
  get stopping(): AbortSignal {
    return this.#stopping.signal;
  }

  add(close: () => Promise<unknown>): void {
    this.#closers.push(close);
  }

  /** @param onError receives errors; the remaining parts are still stopped */
  async close(onError: (error: unknown) => void): Promise<void> {
    this.#isClosing = true;
    if (this.delayMs > 0) await sleep(this.delayMs);
    this.#stopping.abort();
    for (const close of this.#closers.splice(0).reverse()) await close().catch(onError);
  }
}

/** Reports failures that do not belong to a request. */
export interface Reports {
  readonly instruments: Instruments;
  readonly background: BackgroundHealth;
  /** @param operation such as 'release-reservation' */
  readonly onError: (operation: string, error: unknown, ids?: object) => void;
  readonly onDefect: (error: unknown, request: object) => void;
}

/** @param labels of all metrics */
export function createReports(log: Logger, labels: object = {}): Reports {
  const instruments = createInstruments();
  instruments.registry.setDefaultLabels(labels);
  const logError = errorLog((details, message) => log.error(details, message));
  function report(operation: string, err: unknown, details: object, message: string): void {
    instruments.storeErrors.inc({ store: storeOf(err, operation), operation });
    logError({ err, operation, details, message });
  }
  return {
    instruments,
    onError: (operation, err, details = {}) =>
      report(operation, err, details, `Operation failed: ${operation}`),
    onDefect: (err, request) => report('http-request', err, request, 'Unexpected error'),
    background: backgroundHealth(instruments.registry, {
      failing: (what, err, details) => log.error({ err, ...details }, `Background work failed: ${what}`),
      recovered: (what, details) => log.info(details, `Background work recovered: ${what}`),
    }),
  };
}

export { strategies } from '../strategies/registry.ts';

/** The names that a configuration may use. */
export const choices: Choices = {
  strategies: [...strategies.keys()],
  locks: [...locks.keys()],
  withoutRedis: {
    strategies: [...strategies.keys()].filter(
      (name) => strategies.get(name)!.description.store === 'postgres',
    ),
    locks: [...locks.keys()].filter((name) => locks.get(name)!.description.needs !== 'REDIS_URL'),
  },
};

/** The stores of a service, and the strategy on them. */
export interface Core {
  readonly postgres: PostgresStore;
  /** Null: the service runs on Postgres alone. */
  readonly redis: RedisStore | null;
  readonly sales: SaleTable;
  readonly orders: OrderTable;
  readonly lock: Lock;
  readonly strategy: Strategy;
  /** Null for a strategy without a mirror. */
  readonly outbox: OutboxRelay | null;
}

/** @throws StartError when a store or the lock's server cannot be used */
export async function openCore(
  config: Config,
  urls: StoreUrls,
  reports: Reports,
  closers: Closers,
): Promise<Core> {
  const stores = await connectStores(config, urls, reports, closers);
  if (stores.redis !== null) await checkPermissions(stores.redis, urls.redisUrl!, config);
  return composeCore(config, stores, reports, closers);
}

type Stores = Pick<Core, 'postgres' | 'redis'>;

/** @throws StartError when Redis cannot be reached */
export async function connectStores(
  config: Config,
  { databaseUrl, redisUrl }: StoreUrls,
  { onError }: Pick<Reports, 'onError'>,
  closers: Closers,
): Promise<Stores> {
  const postgres = connectPostgres(databaseUrl, config, onError);
  closers.add(() => postgres.close());
  const redis = redisUrl === null ? null : await connectRedis(redisUrl, config, onError);
  if (redis !== null) closers.add(() => redis.close());
  return { postgres, redis };
}

/** @throws StartError when the lock's server cannot be used */
export async function composeCore(
  config: Config,
  { postgres, redis }: Stores,
  { instruments, background, onError }: Reports,
  closers: Closers,
): Promise<Core> {
  const lock = observed(await openLock(config, { redis, postgres, onError }), {
    onAcquire: ({ lock, kind, waitedMs }) =>
      instruments.lockWaitSeconds.observe({ lock, result: kind }, waitedMs / 1_000),
    onEnd: ({ lock, ended }) => instruments.leasesEnded.inc({ lock, ended }),
  });
  closers.add(() => lock.close());
  const sales = saleTable(postgres, config.currency, config.paymentWindowS);
  const orders = orderTable(postgres);
  const onBatch = (size: number) => instruments.attemptBatchSize.observe(size);
  const inRedis = redis === null ? null : { ...config, redis, epochs: redisEpochs(redis, postgres), lock };
  const context = { ...config, postgres, sales, orders, onBatch, onError };
  const strategy = strategies.get(config.strategy)!.create(context, inRedis);
  const { mirror } = strategy;
  const outbox = mirror && createOutboxRelay(postgres, mirror, background.loop('mirror-outbox'));
  return { postgres, redis, sales, orders, lock, strategy, outbox };
}

/** Nothing connects before the first query. */
export function connectPostgres(url: string, config: Config, onError: Reports['onError']): PostgresStore {
  const connections = limits.postgresPoolSize / config.workers;
  const onConnectionError = (error: unknown) => onError('postgres-connection', error);
  return openPostgres(url, onConnectionError, { ...config, connections });
}

/** @throws StartError when Redis cannot be reached */
export function connectRedis(url: string, config: Config, onError: Reports['onError']): Promise<RedisStore> {
  const replicas = config.confirm === 'accepted' ? config.redisWait : 0; // otherwise a commit follows before the answer
  const onConnectionError = (error: unknown) => onError('redis-connection', error);
  return reach('Redis', 'REDIS_URL', url, () => openRedis(url, onConnectionError, replicas));
}

/** @throws StartError when the user of Redis may not send what the configuration needs */
async function checkPermissions(redis: RedisStore, url: string, config: Config): Promise<void> {
  const missing = await redis.missingRules(commandsFor(config));
  if (missing.length === 0) return;
  const user = /\/\/([^:@/]+):[^@]*@/.exec(url)?.[1] ?? 'default';
  const rules = missing.join(' ');
  throw new StartError(
    `The user of REDIS_URL lacks ${rules}. Run on each server: ACL SETUSER ${user} ${rules}\nAll that the service needs: docs/how-to/deploy.md, "Restrict the Redis user".`,
  );
}

/** @throws StartError naming the variable when the lock's server is not configured, or cannot be used */
export async function openLock(
  config: Config,
  { redis, postgres, onError }: Pick<Core, 'redis' | 'postgres'> & Pick<LockContext, 'onError'>,
): Promise<Lock> {
  const { description, create } = locks.get(config.lock)!;
  const { lockTtlMs, redlockUrls, zookeeperUrl, redisWait } = config;
  const isMissing =
    (description.needs === 'REDIS_URL' && redis === null) ||
    (description.needs === 'REDLOCK_URLS' && redlockUrls.length === 0) ||
    (description.needs === 'ZOOKEEPER_URL' && zookeeperUrl === null);
  if (isMissing) throw new StartError(`LOCK=${config.lock} needs ${description.needs}: see .env.example.`);
  const context: LockContext = {
    redis: redis?.locks as RedisClient, // a lock uses the servers that it needs
    openRedlock: () => openRedlockServers(redlockUrls, onError),
    ...{ postgres, lockTtlMs, zookeeperUrl, redisWait, onError },
  };
  return create(context).catch((error: Error) => {
    const message = `LOCK=${config.lock} cannot start: ${error.message}. Check ${description.needs}.`;
    throw new StartError(message, { cause: error });
  });
}
