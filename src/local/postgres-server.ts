/**
 * A Postgres on loopback, as a child process.
 *
 *   starting ──"ready" in postmaster.pid, with the child's pid──▶ ready ──stop/kill──▶ ended
 *      ├─ port in use: retry with another port, a few times (not for a fixed port)
 *      ├─ old backends still hold the shared memory: retry until they have exited
 *      └─ exited: error with the last lines of its log
 *
 * Readiness is read from postmaster.pid, because another process that took the port could answer a connection.
 */
import { readFileSync, realpathSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { LocalStoreError } from './errors.ts';
import { stopOrphans } from './orphans.ts';
import { type PostgresBinaries, preparePostgresBinaries } from './postgres-binaries.ts';
import { POSTGRES_USER, prepareDataFolder, recoveryAdvice } from './postgres-data.ts';
import { ensureDatabase, urlOf } from './postgres-roles.ts';
import { findServers, markOf } from './processes.ts';
import { readOrCreateSecret } from './secret.ts';
import { chooseAccount, createDataFolder, pathWithin, type ServerAccount } from './server-account.ts';
import { freePort, launch, type ServerProcess } from './server-process.ts';
import type { Watcher } from './watcher.ts';

const START_TIMEOUT_MS = 60_000; // crash recovery of a large WAL is slow, and kill -9 is common here
const STOP_TIMEOUT_MS = 15_000;
const PORT_TRIES = 5;
const OLD_BACKENDS_TRIES = 40;

export interface PostgresOptions {
  /** Contains data, log, and the password when none is given. Created when missing. */
  readonly folder: string;
  /** A fixed port; by default a free port, chosen at each start. */
  readonly port?: number;
  /** Appended to the server's command line, such as `-c fsync=off`. */
  readonly args?: readonly string[];
  readonly password?: string;
  /** By default those of the npm package. */
  readonly binaries?: PostgresBinaries;
  /** Its log; by default in the folder. */
  readonly log?: string;
  /** Additions to the server's environment. */
  readonly environment?: Readonly<Record<string, string>>;
  readonly say?: (line: string) => void;
  /** Stops the server when this process is killed. */
  readonly watcher?: Watcher;
}

/** A running Postgres. */
export interface PostgresServer {
  readonly port: number;
  readonly pid: number;
  /** Resolves with a description of how it ended, for any cause. */
  readonly ended: Promise<string>;
  /** The URL of a database, `stampede` unless named. The user is the superuser. */
  url(database?: string): string;
  /** The last lines of its log. */
  tail(): string;
  /** Fast shutdown: open transactions are rolled back, committed data is on disk. */
  stop(): Promise<void>;
  /** SIGKILL, like a power failure. */
  kill(): Promise<void>;
}

interface Prepared {
  readonly folder: string;
  readonly log: string;
  readonly data: string;
  readonly program: string;
  readonly account: ServerAccount;
  readonly password: string;
}

const dataFolder = (folder: string) => join(realpathSync(folder), 'data');

/** Stops an orphaned Postgres that still runs on the folder. */
export async function stopOrphanedPostgres(folder: string, say: (line: string) => void): Promise<void> {
  const path = dataFolder(folder);
  await stopOrphans({ name: 'Postgres', programs: ['postgres'], path, signal: 'SIGINT', say });
}

/** Finds the program and the account of a server. @param folder the server's data is in a subfolder @throws LocalStoreError */
async function findPostgres(folder: string, binaries?: PostgresBinaries) {
  const { server, major } = binaries ?? (await preparePostgresBinaries());
  return { ...(await chooseAccount({ server: 'Postgres', folder, program: server })), major };
}

async function prepare(options: PostgresOptions): Promise<Prepared> {
  createDataFolder(options.folder);
  const folder = realpathSync(options.folder);
  const running = findServers(['postgres'], dataFolder(folder))[0];
  if (running !== undefined) {
    throw new LocalStoreError('folder-in-use', `A Postgres (pid ${running.pid}) already runs on ${folder}.`);
  }
  const password = options.password ?? readOrCreateSecret(folder);
  const { account, program, major } = await findPostgres(join(folder, '..'), options.binaries);
  const data = await prepareDataFolder({
    folder,
    initdb: join(dirname(program), 'initdb'),
    major,
    account,
    password,
    sync: !(options.args ?? []).includes('fsync=off'),
    say: options.say ?? (() => {}),
    ...(options.watcher && { watcher: options.watcher }),
  });
  return { folder, log: options.log ?? join(folder, 'postgres.log'), data, program, account, password };
}

function settings({ folder, data, account }: Prepared, port: number, args: readonly string[]): string[] {
  const values = {
    listen_addresses: '127.0.0.1',
    unix_socket_directories: '', // their paths are limited to 107 bytes, and TCP on loopback suffices
    max_connections: '200',
    shared_buffers: '128MB',
    log_destination: 'stderr',
    logging_collector: 'off',
    lc_messages: 'C',
  };
  const flags = Object.entries(values).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  // Its command line may not name its folder otherwise. Postgres accepts any setting with a dot.
  const mark = `stampede.folder=${markOf(dataFolder(folder))}`;
  return ['-D', pathWithin(data, account), '-p', String(port), '-c', mark, ...flags, ...args];
}

function isReady(data: string, pid: number): boolean {
  try {
    const lines = readFileSync(join(data, 'postmaster.pid'), 'utf8').split('\n');
    return Number(lines[0]) === pid && lines[7]?.trim() === 'ready';
  } catch {
    return false;
  }
}

type Start = { server: ServerProcess; port: number } | 'port-taken' | 'old-backends';

async function startOnce(prepared: Prepared, port: number, options: PostgresOptions): Promise<Start> {
  const { account, data, log } = prepared;
  const args = settings(prepared, port, options.args ?? []);
  const { environment = {}, watcher } = options;
  const server = await launch(
    {
      command: prepared.program,
      args,
      cwd: data,
      log,
      environment,
      ...account.ids,
      ...(watcher && { watcher }),
    },
    'postgres-failed',
  );
  const deadline = performance.now() + START_TIMEOUT_MS;
  while (server.end() === null && !isReady(data, server.pid)) {
    if (performance.now() > deadline) {
      await server.stop('SIGINT', STOP_TIMEOUT_MS);
      throw failure(`was not ready after ${START_TIMEOUT_MS / 1000} s`, prepared, server);
    }
    await sleep(20);
  }
  if (server.end() === null) return { server, port };
  const output = server.output();
  if (/could not bind .*: Address already in use/.test(output)) return 'port-taken';
  if (output.includes('pre-existing shared memory block')) return 'old-backends';
  throw failure(`did not start (${server.end()})`, prepared, server);
}

function failure(what: string, { folder, log }: Prepared, server: ServerProcess): LocalStoreError {
  return new LocalStoreError(
    'postgres-failed',
    `The local Postgres ${what}. Last lines of ${log}:\n${server.tail()}\n${recoveryAdvice(folder)}`,
  );
}

async function startWithRetries(prepared: Prepared, options: PostgresOptions) {
  let takenPorts = 0;
  let oldBackends = 0;
  for (;;) {
    const port = options.port ?? (await freePort());
    const start = await startOnce(prepared, port, options);
    if (typeof start === 'object') return start;
    if (start === 'port-taken' && (options.port !== undefined || ++takenPorts === PORT_TRIES)) {
      throw new LocalStoreError(
        'port-taken',
        `Port ${port} of 127.0.0.1, configured for Postgres, is in use.`,
      );
    }
    if (start === 'old-backends') {
      if (++oldBackends === OLD_BACKENDS_TRIES) {
        throw new LocalStoreError(
          'postgres-failed',
          `Processes of an earlier Postgres still use ${prepared.data}. End them (ps ax | grep postgres) and start again.`,
        );
      }
      await sleep(250);
    }
  }
}

function unusable(cause: unknown, { folder, log }: Prepared): LocalStoreError {
  const wrongPassword = (cause as { code?: unknown }).code === '28P01';
  return new LocalStoreError(
    wrongPassword ? 'folder-unusable' : 'postgres-failed',
    wrongPassword
      ? `The Postgres data in ${folder} has another password than the file named secret. Restore that file, or delete ${folder} to start with an empty database.`
      : `The local Postgres does not answer: ${(cause as Error).message}. Its log is ${log}.\n${recoveryAdvice(folder)}`,
    { cause },
  );
}

/** Starts a Postgres on a folder, running initdb at the first start, and waits until it is ready. */
export async function startPostgresServer(options: PostgresOptions): Promise<PostgresServer> {
  const prepared = await prepare(options);
  const { server, port } = await startWithRetries(prepared, options);
  const url = (database?: string) => urlOf(POSTGRES_USER, prepared.password, port, database);
  const stop = () => server.stop('SIGINT', STOP_TIMEOUT_MS);
  try {
    await ensureDatabase(url('postgres')).catch((error) => {
      throw unusable(error, prepared);
    });
  } catch (error) {
    await stop();
    throw error;
  }
  return { port, pid: server.pid, ended: server.ended, url, tail: server.tail, stop, kill: server.kill };
}
