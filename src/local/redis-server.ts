/**
 * A real Redis (or Valkey) on the loopback, as a child of the caller.
 *
 *   starting ──answers INFO with our child's pid──▶ ready ──stop/kill──▶ ended
 *      ├─ loading its data: wait
 *      ├─ port taken meanwhile: another port, a few times (not when the caller asked for one)
 *      └─ ended by itself: error with the last lines of its log (a damaged AOF says there what to do)
 *
 * The password stands in a configuration file that only the owner may read, not on the command line. The
 * process title is left alone, so that the file's name in it tells whose server this is.
 */
import { mkdirSync, realpathSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { LocalStoreError, throwIfAborted } from './errors.ts';
import { stopOrphans } from './orphans.ts';
import { findServers } from './processes.ts';
import { ensureRedisServer } from './redis-install.ts';
import { freePort, launch, type ServerProcess } from './server-process.ts';

export { findRedisServer } from './redis-binary.ts';
export { ensureRedisServer } from './redis-install.ts';

const START_TIMEOUT_MS = 60_000; // a large AOF takes its time
const STOP_TIMEOUT_MS = 15_000; // a shutdown waits up to 10 s for replicas
const PROBE_TIMEOUT_MS = 1_000;
const PORT_TRIES = 5;
const PROGRAMS = ['redis-server', 'valkey-server'];

export interface RedisOptions {
  /** Everything is kept in it: data, log, configuration. Made when missing. */
  readonly folder: string;
  /** A fixed port; without one the system chooses, anew at each start. */
  readonly port?: number;
  /** None: no password. */
  readonly password?: string;
  /** Added at the end of the command line, such as `--appendonly no`; they win over the settings here. */
  readonly args?: readonly string[];
  /** The program, when the caller has looked it up. */
  readonly program?: string;
  /** Added to the server's environment. */
  readonly environment?: Readonly<Record<string, string>>;
  readonly say?: (line: string) => void;
  readonly signal?: AbortSignal;
}

/** A running Redis. */
export interface RedisServer {
  readonly url: string;
  readonly port: number;
  readonly pid: number;
  /** Settles with words for how it ended, whoever ended it. */
  readonly ended: Promise<string>;
  /** The last lines of its log. */
  tail(): string;
  /** An orderly shutdown: what it keeps is on disk. */
  stop(): Promise<void>;
  /** SIGKILL. What was written to the AOF stays: only a machine's death loses the last second. */
  kill(): Promise<void>;
}

const configurationPath = (folder: string) => join(realpathSync(folder), 'redis.conf');

/** Stops a Redis that lost its parent but still runs on the folder. */
export async function stopOrphanedRedis(folder: string, say: (line: string) => void): Promise<void> {
  const argument = configurationPath(folder);
  await stopOrphans({ name: 'Redis', programs: PROGRAMS, argument, signal: 'SIGTERM', say });
}

const quoted = (text: string) => `"${text.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`;

function writeConfiguration(folder: string, password: string | undefined): string {
  const path = configurationPath(folder);
  const lines = [
    '# Written at each start.',
    'bind 127.0.0.1',
    `dir ${quoted(folder)}`,
    'appendonly yes',
    'appendfsync everysec',
    'save ""',
    'maxmemory-policy noeviction',
    'daemonize no',
    'set-proc-title no',
    ...(password === undefined ? [] : [`requirepass ${quoted(password)}`]),
  ];
  writeFileSync(path, `${lines.join('\n')}\n`, { mode: 0o600 });
  return path;
}

/** What the server on the port answers to AUTH and INFO; empty when nobody answers in time. */
function ask(port: number, password: string | undefined): Promise<string> {
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

async function isReady(port: number, password: string | undefined, pid: number): Promise<boolean> {
  const answer = await ask(port, password);
  return answer.includes(`process_id:${pid}\r\n`) && answer.includes('+PONG');
}

function failure(what: string, folder: string, server: ServerProcess): LocalStoreError {
  return new LocalStoreError(
    'redis-failed',
    `The local Redis in ${folder} ${what}. Its last lines, from ${join(folder, 'redis.log')}:\n${server.tail()}\nIf its data is damaged and can be spared, delete ${folder} to start from an empty Redis.`,
  );
}

async function startOnce(
  options: RedisOptions & { readonly program: string },
  port: number,
): Promise<ServerProcess | null> {
  const { folder, password } = options;
  const configuration = writeConfiguration(folder, password);
  const args = [configuration, '--port', String(port), ...(options.args ?? [])];
  const launched = { command: options.program, args, cwd: folder, log: join(folder, 'redis.log') };
  const server = await launch({ ...launched, environment: options.environment ?? {} }, 'redis-failed');
  const deadline = performance.now() + START_TIMEOUT_MS;
  while (server.end() === null && !(await isReady(port, password, server.pid))) {
    const late = performance.now() > deadline;
    if (late || options.signal?.aborted) {
      await server.stop('SIGTERM', STOP_TIMEOUT_MS);
      throwIfAborted(options.signal);
      throw failure(`was not ready after ${START_TIMEOUT_MS / 1000} s`, folder, server);
    }
    await sleep(20);
  }
  if (server.end() === null) return server;
  if (/Address already in use|Failed listening on port/.test(server.output())) return null;
  throw failure(`did not start (${server.end()})`, folder, server);
}

/** Starts a Redis on a folder and waits until it serves. The program is looked up (or installed) if not given. */
export async function startRedisServer(options: RedisOptions): Promise<RedisServer> {
  const program = options.program ?? (await ensureRedisServer(options.say ? { say: options.say } : {})).path;
  mkdirSync(options.folder, { recursive: true, mode: 0o700 });
  const folder = realpathSync(options.folder);
  const running = findServers(PROGRAMS, configurationPath(folder))[0];
  if (running !== undefined) {
    throw new LocalStoreError('folder-in-use', `A Redis (pid ${running.pid}) already runs on ${folder}.`);
  }
  for (let tries = 1; ; tries++) {
    throwIfAborted(options.signal);
    const port = options.port ?? (await freePort());
    const server = await startOnce({ ...options, folder, program }, port);
    if (server === null) {
      if (options.port === undefined && tries < PORT_TRIES) continue;
      throw new LocalStoreError('port-taken', `Port ${port} of 127.0.0.1, meant for Redis, is taken.`);
    }
    // With the user's name: redis-cli takes an empty one for a user that is not there.
    const url = `redis://${options.password === undefined ? '' : `default:${options.password}@`}127.0.0.1:${port}`;
    const stop = () => server.stop('SIGTERM', STOP_TIMEOUT_MS);
    return { url, port, pid: server.pid, ended: server.ended, tail: server.tail, stop, kill: server.kill };
  }
}
