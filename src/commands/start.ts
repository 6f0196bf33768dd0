/**
 * The entry point: environment, signals, worker processes.
 *
 *   parse the environment, try the port ──▶ local stores, where none are named ──▶ migrate ──▶ create the service ──▶ listen
 *        │ mistakes: exit 1
 *        ▼
 *   (nothing started)      signal or failure, at any moment: what was started is stopped, last first
 */
import cluster from 'node:cluster';
import { randomBytes } from 'node:crypto';
import closeWithGrace from 'close-with-grace';
import type { Logger } from 'pino';
import { readArguments } from '../config/arguments.ts';
import { type Config, parseEnv, unreadNames } from '../config/env.ts';
import { loadEnvFile } from '../config/env-file.ts';
import { OperatorError } from '../config/errors.ts';
import { limits } from '../config/limits.ts';
import { onStopSignals, type SignalHandlers, STOP_SIGNALS } from '../config/stop-signals.ts';
import { checkAddress, type Ports } from '../http/listen.ts';
import { checkFolder } from '../local/stores.ts';
import { folderCheck, LOCAL_FOLDER } from '../local/urls.ts';
import { createLogger } from '../metrics/logger.ts';
import { Closers, choices } from '../service/core.ts';
import { adminAddressOf, createService } from '../service/service.ts';
import { findStores, prepareStores, type StoreUrls } from '../service/startup.ts';
import { onStopMessage, reportOpening, reportServing, startWorkers } from '../service/workers.ts';
import { strategies } from '../strategies/registry.ts';

const HELP = `npm start starts the service. Its settings are variables of the environment, or of the file .env: PORT=4000 npm start
.env.example lists them, docs/reference/configuration.md explains them.
`;

const closers = new Closers();

async function main(): Promise<void> {
  const { values } = readArguments({ help: { type: 'boolean' } });
  if (values.help) {
    process.stdout.write(HELP);
    return;
  }
  const fileNames = cluster.isPrimary ? loadEnvFile() : []; // workers inherit what it read
  const config = parseEnv(process.env, choices, fileNames);
  const log = await createLogger({
    level: config.logLevel,
    worker: cluster.worker?.id ?? null,
    terminal: process.stdout.isTTY ? process.stdout : null,
  });
  const names = unreadNames(fileNames);
  if (names.length > 0) log.warn({ names }, 'Nothing reads these variables of .env');
  const closeAll = () => closers.close((err) => log.error({ err }, 'Shutdown step failed'));
  const delay = longestStopMs(config) + (config.workers > 1 && cluster.isPrimary ? KILLED_MS : 0);
  let isStopping = false;
  const closing = closeWithGrace({ delay, skip: [...STOP_SIGNALS] }, async ({ err }) => {
    isStopping = true;
    if (err) {
      log.fatal({ err }, 'Stopping after an error');
      closers.delayMs = 0;
    }
    await closeAll();
  });
  const stop = () => {
    if (!isStopping) void closing.close(); // a stop after an error ends as one
  };
  if (cluster.isWorker) onStopMessage(stop);
  onStopSignals(process, cluster.isWorker ? IGNORED : stopping(stop, log));
  try {
    await start(config, log);
  } catch (error) {
    if (isStopping) return; // the stop ended what was starting, and ends this process when it is complete
    isStopping = true;
    closing.uninstall();
    await closeAll();
    throw error;
  }
}

async function start(config: Config, log: Logger): Promise<void> {
  const adminAddress = adminAddressOf(config);
  if (cluster.isPrimary) {
    // First: the service that uses the stores also has its port, and another port would not help.
    if (usesLocalStores(config)) checkFolder(LOCAL_FOLDER);
    await checkAddress(config);
    if (adminAddress !== null) await checkAddress(adminAddress, 'ADMIN_PORT');
  }
  if (config.postgresAlone && cluster.isPrimary) log.info(ALONE);
  const urls = await findStores(config, log, (stop) => closers.add(stop));
  if (cluster.isPrimary) {
    await prepareStores(urls, config, log);
    warnOf(config, log);
  }
  if (config.workers > 1 && cluster.isPrimary) return startAll(config, urls, log);
  const localDegradation = folderCheck(LOCAL_FOLDER, urls);
  const service = await createService({ config, urls, log, localDegradation, closers });
  if (cluster.isWorker) reportOpening();
  const ports = await service.listen();
  if (cluster.isWorker) reportServing(ports);
  else logListening(config, ports, log);
}

const usesLocalStores = ({ databaseUrl, redisUrl, postgresAlone }: Config): boolean =>
  databaseUrl === null || (redisUrl === null && !postgresAlone);

/** The first line without Redis. */
const ALONE =
  'On Postgres alone. STRATEGY=lua npm start runs on Redis, too: docs/how-to/choose-a-strategy.md compares the strategies';

/** WORKERS=n: this process starts the stores and the workers, which serve. */
async function startAll(config: Config, { databaseUrl, redisUrl }: StoreUrls, log: Logger): Promise<void> {
  const ports = await startWorkers({
    count: config.workers,
    stopMs: longestStopMs(config),
    env: withoutFiles({
      ...config.fromFiles, // all workers have the same values, also after a file has changed
      // Workers do not migrate.
      DATABASE_URL: databaseUrl,
      MIGRATION_DATABASE_URL: '',
      REDIS_URL: redisUrl ?? 'none',
      // Their DATABASE_URL does not tell whether Postgres is local.
      TASK_WEBHOOK_URL: config.taskWebhookUrl ?? '',
      EVENT_WEBHOOK_URL: config.eventWebhookUrl ?? '',
      ...sharedTicketKey(config),
    }),
    log: (message, details) => log.error(details, message),
    onGiveUp: (error) => {
      throw error; // ends this process in order, and with it what it started
    },
    onStarting: (stop) => closers.add(stop),
  });
  logListening(config, ports, log);
}

/** So long after the workers that did not end were killed, at most, the first process ends, milliseconds. */
const KILLED_MS = 2_000;

/** With the drain of requests; then what is left is ended. */
const longestStopMs = ({ shutdownDelayMs }: Config): number => shutdownDelayMs + limits.shutdownMs + 5_000;

/** Workers read no files in place of these values. */
const withoutFiles = (env: Readonly<Record<string, string>>): Record<string, string> =>
  Object.fromEntries(
    Object.entries(env).flatMap(([name, value]) => [
      [name, value],
      [`${name}_FILE`, ''],
    ]),
  );

/** Workers accept the tickets of each other. */
function sharedTicketKey({ auth, ticketKeys }: Config): { TICKET_SECRETS?: string } {
  if (auth === null || ticketKeys.length > 0) return {};
  return { TICKET_SECRETS: randomBytes(32).toString('base64') };
}

function warnOf({ strategy, taskWebhookUrl }: Config, log: Logger): void {
  if (taskWebhookUrl === null)
    log.warn('TASK_WEBHOOK_URL is not set: tasks to ship, award and refund wait until it is');
  if (strategies.get(strategy)!.description.guarantees.neverOversells) return;
  const message = `STRATEGY=${strategy} oversells by design: it is the benchmark's control, not for real sales`;
  log.warn({ strategy }, message);
}

function logListening(config: Config, { port, adminPort }: Ports, log: Logger): void {
  const { host, adminHost, strategy, lock, confirm, workers } = config;
  const name = adminPort === null ? host : adminHost;
  const docs = `http://${name.includes(':') ? `[${name}]` : name}:${adminPort ?? port}/docs`;
  const admin = adminPort === null ? {} : { adminPort, adminHost };
  log.info({ port, host, ...admin, strategy, lock, confirm, workers, docs }, 'listening');
}

/** Of a worker, which a terminal signals too: the first process stops it. */
const IGNORED: SignalHandlers = { first() {}, later() {} };

const stopping = (stop: () => void, log: Logger): SignalHandlers => ({
  first(signal) {
    log.info({ signal }, 'Stopping');
    stop();
  },
  later(signal) {
    log.fatal({ signal }, 'Second signal: exiting immediately');
    process.exit(1);
  },
});

main().catch((error: unknown) => {
  const text = error instanceof OperatorError ? error.message : ((error as Error)?.stack ?? error);
  process.stderr.write(`${text}\n`);
  process.exitCode = 1;
  // A part that could not be stopped must not keep the process alive.
  setTimeout(() => process.exit(1), 1_000).unref();
});
