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
import type { Config } from '../config/env.ts';
import { StartError } from '../config/errors.ts';
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
import { measureConnections, measureProcess } from '../metrics/instruments.ts';
import { ledger } from '../points/ledger.ts';
import { addAuditEvent } from '../store/postgres/audit-log.ts';
import { cellDirectory } from '../store/postgres/cells.ts';
import { openPostgres } from '../store/postgres/pool.ts';
import { strategies } from '../strategies/registry.ts';
import { type AroundClaims, startBackground } from './background.ts';
import { type CellParts, overCells } from './cells.ts';
import { Closers, type Core, createReports, openCore, type Reports } from './core.ts';
import { type Customers, openCustomers } from './customers.ts';
import { createPipeline } from './pipeline.ts';
import type { StoreUrls } from './startup.ts';
import type { Tracing } from './tracing.ts';
import { metricsOf } from './worker-metrics.ts';
import { metricsOfAll } from './workers.ts';

export interface ServiceOptions {
  readonly config: Config;
  readonly urls: StoreUrls;
  readonly log: Logger;
  /** Why the local stores' data is at risk, for /readyz; null: it is not. */
  readonly localDegradation?: () => string | null;
  /** For the benchmark, which compares claims of tasks under a lock. */
  readonly aroundClaims?: AroundClaims;
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
        const port = await listenAt(main, config);
        closers.delayMs = config.shutdownDelayMs;
        return { port, adminPort };
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
  const { onError, onDefect } = reports;
  measureProcess(reports.instruments);
  const tracing = await openTracing(config, reports, closers);
  const databaseUrls = [urls.databaseUrl, ...config.cellDatabaseUrls];
  const isOne = databaseUrls.length === 1;
  const cells: Cell[] = [];
  for (const [cell, databaseUrl] of databaseUrls.entries()) {
    const one = { ...options, urls: { ...urls, databaseUrl }, log: isOne ? log : log.child({ cell }) };
    cells.push(await openCell(one, isOne ? reports : createReports(one.log, { cell }), closers, tracing));
  }
  const first = cells[0]!;
  const directory = cellDirectory(first.core.postgres, cells.length);
  return openServers(config, first.customers, tracing, {
    ...(isOne ? first : overCells(cells, directory)),
    clientLimits: first.customers.clientLimits,
    assets: readAssets(),
    stopping: closers.stopping,
    onStoreError: onError,
    paymentSecrets: config.paymentWebhookSecrets,
    currency: config.currency,
    paymentWindowS: config.paymentWindowS,
    confirm: config.confirm,
    onUnrecorded: (error) => onError('postgres-audit-answer', error),
    service: describeService({ ...options, closers }, cells, reports),
    onError: onDefect,
  });
}

interface Cell extends CellParts {
  readonly core: Core;
  readonly customers: Customers;
  readonly reports: Reports;
}

/** All that works on one Postgres. */
async function openCell(
  options: ServiceOptions,
  reports: Reports,
  closers: Closers,
  tracing: Tracing | null,
): Promise<Cell> {
  const { config, urls, log, aroundClaims } = options;
  const core = await openCore(config, urls, reports, closers);
  await core.strategy.ready?.catch(() => {});
  if (config.confirm === 'accepted') await refuseLimited(core);
  const { postgres, redis, sales, strategy } = core;
  tracing?.postgres(postgres.pool);
  if (redis !== null) tracing?.redis(redis);

  const warn = (message: string, details: object = {}) => log.warn(details, message);
  const reads = openReads(options, core, reports, closers, tracing);
  const { uncommitted } = reads;
  const traced = tracing?.committer;
  const pipeline = createPipeline({ config, core, reports, uncommitted, warn, ...(traced && { traced }) });
  const { shedder } = pipeline;
  const tasks = await startBackground({ config, core, pipeline, reports, log, aroundClaims }, closers);
  const purchases = tracing?.purchases(pipeline.purchases) ?? pipeline.purchases;
  closers.add(() => purchases.idle());
  const customers = await openCustomers({ config, redis, postgres, shedder, reports, warn });
  closers.add(() => customers.stop());
  return {
    ...pipeline,
    ...{ core, customers, reports, strategy, purchases, sales, reads, tasks },
    ticketing: customers.ticketing,
    saleEvents: openSaleEvents(reads.sales, closers.stopping, (error) =>
      reports.onError('watch-sales', error),
    ),
    ledger: ledger(postgres),
    record: (event) => addAuditEvent(postgres.pool, event),
  };
}

/** @throws StartError when a sale limits its customers: a commit checks that, after a 202 */
async function refuseLimited({ sales }: Core): Promise<void> {
  const sale = await sales.limited();
  if (sale === null) return;
  throw new StartError(
    `CONFIRM=accepted: sale ${sale.id} has a limitGroup, and the commit checks its limit. End the sale, or use CONFIRM=durable.`,
  );
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
  { config, urls }: Pick<ServiceOptions, 'config' | 'urls'>,
  { strategy }: Core,
  { onError }: Reports,
  closers: Closers,
  tracing: Tracing | null,
): Reads {
  const onConnectionError = (error: unknown) => onError('postgres-read-connection', error);
  const postgres = openPostgres(urls.databaseUrl, onConnectionError, { connections: limits.readPoolSize });
  closers.add(() => postgres.close());
  tracing?.postgres(postgres.pool);
  return readsFrom(postgres, strategy.mirror, config.currency);
}

/** Loads OpenTelemetry if traces are exported. */
async function openTracing(config: Config, { onError }: Reports, closers: Closers): Promise<Tracing | null> {
  if (config.otlpEndpoint === null) return null;
  const { startTracing } = await import('./tracing.ts');
  const tracing = startTracing(config, (error) => onError('send-traces', error));
  closers.add(() => tracing.stop());
  return tracing;
}

/** What the service reports about itself. @param reports of what all cells share */
function describeService(
  { config, localDegradation, closers }: ServiceOptions,
  cells: readonly Cell[],
  { instruments, background }: Reports,
): Parameters<typeof createApp>[0]['service'] {
  const isDivided = cells.length > 1;
  const own = isDivided ? cells : [];
  const registries = [instruments, ...own.map(({ reports }) => reports.instruments)].map(
    (one) => one.registry,
  );
  const ofCells = () =>
    own.flatMap(({ reports }, cell) =>
      reports.background.degraded().map(({ what, detail }) => ({ what: `cell ${cell}: ${what}`, detail })),
    );
  const checks = cells.map(({ core: { postgres } }, cell) => [
    cell === 0 ? 'postgres' : `postgres-${cell}`,
    () => postgres.ping(),
  ]);
  const { redis } = cells[0]!.core;
  return {
    active: config.strategy,
    lock: config.lock,
    strategies: [...strategies.values()].map((entry) => entry.description),
    locks: [...locks.values()].map((entry) => entry.description),
    instruments,
    metricsOfAll: cluster.isWorker ? metricsOfAll(registries) : isDivided ? metricsOf(registries) : null,
    degraded() {
      const detail = localDegradation?.() ?? null;
      const local = detail === null ? [] : [{ what: 'local', detail }];
      return [...background.degraded(), ...ofCells(), ...local];
    },
    isStopping: () => closers?.isClosing === true,
    isDivided,
    checks: { ...Object.fromEntries(checks), ...(redis !== null && { redis: () => redis.ping() }) },
  };
}
