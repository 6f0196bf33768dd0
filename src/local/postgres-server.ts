/**
 * A Postgres on loopback, as a child process. It is ready when postmaster.pid says so, with the child's pid: another process that took the
 * port could answer a connection. After a kill, old backends may hold the shared memory until they have exited.
 */
import { readFileSync, realpathSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { LocalStoreError } from './errors.ts';
import { type PostgresBinaries, preparePostgresBinaries } from './postgres-binaries.ts';
import { POSTGRES_USER, prepareDataFolder, recoveryAdvice } from './postgres-data.ts';
import { ensureDatabase, urlOf } from './postgres-roles.ts';
import { markOf } from './processes.ts';
import { readOrCreateSecret } from './secret.ts';
import { chooseAccount, createDataFolder, pathWithin } from './server-account.ts';
import { type RunningServer, type ServerKind, startServer, stopOrphans } from './server-start.ts';
import type { Watcher } from './watcher.ts';

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
export interface PostgresServer extends RunningServer {
  /** The URL of a database, `stampede` unless named. The user is the superuser. */
  url(database?: string): string;
}

const POSTGRES: ServerKind = {
  name: 'Postgres',
  stopSignal: 'SIGINT', // open transactions are rolled back
  code: 'postgres-failed',
  portTaken: /could not bind .*: Address already in use/,
};

type Prepared = Awaited<ReturnType<typeof prepare>>;

const dataFolder = (folder: string) => join(realpathSync(folder), 'data');

/** Stops an orphaned Postgres that still runs on the folder. @throws LocalStoreError when a live process has one */
export const stopOrphanedPostgres = (folder: string, say: (line: string) => void): Promise<void> =>
  stopOrphans(POSTGRES, dataFolder(folder), say);

async function prepare(options: PostgresOptions) {
  const { say = () => {} } = options;
  createDataFolder(options.folder);
  const folder = realpathSync(options.folder);
  await stopOrphanedPostgres(folder, say);
  const password = options.password ?? readOrCreateSecret(folder);
  const { server, major } = options.binaries ?? (await preparePostgresBinaries());
  const wanted = { server: 'Postgres', folder: dirname(folder), program: server } as const;
  const { account, program } = await chooseAccount(wanted);
  const data = await prepareDataFolder({
    folder,
    initdb: join(dirname(program), 'initdb'),
    major,
    account,
    password,
    sync: !(options.args ?? []).includes('fsync=off'),
    say,
    watcher: options.watcher,
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
  const { data, log, program, account } = prepared;
  const { environment = {}, watcher } = options;
  const server = await startServer(POSTGRES, {
    port: options.port,
    launch: (port) => ({
      command: program,
      args: settings(prepared, port, options.args ?? []),
      cwd: data,
      log,
      environment,
      watcher,
      ...account.ids,
    }),
    isReady: ({ pid }) => isReady(data, pid),
    held: {
      logged: 'pre-existing shared memory block',
      message: `Processes of an earlier Postgres still use ${data}. End them (ps ax | grep postgres) and start again.`,
    },
    failure: (what, tail) =>
      `The local Postgres ${what}. Last lines of ${log}:\n${tail}\n${recoveryAdvice(prepared.folder)}`,
  });
  const url = (database?: string) => urlOf(POSTGRES_USER, prepared.password, server.port, database);
  try {
    await ensureDatabase(url('postgres'));
  } catch (error) {
    await server.stop();
    throw unusable(error, prepared);
  }
  return { ...server, url };
}
