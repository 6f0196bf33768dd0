/**
 * A Redis (or Valkey) on loopback, as a child process.
 *
 *   starting ──logs that it listens──▶ listening ──answers INFO with the child's pid──▶ ready ──stop/kill──▶ ended
 *      ├─ loading its data: wait
 *      ├─ port in use: retry with another port, a few times (not for a fixed port)
 *      └─ exited: error with the last lines of its log (for a damaged AOF, Redis logs there how to repair it)
 *
 * The password is in a configuration file that only the owner may read, not on the command line. `set-proc-title no` keeps the
 * file's name in the process list, by which the server is identified.
 */
import { closeSync, fchownSync, openSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { LocalStoreError } from './errors.ts';
import { stopOrphans } from './orphans.ts';
import { findServers, markOf } from './processes.ts';
import { ensureRedisServer } from './redis-install.ts';
import {
  changeOwner,
  chooseAccount,
  createDataFolder,
  pathWithin,
  type ServerAccount,
} from './server-account.ts';
import { freePort, launch, type ServerProcess } from './server-process.ts';
import type { Watcher } from './watcher.ts';

export { findRedisServer } from './redis-binary.ts';
export { ensureRedisServer } from './redis-install.ts';

const START_TIMEOUT_MS = 60_000; // loading a large AOF is slow
const STOP_TIMEOUT_MS = 15_000; // SHUTDOWN waits up to 10 s for replicas
const PROBE_TIMEOUT_MS = 1_000;
const PORT_TRIES = 5;
const PROGRAMS = ['redis-server', 'valkey-server'];

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
export interface RedisServer {
  readonly url: string;
  readonly port: number;
  readonly pid: number;
  /** Resolves with a description of how it ended, for any cause. */
  readonly ended: Promise<string>;
  /** The last lines of its log. */
  tail(): string;
  /** Graceful shutdown: the AOF is on disk. */
  stop(): Promise<void>;
  /** SIGKILL. Data written to the AOF survives; only a machine crash loses up to the last second. */
  kill(): Promise<void>;
}

const CONFIGURATION = 'redis.conf';
const configurationPath = (folder: string) => join(realpathSync(folder), CONFIGURATION);

/** Stops an orphaned Redis that still runs on the folder. */
export async function stopOrphanedRedis(folder: string, say: (line: string) => void): Promise<void> {
  const path = configurationPath(folder);
  await stopOrphans({ name: 'Redis', programs: PROGRAMS, path, signal: 'SIGTERM', say });
}

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

function failure(what: string, folder: string, server: ServerProcess): LocalStoreError {
  return new LocalStoreError(
    'redis-failed',
    `The local Redis in ${folder} ${what}. Last lines of ${join(folder, 'redis.log')}:\n${server.tail()}\nIf its data is damaged and not needed, delete ${folder} to start with an empty Redis.`,
  );
}

async function startOnce(
  options: RedisOptions & { readonly program: string; readonly account: ServerAccount },
  port: number,
): Promise<ServerProcess | null> {
  const { folder, password, account } = options;
  writeConfiguration(folder, password, account);
  const configuration = join(pathWithin(folder, account), CONFIGURATION);
  // Its command line may not name its folder otherwise. Without a syslog this option has no effect.
  const mark = ['--syslog-ident', markOf(configurationPath(folder))];
  const args = [configuration, ...mark, '--port', String(port), ...(options.args ?? [])];
  const log = join(folder, 'redis.log');
  const { program, environment = {}, watcher } = options;
  const launched = { command: program, args, cwd: folder, log, environment, ...account.ids };
  const server = await launch({ ...launched, ...(watcher && { watcher }) }, 'redis-failed');
  const deadline = performance.now() + START_TIMEOUT_MS;
  while (server.end() === null && !(await isReady(port, password, server))) {
    if (performance.now() > deadline) {
      await server.stop('SIGTERM', STOP_TIMEOUT_MS);
      throw failure(`was not ready after ${START_TIMEOUT_MS / 1000} s`, folder, server);
    }
    await sleep(20);
  }
  if (server.end() === null) return server;
  if (/Address already in use|Failed listening on port/.test(server.output())) return null;
  throw failure(`did not start (${server.end()})`, folder, server);
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
  const running = findServers(PROGRAMS, configurationPath(folder))[0];
  if (running !== undefined) {
    throw new LocalStoreError('folder-in-use', `A Redis (pid ${running.pid}) already runs on ${folder}.`);
  }
  const { account, program } = await findRedis(join(folder, '..'), options);
  if (account.ids !== null) await changeOwner(folder, account);
  for (let tries = 1; ; tries++) {
    const port = options.port ?? (await freePort());
    const server = await startOnce({ ...options, folder, program, account }, port);
    if (server === null) {
      if (options.port === undefined && tries < PORT_TRIES) continue;
      throw new LocalStoreError('port-taken', `Port ${port} of 127.0.0.1, configured for Redis, is in use.`);
    }
    // With the user's name: redis-cli would log in as a user with an empty name.
    const url = `redis://${options.password === undefined ? '' : `default:${options.password}@`}127.0.0.1:${port}`;
    const stop = () => server.stop('SIGTERM', STOP_TIMEOUT_MS);
    return { url, port, pid: server.pid, ended: server.ended, tail: server.tail, stop, kill: server.kill };
  }
}
