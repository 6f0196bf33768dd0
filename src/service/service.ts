/**
 * The composition of one service from a configuration and the URLs of its stores; commands/start.ts starts it.
 *
 *   openCore: connections, tables, lock, strategy ──▶ createService: pipeline, background work, HTTP ──▶ listen
 *
 * What was started is stopped in reverse order, by `close`, also when a later part cannot start.
 */
import cluster from 'node:cluster';
import type { RequestListener, Server } from 'node:http';
import type { Logger } from 'pino';
import { createLoadShedder, type LoadShedder } from '../concurrency/load-shedding.ts';
import type { Config } from '../config/env.ts';
import { limits } from '../config/limits.ts';
import { createAdminTokens } from '../http/admin.ts';
import { createApp } from '../http/app.ts';
import { readAssets } from '../http/assets.ts';
import { limitConnections, limitRequests } from '../http/client-limits.ts';
import type { HttpContext } from '../http/context.ts';
import { type Address, listenOn, type Ports, stopListening } from '../http/listen.ts';
import { createHttpServer } from '../http/node-server.ts';
import { purchaseListener } from '../http/purchase/listener.ts';
import { type Reads, readsFrom } from '../http/reads.ts';
import { openSaleEvents } from '../http/routes/events.ts';
import { closeUnread } from '../http/unread-responses.ts';
import { locks } from '../locks/registry.ts';
import { attemptTally } from '../metrics/attempt-tally.ts';
import {
  measureAdmission,
  measureCommitter,
  measureConnections,
  measureLatch,
} from '../metrics/instruments.ts';
import { createLifecycle } from '../orders/lifecycle.ts';
import { createOrderCommitter, type OrderCommitter } from '../orders/order-committer.ts';
import { createPayments } from '../orders/payments.ts';
import { createPurchases, type Purchases } from '../orders/purchase.ts';
import { createSaleRefunds } from '../orders/sale-refunds.ts';
import { createSettlement } from '../orders/settlement.ts';
import { ledger } from '../points/ledger.ts';
import { addAuditEvent } from '../store/postgres/audit-log.ts';
import { openPostgres } from '../store/postgres/pool.ts';
import { createWaitlist } from '../store/postgres/waitlist.ts';
import { strategies } from '../strategies/registry.ts';
import { startBackground } from './background.ts';
import { Closers, type Core, createReports, openCore, type Reports } from './core.ts';
import { type Customers, openCustomers } from './customers.ts';
import type { StoreUrls } from './startup.ts';
import type { Tracing } from './tracing.ts';
import { metricsOfAll } from './workers.ts';

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
  /** Starts to listen, on ADMIN_PORT first. @throws ListenError */
  listen(): Promise<Ports>;
  /** Stops everything that was started. Never throws. */
  close(): Promise<void>;
}

/** `main` is for customers, `admin` for administrators; null: `main` serves both. */
interface Servers {
  readonly main: Server;
  readonly admin: Server | null;
}

/** Composes a service; the reaper has made one pass when it returns. @throws StartError */
export async function createService(options: ServiceOptions): Promise<Service> {
  const { config, log, closers = new Closers() } = options;
  const close = () => closers.close((err) => log.error({ err }, 'Shutdown step failed'));
  const listening: Server[] = [];
  async function listenAt(server: Server, requested: Address, variable?: string): Promise<number> {
    server.keepAliveTimeout = 65_000; // longer than the idle time of common proxies, which then close first
    await listenOn(server, requested, variable);
    listening.push(server);
    const address = server.address();
    return typeof address === 'object' && address !== null ? address.port : requested.port;
  }
  try {
    const { main, admin } = await compose(options, closers);
    return {
      async listen() {
        // Together: each may take as long as a stop has.
        closers.add(() => Promise.all(listening.map(stopListening)));
        const adminAddress = adminAddressOf(config);
        const adminPort = admin === null ? null : await listenAt(admin, adminAddress!, 'ADMIN_PORT');
        return { port: await listenAt(main, config), adminPort };
      },
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Null: administrators use the address of customers. */
export const adminAddressOf = ({ adminPort, adminHost }: Config): Address | null =>
  adminPort === null ? null : { port: adminPort, host: adminHost };

async function compose(options: ServiceOptions, closers: Closers): Promise<Servers> {
  const { config, urls, log } = options;
  const reports = createReports(log);
  const { instruments, onError, onDefect } = reports;
  const core = await openCore(config, urls, reports, closers);
  const { postgres, redis, sales, lock, strategy } = core;
  const tracing = await openTracing(config, core, reports, closers);

  const committer = createCommitter(config, core, reports, tracing);
  const expiry = reports.background.loop('expiry');
  const lifecycle = createLifecycle({ ...core, instruments, health: expiry });
  const refunding = reports.background.loop('refunds');
  const refunds = createSaleRefunds({ ...core, instruments, health: refunding });
  const background = { config, core, committer, lifecycle, expiry, refunds, refunding, reports, log };
  const tasks = await startBackground(background, closers);
  const { shedder, ...opened } = openPurchases(config, committer, core, reports);
  const purchases = tracing?.purchases(opened.purchases) ?? opened.purchases;
  closers.add(() => purchases.idle());
  const warn = (message: string, details: object = {}) => log.warn(details, message);
  const reads = openReads(urls, core, reports, closers, tracing);
  const customers = await openCustomers({ config, redis, postgres, reads, shedder, reports, warn });
  closers.add(() => customers.stop());

  return openServers(config, customers, tracing, {
    ticketing: customers.ticketing,
    saleEvents: openSaleEvents(reads.sales, closers.stopping, (error) => onError('watch-sales', error)),
    clientLimits: customers.clientLimits,
    assets: readAssets(),
    stopping: closers.stopping,
    onStoreError: onError,
    strategy,
    purchases,
    sales,
    reads,
    lifecycle,
    refunds,
    waitlist: config.events.includes('sale.units-returned') ? createWaitlist(postgres) : null,
    payments: createPayments({
      ...config,
      ...core,
      uncommitted: reads.uncommitted,
      instruments,
      onError,
      warn,
    }),
    paymentSecrets: config.paymentWebhookSecrets,
    currency: config.currency,
    ledger: ledger(postgres, config.pointsGuard === 'lock' ? { ...config, lock } : null),
    tasks,
    record: (event) => addAuditEvent(postgres.pool, event),
    onUnrecorded: (error) => onError('postgres-audit-answer', error),
    service: describeService(options, core, reports),
    onError: onDefect,
  });
}

/** With ADMIN_PORT, the main server has no administrative routes and accepts no administrator's token. */
function openServers(
  config: Config,
  { callersWith, clientLimits }: Customers,
  tracing: Tracing | null,
  context: Omit<HttpContext, 'callers' | 'adminTokens'>,
): Servers {
  const { adminPort } = config;
  const adminTokens = createAdminTokens(config.adminTokens);
  const all = createApp({ ...context, callers: callersWith(adminTokens), adminTokens });
  const forCustomers = () => createApp({ ...context, callers: callersWith(null), adminTokens: null });
  const app = adminPort === null ? all : forCustomers();
  const { purchases, ticketing, onError } = context;
  const listener = purchaseListener(purchases, app, onError, ticketing?.gate ?? null);
  const traced = (to: RequestListener) => tracing?.requests(to) ?? to;
  const main = createHttpServer(limitRequests(traced(listener), clientLimits));
  limitConnections(main, clientLimits);
  closeUnread(main, clientLimits);
  measureConnections(context.service.instruments, main);
  if (adminPort === null) return { main, admin: null };
  const admin = createHttpServer(traced(all));
  closeUnread(admin, clientLimits);
  admin.maxConnections = Math.min(admin.maxConnections, limits.adminConnections);
  return { main, admin };
}

function openReads(
  { databaseUrl }: StoreUrls,
  { strategy }: Core,
  { onError }: Reports,
  closers: Closers,
  tracing: Tracing | null,
): Reads {
  const onConnectionError = (error: unknown) => onError('postgres-read-connection', error);
  const postgres = openPostgres(databaseUrl, onConnectionError, { connections: limits.readPoolSize });
  closers.add(() => postgres.close());
  tracing?.postgres(postgres.pool);
  return readsFrom(postgres, strategy.mirror);
}

/** Null: the strategy commits by itself. */
function createCommitter(
  config: Config,
  { postgres, orders, strategy: { mirror } }: Core,
  { instruments, onError }: Reports,
  tracing: Tracing | null,
): OrderCommitter | null {
  if (mirror === null) return null;
  const committer = createOrderCommitter({ ...config, postgres, orders, mirror, instruments, onError });
  measureCommitter(instruments, committer);
  return tracing?.committer(committer) ?? committer;
}

/** Loads OpenTelemetry if traces are exported. */
async function openTracing(
  config: Config,
  { postgres, redis }: Core,
  { onError }: Reports,
  closers: Closers,
): Promise<Tracing | null> {
  if (config.otlpEndpoint === null) return null;
  const { startTracing } = await import('./tracing.ts');
  const tracing = startTracing(config, (error) => onError('send-traces', error));
  closers.add(() => tracing.stop());
  tracing.postgres(postgres.pool);
  if (redis !== null) tracing.redis(redis);
  return tracing;
}

function openPurchases(
  config: Config,
  committer: OrderCommitter | null,
  { postgres, orders, strategy }: Core,
  { instruments, onError }: Reports,
): { readonly purchases: Purchases; readonly shedder: LoadShedder } {
  const { mirror, knownSoldOut, maxBatch } = strategy;
  const shedder = createLoadShedder(config.admissionMs, maxBatch);
  measureAdmission(instruments, shedder);
  if (knownSoldOut) measureLatch(instruments, knownSoldOut);
  const tally = attemptTally(instruments.registry, config.strategy);
  const settlement =
    mirror === null || committer === null
      ? null
      : createSettlement({ ...config, mirror, committer, postgres, orders, onError });
  return { purchases: createPurchases({ strategy, settlement, shedder, tally }), shedder };
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
    checks: { postgres: () => postgres.ping(), ...(redis !== null && { redis: () => redis.ping() }) },
  };
}
