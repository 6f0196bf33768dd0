/**
 * A server as a child process. Its output goes to a log file: a server that inherited a terminal or a pipe would keep it open
 * after the death of its parent.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import {
  closeSync,
  constants,
  fchownSync,
  fstatSync,
  openSync,
  readFileSync,
  renameSync,
  statSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { dirname } from 'node:path';
import { LocalStoreError, type LocalStoreErrorCode } from './errors.ts';
import type { Watcher } from './watcher.ts';

/**
 * The fixed environment of servers. A broken locale in the caller's environment would keep Redis and Postgres from starting,
 * and Postgres on macOS needs one to be set.
 */
export const SERVER_ENVIRONMENT: Readonly<Record<string, string>> = {
  LC_ALL: 'C',
  TZ: 'UTC',
  PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/homebrew/bin',
};

/** Becomes the server at a line, which does not come from a service that was killed before its watcher knew the process. */
const AT_A_LINE = 'read -r line && exec "$@" < /dev/null';
const LOG_KEEP_BYTES = 8 * 1024 * 1024;
const TAIL_LINES = 8;

export interface LaunchOptions {
  readonly command: string;
  readonly args: readonly string[];
  readonly cwd: string;
  readonly log: string;
  readonly uid?: number;
  readonly gid?: number;
  readonly environment?: Readonly<Record<string, string>>;
  /** Inherits the caller's environment instead of the fixed one: installers need HOME and proxy variables. */
  readonly inherit?: boolean;
  /** Runs in its own session and process group. */
  readonly detached?: boolean;
  /** Stops the process, which is detached, when this one is killed. */
  readonly watcher?: Watcher | undefined;
}

/** A running server. */
export interface ServerProcess {
  readonly pid: number;
  /** Resolves with a description of how it ended. Never rejects. */
  readonly ended: Promise<string>;
  /** How it ended; null while it runs. */
  end(): string | null;
  /** The last lines logged since this launch. */
  tail(): string;
  /** Everything logged since this launch. */
  output(): string;
  /** Sends `signal`, then SIGKILL after the timeout. Resolves when the process has exited. */
  stop(signal: NodeJS.Signals, timeoutMs: number): Promise<void>;
  /** Sends SIGKILL. Resolves when the process has exited. */
  kill(): Promise<void>;
}

const { O_APPEND, O_CREAT, O_NOFOLLOW, O_WRONLY } = constants;

/**
 * Opens the log for appending. A large one is rotated to `.1` first; one rotated file is kept. Root follows no link that the
 * server's account made, and leaves the log to the owner of the folder.
 */
function openLog(path: string): { fd: number; from: number } {
  try {
    if (statSync(path).size > LOG_KEEP_BYTES) renameSync(path, `${path}.1`);
  } catch {
    // no log yet
  }
  const fd = openSync(path, O_APPEND | O_CREAT | O_NOFOLLOW | O_WRONLY, 0o600);
  const { uid, gid } = statSync(dirname(path));
  if (process.getuid?.() === 0 && uid !== 0) fchownSync(fd, uid, gid);
  return { fd, from: fstatSync(fd).size };
}

function readFrom(path: string, from: number): string {
  try {
    return readFileSync(path).subarray(from).toString('utf8');
  } catch {
    return '';
  }
}

function spawned(child: ChildProcess, command: string, code: LocalStoreErrorCode): Promise<number> {
  return new Promise((resolve, reject) => {
    child.once('error', (cause) =>
      reject(new LocalStoreError(code, `${command} cannot be run: ${cause.message}`, { cause })),
    );
    child.once('spawn', () => resolve(child.pid ?? 0));
  });
}

/** Starts a server. @throws LocalStoreError with `code` when the program cannot be executed; with a watcher it ends with exit code 127 instead */
export async function launch(options: LaunchOptions, code: LocalStoreErrorCode): Promise<ServerProcess> {
  const { fd, from } = openLog(options.log);
  const { watcher } = options;
  const program = [options.command, ...options.args];
  const [command, ...args] = watcher === undefined ? program : ['/bin/sh', '-c', AT_A_LINE, 'sh', ...program];
  let child: ChildProcess;
  try {
    child = spawn(command!, args, {
      cwd: options.cwd,
      stdio: [watcher === undefined ? 'ignore' : 'pipe', fd, fd],
      ...(options.inherit ? {} : { env: { ...SERVER_ENVIRONMENT, ...options.environment } }),
      detached: options.detached ?? watcher !== undefined,
      ...(options.uid === undefined ? {} : { uid: options.uid }),
      ...(options.gid === undefined ? {} : { gid: options.gid }),
    });
  } finally {
    closeSync(fd);
  }
  child.stdin?.on('error', () => {}); // it has ended
  if (child.pid !== undefined) watcher?.watch(child);
  child.stdin?.end('\n');
  let end: string | null = null;
  const ended = new Promise<string>((resolve) => {
    child.once('exit', (status, signal) => {
      end = signal === null ? `exit code ${status}` : `signal ${signal}`;
      resolve(end);
    });
  });
  const pid = await spawned(child, options.command, code);
  child.on('error', () => {}); // a failed kill() after the exit is irrelevant

  async function stop(signal: NodeJS.Signals, timeoutMs: number): Promise<void> {
    if (end !== null) return;
    child.ref();
    child.kill(signal);
    const timer = setTimeout(() => child.kill('SIGKILL'), timeoutMs);
    await ended;
    clearTimeout(timer);
  }

  return {
    pid,
    ended,
    end: () => end,
    output: () => readFrom(options.log, from),
    tail: () => readFrom(options.log, from).trimEnd().split('\n').slice(-TAIL_LINES).join('\n'),
    stop,
    kill: () => stop('SIGKILL', 10_000),
  };
}

/** The ports that are given out. The kernel takes those of outgoing connections from 32768 up (Linux) or 49152 up. */
const PORTS = { from: 12_000, count: 20_000 };
let nextPort = randomInt(PORTS.count);

/**
 * A TCP port that was just free on loopback. The same process gets each one once. It stays free while its server is down: it
 * is none that the kernel gives to a connection. Another process may take it.
 */
export async function freePort(): Promise<number> {
  for (let tries = 0; tries < PORTS.count; tries++) {
    const port = PORTS.from + (nextPort++ % PORTS.count);
    if (await isFree(port)) return port;
  }
  throw new Error(`No free TCP port from ${PORTS.from} to ${PORTS.from + PORTS.count - 1}`);
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
  });
}
