/**
 * A Redis (or Valkey) on loopback, as a child process. It is ready when it has logged so: it listens then, and its data is loaded. Nothing
 * is sent before, because another process may have its port. Its log says how to repair a damaged AOF.
 *
 * The password is in a configuration file that only the owner may read, not on the command line. `set-proc-title no` keeps the
 * file's name in the process list, by which the server is identified.
 */
import { closeSync, fchownSync, openSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { markOf } from './processes.ts';
import { ensureRedisServer } from './redis-install.ts';
import {
  changeOwner,
  chooseAccount,
  createDataFolder,
  pathWithin,
  type ServerAccount,
} from './server-account.ts';
import { type RunningServer, type ServerKind, startServer, stopOrphans } from './server-start.ts';
import type { Watcher } from './watcher.ts';

export { findRedisServer } from './redis-binary.ts';
export { ensureRedisServer } from './redis-install.ts';

export interface RedisOptions {
  /** Contains data, log and configuration. Created when missing. */
  readonly folder: string;
  /** A fixed port; by default a free port, chosen at each start. */
  readonly port?: number;
  /** Undefined: no password. */
  readonly password?: string;
  /** Appended to the command line, such as `--appendonly no`; they override the settings here. */
  readonly args?: readonly string[];
  /** The program; by default it is looked up or installed. */
  readonly program?: string;
  /** Additions to the server's environment. */
  readonly environment?: Readonly<Record<string, string>>;
  readonly say?: (line: string) => void;
  /** Stops the server when this process is killed. */
  readonly watcher?: Watcher;
}

/** A running Redis. */
export interface RedisServer extends RunningServer {
  readonly url: string;
}

const REDIS: ServerKind = {
  name: 'Redis',
  stopSignal: 'SIGTERM',
  code: 'redis-failed',
  portTaken: /Address already in use|Failed listening on port/,
};

const CONFIGURATION = 'redis.conf';
const configurationPath = (folder: string) => join(realpathSync(folder), CONFIGURATION);

/** Stops an orphaned Redis that still runs on the folder. @throws LocalStoreError when a live process has one */
export const stopOrphanedRedis = (folder: string, say: (line: string) => void): Promise<void> =>
  stopOrphans(REDIS, configurationPath(folder), say);

const quoted = (text: string) => `"${text.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`;

/** Replaces the file rather than writing through a link that the server's account may have made. */
function writeConfiguration(folder: string, password: string | undefined, account: ServerAccount): void {
  const path = configurationPath(folder);
  const lines = [
    '# Generated at each start.',
    'bind 127.0.0.1',
    `dir ${quoted(pathWithin(folder, account))}`,
    'appendonly yes',
    'appendfsync everysec',
    'save ""',
    'maxmemory-policy noeviction',
    'daemonize no',
    'loglevel notice',
    'set-proc-title no',
    ...(password === undefined ? [] : [`requirepass ${quoted(password)}`]),
  ];
  rmSync(path, { force: true });
  const file = openSync(path, 'wx', 0o600);
  try {
    writeFileSync(file, `${lines.join('\n')}\n`);
    if (account.ids !== null) fchownSync(file, account.ids.uid, account.ids.gid);
  } finally {
    closeSync(file);
  }
}

/** Starts a Redis on a folder and waits until it is ready. */
export async function startRedisServer(options: RedisOptions): Promise<RedisServer> {
  const { say = () => {} } = options;
  createDataFolder(options.folder);
  const folder = realpathSync(options.folder);
  await stopOrphanedRedis(folder, say);
  const path = options.program ?? (await ensureRedisServer({ say })).path;
  const wanted = { server: 'Redis', folder: dirname(folder), program: { path, tree: path } } as const;
  const { account, program } = await chooseAccount(wanted);
  if (account.ids !== null) await changeOwner(folder, account);
  const { password, args = [], environment = {}, watcher } = options;
  const log = join(folder, 'redis.log');
  writeConfiguration(folder, password, account);
  const configuration = join(pathWithin(folder, account), CONFIGURATION);
  // Its command line may not name its folder otherwise. Without a syslog this option has no effect.
  const mark = ['--syslog-ident', markOf(configurationPath(folder))];
  const server = await startServer(REDIS, {
    port: options.port,
    launch: (port) => ({
      command: program,
      args: [configuration, ...mark, '--port', String(port), ...args],
      cwd: folder,
      log,
      environment,
      watcher,
      ...account.ids,
    }),
    isReady: (process) => process.output().includes('Ready to accept connections'),
    failure: (what, tail) =>
      `The local Redis in ${folder} ${what}. Last lines of ${log}:\n${tail}\nIf its data is damaged and not needed, delete ${folder} to start with an empty Redis.`,
  });
  // With the user's name: redis-cli would log in as a user with an empty name.
  const login = password === undefined ? '' : `default:${password}@`;
  return { ...server, url: `redis://${login}127.0.0.1:${server.port}` };
}
