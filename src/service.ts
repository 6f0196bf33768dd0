/**
 * The composition of one service from a configuration and the URLs of its stores. `main.ts`, `reconcile.ts`, the tests and the
 * bench use it.
 *
 *   openCore: connections, tables, lock, strategy ──▶ createService: pipeline, background work, HTTP ──▶ listen(address)
 *
 * What was started is stopped in reverse order, by `close`, also when a later part cannot start.
 */
import cluster from 'node:cluster';
import type { RequestListener, Server } from 'node:http';
import type { Logger } from 'pino';
import { createLoadShedder, type LoadShedder } from './concurrency/load-shedding.ts';
import { repeatedly, untilNone } from './concurrency/periodic.ts';
import type { Config } from './config/env.ts';
import { StartError } from './config/errors.ts';
import { limits } from './config/limits.ts';
import { openCustomers } from './customers.ts';
import { createApp } from './http/app.ts';
import { type ClientLimits, limitConnections, limitRequests } from './http/client-limits.ts';
import { type Address, listenOn, stopListening } from './http/listen.ts';
import { createHttpServer } from './http/node-server.ts';
import { purchaseListener } from './http/purchase-listener.ts';
import type { Lock } from './locks/lock.ts';
import { type LockContext, locks } from './locks/registry.ts';
import { attemptTally } from './metrics/attempt-tally.ts';
import { type BackgroundHealth, backgroundHealth } from './metrics/background.ts';
import { errorLog } from './metrics/error-log.ts';
import {
  createInstruments,
  type Instruments,
  measureAdmission,
  measureCommitter,
  measureLatch,
} from './metrics/instruments.ts';
import { createLifecycle } from './orders/lifecycle.ts';
import { createOrderCommitter } from './orders/order-committer.ts';
import { createPayments } from './orders/payments.ts';
import { createPurchases, type Pipeline, type Purchases } from './orders/purchase.ts';
import { type ReaperContext, reapOnce, startReaper } from './orders/reservation-reaper.ts';
import { uncommittedOrders } from './orders/uncommitted-orders.ts';
import { ledger } from './points/ledger.ts';
import { reach, type StoreUrls } from './startup.ts';
import { storeOf } from './store/failures.ts';
import { createOutboxRelay, type OutboxRelay } from './store/outbox-relay.ts';
import { addAuditEvent, appendPending, auditHead } from './store/postgres/audit-log.ts';
import { type OrderTable, orderTable } from './store/postgres/orders.ts';
import { openPostgres, type PostgresStore } from './store/postgres/pool.ts';
import { type SaleTable, saleTable } from './store/postgres/sales.ts';
import { missingSettings } from './store/postgres/settings.ts';
import { openRedis, type RedisStore } from './store/redis/connection.ts';
import { redisEpochs } from './store/redis/epochs.ts';
import { strategies } from './strategies/registry.ts';
import type { Strategy } from './strategies/strategy.ts';
import { taskHandlers } from './tasks/handlers.ts';
import { startTasks, type Tasks } from './tasks/tasks.ts';
import { metricsOfAll } from './workers.ts';

/** What was started; stopped in reverse order. */
export class Closers {
  readonly #closers: (() => Promise<unknown>)[] = [];

  add(close: () => Promise<unknown>): void {
    this.#closers.push(close);
  }

  /** @param onError receives what a part throws; the other parts are still stopped */
  async close(onError: (error: unknown) => void): Promise<void> {
    for (const close of this.#closers.splice(0).reverse()) await close().catch(onError);
  }
}

/** Where failures that end no request go. */
export interface Reports {
  readonly instruments: Instruments;
  readonly background: BackgroundHealth;
  /** @param operation such as 'release-reservation' */
  readonly onError: (operation: string, error: unknown, ids?: object) => void;
  readonly onDefect: (error: unknown, request: object) => void;
}

export function createReports(log: Logger): Reports {
  const instruments = createInstruments();
  const logError = errorLog((details, message) => log.error(details, message));
  return {
    instruments,
    onError(operation, err, details = {}) {
      instruments.storeErrors.inc({ store: storeOf(err, operation), operation });
      logError({ err, operation, details, message: `Operation failed: ${operation}` });
    },
    onDefect: (err, request) =>
      logError({ err, operation: 'http-request', details: request, message: 'Unexpected error' }),
    background: backgroundHealth(instruments.registry, {
      failing: (what, err, details) => log.error({ err, ...details }, `Background work failed: ${what}`),
      recovered: (what, details) => log.info(details, `Background work recovered: ${what}`),
    }),
  };
}

/** The stores of a service, and the strategy on them. */
export interface Core {
  readonly postgres: PostgresStore;
  readonly redis: RedisStore;
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
  { databaseUrl, redisUrl }: StoreUrls,
  { instruments, background, onError }: Reports,
  closers: Closers,
): Promise<Core> {
  const connections = limits.postgresPoolSize / config.workers;
  const postgres = openPostgres(databaseUrl, (error) => onError('postgres-connection', error), connections);
  closers.add(() => postgres.close());
  const replicas = config.confirm === 'accepted' ? config.redisWait : 0; // otherwise a commit follows before the answer
  const redis = await reach('Redis', 'REDIS_URL', redisUrl, () =>
    openRedis(redisUrl, (error) => onError('redis-connection', error), replicas),
  );
  closers.add(() => redis.close());
  const lock = await openLock(config, { redis, postgres, onError });
  closers.add(() => lock.close());
  const sales = saleTable(postgres);
  const orders = orderTable(postgres);
  const epochs = redisEpochs(redis, postgres);
  const onBatch = (size: number) => instruments.attemptBatchSize.observe(size);
  const stores = { postgres, redis, epochs, sales, orders };
  const strategy = strategies.get(config.strategy)!.create({ ...config, ...stores, lock, onBatch, onError });
  const outbox =
    strategy.kind === 'reserves'
      ? createOutboxRelay(postgres, strategy.mirror, background.loop('mirror-outbox'))
      : null;
  return { postgres, redis, sales, orders, lock, strategy, outbox };
}

/** @throws StartError naming the variable when the lock's server is not configured, or cannot be used */
async function openLock(
  config: Config,
  parts: Pick<LockContext, 'redis' | 'postgres' | 'onError'>,
): Promise<Lock> {
  const { description, create } = locks.get(config.lock)!;
  const { lockTtlMs, redlockUrls, zookeeperUrl, redisWait } = config;
  const isMissing =
    (description.needs === 'REDLOCK_URLS' && redlockUrls.length === 0) ||
    (description.needs === 'ZOOKEEPER_URL' && zookeeperUrl === null);
  if (isMissing) throw new StartError(`LOCK=${config.lock} needs ${description.needs}: see .env.example.`);
  return create({ ...parts, lockTtlMs, redlockUrls, zookeeperUrl, redisWait }).catch((error: Error) => {
    const message = `LOCK=${config.lock} cannot start: ${error.message}. Check ${description.needs}.`;
    throw new StartError(message, { cause: error });
  });
}

export interface ServiceOptions {
  readonly config: Config;
  readonly urls: StoreUrls;
  readonly log: Logger;
  /** Why the local stores' data is at risk, for /readyz; null: it is not. */
  readonly localDegradation?: () => string | null;
  /** Receives what is started, so that the caller can also stop a service that is still being created. */
  readonly closers?: Closers;
}

export interface Service {
  /** Starts to serve. @returns the port @throws ListenError */
  listen(address: Address): Promise<number>;
  /** Stops everything that was started. Never throws. */
  close(): Promise<void>;
}

/** Composes a service; the reaper has made one pass when it returns. @throws StartError */
export async function createService(options: ServiceOptions): Promise<Service> {
  const { log, closers = new Closers() } = options;
  const close = () => closers.close((err) => log.error({ err }, 'Shutdown step failed'));
  try {
    const server = await compose(options, closers);
    return {
      async listen(requested) {
        server.keepAliveTimeout = 65_000; // longer than the idle time of common proxies, which then close first
        await listenOn(server, requested);
        closers.add(() => stopListening(server));
        const address = server.address();
        return typeof address === 'object' && address !== null ? address.port : requested.port;
      },
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

async function compose(options: ServiceOptions, closers: Closers): Promise<Server> {
  const { config, urls, log } = options;
  const reports = createReports(log);
  const { instruments, background, onError, onDefect } = reports;
  const core = await openCore(config, urls, reports, closers);
  const { postgres, redis, sales, orders, lock, strategy, outbox } = core;
  const policy = await redis.evictionPolicy();
  if (policy !== 'noeviction')
    log.warn({ policy }, 'Redis may evict keys: set maxmemory-policy to noeviction');
  const statements = await missingSettings(postgres.pool).catch(() => []); // it stopped since the migration
  if (statements.length > 0)
    log.warn(
      { statements },
      'A pooler drops settings of the connections to Postgres: run the statements as its user',
    );

  const pipeline = createPipeline(config, core, reports);
  if (pipeline.committer !== null) await runReaper(pipeline, core, reports, log, closers);
  const expiry = background.loop('expiry');
  const lifecycle = createLifecycle({ postgres, orders, outbox, instruments, health: expiry });
  const warn = (message: string, details: object) => log.warn(details, message);
  const payments = createPayments({ ...config, postgres, orders, sales, outbox, instruments, onError, warn });
  closers.add(
    repeatedly(limits.sweepEveryMs, (isStopped) =>
      expiry.step('expire orders', () => untilNone(() => lifecycle.expireDue(), isStopped)),
    ),
  );
  if (outbox !== null)
    closers.add(repeatedly(limits.sweepEveryMs, (isStopped) => untilNone(() => outbox.publish(), isStopped)));
  closers.add(keepAuditLog(postgres, background, log));
  const { purchases, shedder } = openPurchases(config, pipeline, core, reports);
  closers.add(() => purchases.idle());
  const tasks = runTasks(config, core, reports, log);
  closers.add(() => tasks.stop());

  const customers = openCustomers({ config, core, shedder, reports, warn: (message) => log.warn(message) });
  closers.add(() => customers.stop());
  const { callers, ticketing, clientLimits } = customers;

  const app = createApp({
    callers,
    ticketing,
    strategy,
    purchases,
    sales,
    orders,
    lifecycle,
    payments,
    paymentSecrets: config.paymentWebhookSecrets,
    uncommitted: uncommittedOrders(strategy.kind === 'reserves' ? strategy.mirror : null, sales, orders),
    ledger: ledger(postgres, config.pointsGuard === 'lock' ? { ...config, lock } : null),
    tasks,
    adminTokens: config.adminTokens,
    record: (event) => addAuditEvent(postgres.pool, event),
    onUnrecorded: (error) => onError('postgres-audit-answer', error),
    service: describeService(options, core, reports),
    onError: onDefect,
  });
  return httpServer(purchaseListener(purchases, app, onDefect, ticketing?.gate ?? null), clientLimits);
}

function httpServer(listener: RequestListener, clientLimits: ClientLimits): Server {
  const server = createHttpServer(limitRequests(listener, clientLimits));
  limitConnections(server, clientLimits);
  return server;
}

function createPipeline(
  config: Config,
  { postgres, orders, strategy }: Core,
  { instruments, onError }: Reports,
): Pipeline {
  if (strategy.kind === 'commits') return { strategy, committer: null };
  const { mirror } = strategy;
  const committer = createOrderCommitter({ ...config, postgres, orders, mirror, instruments, onError });
  measureCommitter(instruments, committer);
  return { strategy, committer };
}

function openPurchases(
  config: Config,
  pipeline: Pipeline,
  { orders }: Core,
  { instruments, onError }: Reports,
): { readonly purchases: Purchases; readonly shedder: LoadShedder } {
  const { strategy } = pipeline;
  const shedder = createLoadShedder(config.admissionMs, strategy.maxBatch);
  measureAdmission(instruments, shedder);
  if (strategy.kind === 'reserves' && strategy.latch) measureLatch(instruments, strategy.latch);
  const tally = attemptTally(instruments.registry, config.strategy);
  return { purchases: createPurchases({ ...config, pipeline, orders, shedder, tally, onError }), shedder };
}

async function runReaper(
  { strategy, committer }: Extract<Pipeline, { strategy: { kind: 'reserves' } }>,
  { sales, orders }: Core,
  { instruments, background }: Reports,
  log: Logger,
  closers: Closers,
): Promise<void> {
  const context: ReaperContext = {
    mirror: strategy.mirror,
    committer,
    sales,
    orders,
    instruments,
    health: background.loop('reservation-reaper'),
    log: (message, details) => log.warn(details, message),
  };
  if (strategy.latch) closers.add(async () => strategy.latch?.close());
  // Before the first request: another strategy may have sold since this one last ran.
  const counts = await context.health.step('scan sales', () => reapOnce(context));
  if (Object.values(counts ?? {}).some((n) => n > 0))
    log.info(counts, 'Resolved reservations of an earlier process');
  closers.add(startReaper(context));
}

function runTasks(config: Config, { postgres, redis, lock }: Core, reports: Reports, log: Logger): Tasks {
  const { taskPick, lockTtlMs, lockWaitMs } = config;
  const { instruments, background } = reports;
  return startTasks({
    postgres,
    redis,
    lock,
    instruments,
    background,
    taskPick,
    lockTtlMs,
    lockWaitMs,
    handlers: taskHandlers(config, (message, details) => log.info(details, message)),
    log: (message, details) => log.warn(details, message),
  });
}

/** Appends to the audit log, and notes its end in the log, where someone who changes the table cannot change it. */
function keepAuditLog(
  postgres: PostgresStore,
  background: BackgroundHealth,
  log: Logger,
): () => Promise<void> {
  const health = background.loop('audit-log');
  let notedMs = Number.NEGATIVE_INFINITY;
  let noted = '';
  return repeatedly(limits.auditEveryMs, async (isStopped) => {
    await health.step('append', () => untilNone(() => appendPending(postgres), isStopped));
    if (performance.now() - notedMs < limits.auditHeadEveryMs) return;
    const head = await health.step('read the head', () => auditHead(postgres));
    if (head === null) return;
    notedMs = performance.now();
    const text = `${head.id}:${head.hash.toString('hex')}`;
    if (head.id !== '0' && text !== noted) log.info({ head: text }, 'Audit log');
    noted = text;
  });
}

/** What the service reports about itself. */
function describeService(
  { config, localDegradation }: ServiceOptions,
  { postgres, redis }: Core,
  { instruments, background }: Reports,
): Parameters<typeof createApp>[0]['service'] {
  return {
    active: config.strategy,
    lock: config.lock,
    strategies: [...strategies.values()].map((entry) => entry.description),
    locks: [...locks.values()].map((entry) => entry.description),
    instruments,
    metricsOfAll: cluster.isWorker ? metricsOfAll(instruments.registry) : null,
    degraded() {
      const detail = localDegradation?.() ?? null;
      return [...background.degraded(), ...(detail === null ? [] : [{ what: 'local', detail }])];
    },
    checks: { postgres: () => postgres.ping(), redis: () => redis.ping() },
  };
}
