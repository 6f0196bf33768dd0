/**
 * The composition root: the only file that reads the environment or hears signals.
 *
 *   parse the environment, try the port ──▶ local stores, where none are named ──▶ migrate ──▶ connect ──▶ one recovery pass
 *        │ mistakes: exit 1                                                                                      │
 *        ▼                                                                                                       ▼
 *   (nothing started)      signal or failure, at any moment: what was started is stopped, last first ◀───────── listen
 */
import cluster from 'node:cluster';
import type { Server } from 'node:http';
import closeWithGrace from 'close-with-grace';
import type { Logger } from 'pino';
import { createLoadShedder } from './concurrency/load-shedding.ts';
import { type Config, parseEnv } from './config/env.ts';
import { loadEnvFile } from './config/env-file.ts';
import { OperatorError, StartError } from './config/errors.ts';
import { limits } from './config/limits.ts';
import { createApp } from './http/app.ts';
import { checkAddress, listenOn, stopListening } from './http/listen.ts';
import { createHttpServer } from './http/node-server.ts';
import { purchaseListener } from './http/purchase-listener.ts';
import type { ServiceContext } from './http/routes/service.ts';
import { startLocalStores } from './local/stores.ts';
import { folderCheck, LOCAL_FOLDER } from './local/urls.ts';
import { type LockContext, locks } from './locks/registry.ts';
import { attemptTally } from './metrics/attempt-tally.ts';
import { backgroundHealth } from './metrics/background.ts';
import { errorLog } from './metrics/error-log.ts';
import {
  createInstruments,
  type Instruments,
  measureAdmission,
  measureCommitter,
  measureLatch,
} from './metrics/instruments.ts';
import { createLogger } from './metrics/logger.ts';
import { createLifecycle } from './orders/lifecycle.ts';
import { createOrderCommitter } from './orders/order-committer.ts';
import { createOutboxRelay } from './orders/outbox-relay.ts';
import { createPayments } from './orders/payments.ts';
import { createPurchases, type PurchaseContext, type Purchases } from './orders/purchase.ts';
import { reapOnce, startReaper } from './orders/reservation-reaper.ts';
import { keepSweeping } from './orders/sweep.ts';
import { uncommittedOrders } from './orders/uncommitted-orders.ts';
import { ledger } from './points/ledger.ts';
import { storeOf } from './store/failures.ts';
import { migrate } from './store/postgres/migrate.ts';
import { orderTable } from './store/postgres/orders.ts';
import { openPostgres } from './store/postgres/pool.ts';
import { saleTable } from './store/postgres/sales.ts';
import { openRedis } from './store/redis/connection.ts';
import { redisEpochs } from './store/redis/epochs.ts';
import type { SaleMirror } from './store/redis/sale-mirror.ts';
import { strategies } from './strategies/registry.ts';
import type { Strategy } from './strategies/strategy.ts';
import { taskHandlers } from './tasks/handlers.ts';
import { startTasks, type Tasks, type TasksContext } from './tasks/tasks.ts';
import { metricsOfAll, onStopMessage, startWorkers } from './workers.ts';

/** What was started, in the order of starting; stopped in reverse. */
const closers: (() => Promise<unknown>)[] = [];

async function main(): Promise<void> {
  if (cluster.isPrimary) loadEnvFile(); // workers inherit what it read
  const config = parseEnv(process.env, { strategies: [...strategies.keys()], locks: [...locks.keys()] });
  const log = await createLogger({
    level: config.logLevel,
    worker: cluster.worker?.id ?? null,
    terminal: process.stdout.isTTY ? process.stdout : null,
  });
  if (cluster.isPrimary) warnOfControl(config, log);
  const delay = limits.shutdownMs + 5_000;
  const closing = closeWithGrace({ delay, skip: [...STOP_SIGNALS] }, async ({ err }) => {
    if (err) log.fatal({ err }, 'Stopping after an error');
    await closeAll(log);
  });
  stopOnSignals(() => closing.close(), log);
  try {
    if (config.workers > 1 && cluster.isPrimary) await startAll(config, log);
    else await start(config, log);
  } catch (error) {
    closing.uninstall();
    await closeAll(log);
    throw error;
  }
}

function warnOfControl({ strategy }: Config, log: Logger): void {
  if (strategies.get(strategy)!.description.guarantees.neverOversells) return;
  log.warn(
    { strategy },
    `STRATEGY=${strategy} oversells by design: it is the benchmark's control, not for real sales`,
  );
}

const STOP_SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const;
/** A terminal signals all processes at once, and npm passes on what it got: for so long that is one and the same wish. */
const SAME_WISH_MS = 1_000;

/** The first signal stops this process in order, a later one at once. A worker stops when the first process tells it. */
function stopOnSignals(stop: () => void, log: Logger): void {
  let firstMs: number | null = null;
  if (cluster.isWorker) onStopMessage(stop);
  for (const signal of STOP_SIGNALS) {
    process.on(signal, () => {
      if (cluster.isWorker) return;
      if (firstMs === null) {
        firstMs = performance.now();
        log.info({ signal }, 'Stopping');
        stop();
      } else if (performance.now() - firstMs > SAME_WISH_MS) {
        log.fatal({ signal }, 'Second signal: exiting immediately');
        process.exit(1);
      }
    });
  }
}

async function closeAll(log: Logger): Promise<void> {
  for (const close of closers.splice(0).reverse()) {
    await close().catch((err) => log.error({ err }, 'Shutdown step failed'));
  }
}

/** WORKERS=n: this process finds the stores and starts the others, which serve. */
async function startAll(config: Config, log: Logger): Promise<void> {
  const { databaseUrl, redisUrl } = await findStores(config, log);
  const workers = await startWorkers({
    count: config.workers,
    env: { DATABASE_URL: databaseUrl, REDIS_URL: redisUrl },
    log: (message, details) => log.error(details, message),
    onGiveUp: (error) => {
      throw error; // ends this process in order, and with it what it started
    },
  });
  closers.push(() => workers.stop());
  tellListening(config, workers.port, log);
}

async function start(config: Config, log: Logger): Promise<void> {
  const { databaseUrl, redisUrl } = await findStores(config, log);
  const localFolder = folderCheck(LOCAL_FOLDER, { databaseUrl, redisUrl });
  const instruments = createInstruments();
  const { onError, onUnforeseen, background } = reports(instruments, log);
  const onLost = (err: unknown) => onError('postgres-connection', err);
  const postgres = openPostgres(databaseUrl, onLost, limits.postgresPoolSize / config.workers);
  closers.push(() => postgres.close());
  const redis = await reach('Redis', 'REDIS_URL', redisUrl, () =>
    openRedis(redisUrl, (err) => onError('redis-connection', err)),
  );
  closers.push(() => redis.close());
  const policy = await redis.evictionPolicy();
  if (policy !== 'noeviction')
    log.warn({ policy }, 'Redis may evict keys: set maxmemory-policy to noeviction');

  const sales = saleTable(postgres);
  const orders = orderTable(postgres);
  const lock = await openLock(config, { redis, postgres, onError });
  closers.push(() => lock.close());
  const epochs = redisEpochs(redis, postgres);
  const onBatch = (size: number) => instruments.attemptBatchSize.observe(size);
  const stores = { postgres, redis, epochs, sales, orders };
  const strategy = strategies.get(config.strategy)!.create({ ...config, ...stores, lock, onBatch, onError });
  closers.push(async () => strategy.latch?.close());

  const { mirror } = strategy;
  const writer =
    mirror && createOrderCommitter({ ...config, postgres, orders, mirror, instruments, onError });
  if (mirror && writer) {
    const health = background.loop('recovery');
    await startRecovery({ ...strategy, mirror }, { writer, sales, orders, instruments, health }, log);
  }
  const moves = mirror && createOutboxRelay({ postgres, mirror, background, onError });
  const health = background.loop('expiry');
  const lifecycle = createLifecycle({ postgres, orders, moves, instruments, health });
  const payments = createPayments({ ...config, postgres, orders, moves, instruments });
  closers.push(keepSweeping({ lifecycle, moves }, background));
  const purchases = openPurchases(config, { strategy, orders, writer, onError }, instruments);
  const tasks = runTasks(config, { postgres, redis, lock, instruments, background }, log);

  const app = createApp({
    strategy,
    purchases,
    sales,
    orders,
    lifecycle,
    payments,
    uncommitted: uncommittedOrders(mirror, sales, orders),
    ledger: ledger(postgres),
    tasks,
    adminToken: config.adminToken,
    service: aboutService(config, { postgres, redis, instruments, background, localFolder }),
    onError: onUnforeseen,
  });
  const server = createHttpServer(purchaseListener(purchases, app, onUnforeseen));
  await listen(server, config, log);
}

/** What becomes of failures that end no request. */
function reports(instruments: Instruments, log: Logger) {
  const logError = errorLog((details, message) => log.error(details, message));
  const onError = (operation: string, err: unknown, details: object = {}) => {
    instruments.storeErrors.inc({ store: storeOf(err, operation), operation });
    logError({ err, operation, details, message: `Operation failed: ${operation}` });
  };
  const onUnforeseen = (err: unknown, request: object) =>
    logError({ err, operation: 'http-request', details: request, message: 'Unexpected error' });
  const background = backgroundHealth(instruments.registry, {
    failing: (what, err, details) => log.error({ err, ...details }, `Background work failed: ${what}`),
    recovered: (what, details) => log.info(details, `Background work recovered: ${what}`),
  });
  return { onError, onUnforeseen, background };
}

/** Attempts, and what is measured of them. */
function openPurchases(
  config: Config,
  parts: Pick<PurchaseContext, 'strategy' | 'orders' | 'writer' | 'onError'>,
  instruments: Instruments,
): Purchases {
  const { strategy, writer } = parts;
  if (strategy.latch) measureLatch(instruments, strategy.latch);
  if (writer) measureCommitter(instruments, writer);
  const admission = createLoadShedder(config.admissionMs, strategy.maxBatch);
  measureAdmission(instruments, admission);
  const tally = attemptTally(instruments.registry, config.strategy);
  const purchases = createPurchases({ ...config, ...parts, admission, tally });
  closers.push(() => purchases.idle());
  return purchases;
}

/** What the service tells of itself. */
function aboutService(
  { strategy: active, lock }: Config,
  {
    postgres,
    redis,
    instruments,
    background,
    localFolder,
  }: Pick<TasksContext, 'postgres' | 'redis' | 'instruments' | 'background'> & {
    readonly localFolder: () => string | null;
  },
): ServiceContext {
  return {
    active,
    lock,
    strategies: [...strategies.values()].map((entry) => entry.description),
    locks: [...locks.values()].map((entry) => entry.description),
    instruments,
    metricsOfAll: cluster.isWorker ? metricsOfAll(instruments.registry) : null,
    degraded() {
      const detail = localFolder();
      return [...background.degraded(), ...(detail === null ? [] : [{ what: 'local', detail }])];
    },
    checks: { postgres: () => postgres.ping(), redis: () => redis.ping() },
  };
}

/** @throws StartError naming the variable when the lock's server is not configured */
async function openLock(config: Config, parts: Pick<LockContext, 'redis' | 'postgres' | 'onError'>) {
  const { description, create } = locks.get(config.lock)!;
  const { lockTtlMs, redlockUrls, zookeeperUrl } = config;
  const missing =
    (description.needs === 'REDLOCK_URLS' && redlockUrls.length === 0) ||
    (description.needs === 'ZOOKEEPER_URL' && zookeeperUrl === null);
  if (missing) throw new StartError(`LOCK=${config.lock} needs ${description.needs}: see .env.example.`);
  return create({ ...parts, lockTtlMs, redlockUrls, zookeeperUrl }).catch((error: Error) => {
    const message = `LOCK=${config.lock} cannot start: ${error.message}. Check ${description.needs}.`;
    throw new StartError(message, { cause: error });
  });
}

/** The stores that the environment names, and local ones for those that it does not; with the tables as they must be. */
async function findStores(config: Config, log: Logger): Promise<{ databaseUrl: string; redisUrl: string }> {
  if (cluster.isPrimary) await checkAddress(config);
  const found = await namedStores(config, log);
  if (cluster.isWorker) return found; // the first process has seen to the tables
  const applied = await reach('Postgres', 'DATABASE_URL', found.databaseUrl, () =>
    migrate(found.databaseUrl),
  );
  if (applied.length > 0) log.info({ applied }, 'Applied database migrations');
  return found;
}

async function namedStores(config: Config, log: Logger): Promise<{ databaseUrl: string; redisUrl: string }> {
  const { databaseUrl, redisUrl } = config;
  if (databaseUrl !== null && redisUrl !== null) return { databaseUrl, redisUrl };
  const local = await startLocalStores({
    folder: LOCAL_FOLDER,
    postgres: databaseUrl === null,
    redis: redisUrl === null,
    say: (line) => log.info(line),
  });
  closers.push(() => local.stop());
  return { databaseUrl: databaseUrl ?? local.databaseUrl!, redisUrl: redisUrl ?? local.redisUrl! };
}

/** @throws StartError naming the variable, without its password, when a store does not answer */
async function reach<T>(store: string, variable: string, url: string, connect: () => Promise<T>): Promise<T> {
  try {
    return await connect();
  } catch (cause) {
    const { hostname, port, pathname } = new URL(url);
    const message = (cause as Error).message || String((cause as { code?: unknown }).code ?? cause);
    throw new StartError(
      `Cannot use ${store} at ${hostname}:${port}${pathname}: ${message}\nCheck ${variable}, or leave it empty to have a local ${store} started.`,
      { cause },
    );
  }
}

async function startRecovery(
  strategy: Strategy & { readonly mirror: SaleMirror },
  parts: Pick<Parameters<typeof reapOnce>[0], 'writer' | 'sales' | 'orders' | 'instruments' | 'health'>,
  log: Logger,
): Promise<void> {
  const recovery = {
    ...parts,
    strategy,
    log: (message: string, details: object) => log.warn(details, message),
  };
  // Before the first request: another strategy may have sold since this one last ran.
  const counts = await parts.health.step('look for sales', () => reapOnce(recovery));
  if (Object.values(counts ?? {}).some((n) => n > 0))
    log.info(counts, 'Resolved reservations of an earlier process');
  closers.push(startReaper(recovery));
}

function runTasks(
  config: Config,
  parts: Pick<TasksContext, 'postgres' | 'redis' | 'lock' | 'instruments' | 'background'>,
  log: Logger,
): Tasks {
  const handlers = taskHandlers(config.taskWebhookUrl, (message, details) => log.info(details, message));
  const { taskPick, lockTtlMs, lockWaitMs } = config;
  const warn = (message: string, details: object) => log.warn(details, message);
  const tasks = startTasks({ ...parts, taskPick, lockTtlMs, lockWaitMs, handlers, log: warn });
  closers.push(() => tasks.stop());
  return tasks;
}

async function listen(server: Server, config: Config, log: Logger): Promise<void> {
  server.keepAliveTimeout = 65_000; // longer than the idle time of common proxies, which then close first
  await listenOn(server, config);
  closers.push(() => stopListening(server));
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : config.port;
  if (cluster.isWorker) log.debug({ port }, 'Worker is listening');
  else tellListening(config, port, log);
}

/** Said once, when purchases are served. */
function tellListening({ host, strategy, lock, confirm, workers }: Config, port: number, log: Logger): void {
  log.info(
    { port, host, strategy, lock, confirm, workers, docs: `http://${host}:${port}/docs` },
    'listening',
  );
}

main().catch((error: unknown) => {
  const text = error instanceof OperatorError ? error.message : ((error as Error)?.stack ?? error);
  process.stderr.write(`${text}\n`);
  process.exitCode = 1;
  // Whatever part could not be stopped must not keep a process alive that serves nobody.
  setTimeout(() => process.exit(1), 1_000).unref();
});
