/**
 * One server as a plain child process of the caller: started, watched, stopped with a bound, killed.
 * Its output goes to a log file, never to the caller's own output: a server that inherits a terminal or a
 * pipe would keep it open after the caller's death.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, fstatSync, openSync, readFileSync, renameSync, statSync } from 'node:fs';
import { createServer } from 'node:net';
import { LocalStoreError, type LocalStoreErrorCode } from './errors.ts';

/**
 * What servers see of the environment. A fixed one: a broken locale in the caller's makes Redis and
 * Postgres refuse to start, and macOS's Postgres needs a set one.
 */
export const SERVER_ENVIRONMENT: Readonly<Record<string, string>> = {
  LC_ALL: 'C',
  TZ: 'UTC',
  PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/homebrew/bin',
};

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
  /** The caller's whole environment instead of the servers' fixed one: installers need HOME and proxies. */
  readonly inherit?: boolean;
  /** A session and process group of its own, so that the whole group can be killed. */
  readonly detached?: boolean;
}

/** A launched server. */
export interface ServerProcess {
  readonly pid: number;
  /** Settles at the end, with words for how it ended. Never rejects. */
  readonly ended: Promise<string>;
  /** How it ended; null while it lives. */
  end(): string | null;
  /** The last lines that it logged since this launch. */
  tail(): string;
  /** Everything that it logged since this launch. */
  output(): string;
  /** `signal`, then SIGKILL after the bound; resolves once it is gone. */
  stop(signal: NodeJS.Signals, timeoutMs: number): Promise<void>;
  /** SIGKILL; resolves once it is gone. */
  kill(): Promise<void>;
}

/** The log grows over months: past some size it becomes `.1`, and one such is kept. */
function openLog(path: string): { fd: number; from: number } {
  try {
    if (statSync(path).size > LOG_KEEP_BYTES) renameSync(path, `${path}.1`);
  } catch {
    // no log yet
  }
  const fd = openSync(path, 'a', 0o600);
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

/** Launches a server. Throws with `code` when the program cannot be executed at all. */
export async function launch(options: LaunchOptions, code: LocalStoreErrorCode): Promise<ServerProcess> {
  const { fd, from } = openLog(options.log);
  let child: ChildProcess;
  try {
    child = spawn(options.command, options.args, {
      cwd: options.cwd,
      stdio: ['ignore', fd, fd],
      ...(options.inherit ? {} : { env: { ...SERVER_ENVIRONMENT, ...options.environment } }),
      detached: options.detached ?? false,
      ...(options.uid === undefined ? {} : { uid: options.uid }),
      ...(options.gid === undefined ? {} : { gid: options.gid }),
    });
  } finally {
    closeSync(fd);
  }
  let end: string | null = null;
  const ended = new Promise<string>((resolve) => {
    child.once('exit', (status, signal) => {
      end = signal === null ? `exit code ${status}` : `signal ${signal}`;
      resolve(end);
    });
  });
  const pid = await spawned(child, options.command, code);
  child.on('error', () => {}); // a failed kill() after the end is no news

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

/** A TCP port that was free on the loopback a moment ago. It may be taken by now: retry with another. */
export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() => resolve(typeof address === 'object' && address !== null ? address.port : 0));
    });
  });
}
