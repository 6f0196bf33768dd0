/**
 * A Redis (or Valkey) on loopback, as a child process. It is ready when it has logged that it listens, its data is loaded, and it answers
 * INFO with the child's pid. Of a damaged AOF its log says how to repair it.
 *
 * The password is in a configuration file that only the owner may read, not on the command line. `set-proc-title no` keeps the
 * file's name in the process list, by which the server is identified.
 */
import { closeSync, fchownSync, openSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { markOf } from './processes.ts';
import { ensureRedisServer } from './redis-install.ts';
import {
  changeOwner,
  chooseAccount,
  createDataFolder,
  pathWithin,
  type ServerAccount,
} from './server-account.ts';
import type { ServerProcess } from './server-process.ts';
import { type RunningServer, type ServerKind, startServer, stopOrphans } from './server-start.ts';
import type { Watcher } from './watcher.ts';

export { findRedisServer } from './redis-binary.ts';
export { ensureRedisServer } from './redis-install.ts';

const PROBE_TIMEOUT_MS = 1_000;

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

/** The reply of the server on the port to AUTH, INFO and PING; empty on timeout. */
function probe(port: number, password: string | undefined): Promise<string> {
  return new Promise((resolve) => {
    let answer = '';
    const socket = connect({ host: '127.0.0.1', port });
    const finish = () => {
      socket.destroy();
      resolve(answer);
    };
    socket.setTimeout(PROBE_TIMEOUT_MS, finish);
    socket.on('error', finish);
    socket.on('close', finish);
    socket.on('data', (chunk) => {
      answer += chunk.toString('utf8');
    });
    const auth = password === undefined ? [] : [command('AUTH', password)];
    socket.write([...auth, command('INFO', 'server'), command('PING'), command('QUIT')].join(''));
  });
}

const command = (...words: string[]) =>
  `*${words.length}\r\n${words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`).join('')}`;

/** Until the server logs that it listens, another process may have its port: that one is not sent the password. */
async function isReady(port: number, password: string | undefined, server: ServerProcess): Promise<boolean> {
  if (!server.output().includes('Ready to accept connections')) return false;
  const answer = await probe(port, password);
  return answer.includes(`process_id:${server.pid}\r\n`) && answer.includes('+PONG');
}

/** Finds the program and the account of a server. @param folder the server's data is in a subfolder @throws LocalStoreError */
async function findRedis(folder: string, { program, say }: Pick<RedisOptions, 'program' | 'say'> = {}) {
  const path = program ?? (await ensureRedisServer(say ? { say } : {})).path;
  return chooseAccount({ server: 'Redis', folder, program: { path, tree: path } });
}

/** Starts a Redis on a folder and waits until it is ready. */
export async function startRedisServer(options: RedisOptions): Promise<RedisServer> {
  createDataFolder(options.folder);
  const folder = realpathSync(options.folder);
  await stopOrphanedRedis(folder, options.say ?? (() => {}));
  const { account, program } = await findRedis(join(folder, '..'), options);
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
    isReady: (process, port) => isReady(port, password, process),
    failure: (what, tail) =>
      `The local Redis in ${folder} ${what}. Last lines of ${log}:\n${tail}\nIf its data is damaged and not needed, delete ${folder} to start with an empty Redis.`,
  });
  // With the user's name: redis-cli would log in as a user with an empty name.
  const login = password === undefined ? '' : `default:${password}@`;
  return { ...server, url: `redis://${login}127.0.0.1:${server.port}` };
}
