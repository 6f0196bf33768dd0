/** The service under test: the compiled program in a process of its own, as a user would run it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { dirname } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { lockVariable } from './lock-servers.ts';

/** The compiled entry of the service. */
export const serviceEntry = fileURLToPath(new URL('../dist/main.js', import.meta.url));

/**
 * What `npm start` tells Node: with hundreds of attempts under way, a young generation of the usual size is collected so
 * often that most of them are copied. The bare servers get the same.
 */
export const youngGeneration = '--max-semi-space-size=64';

export interface ServiceSettings {
  /** Null: the service's default. */
  readonly strategy: string | null;
  /** Null: the service's default. */
  readonly lock: string | null;
  readonly databaseUrl: string;
  readonly redisUrl: string;
  /** Further variables; they win. */
  readonly env?: Readonly<Record<string, string>>;
}

export interface Service extends AsyncDisposable {
  /** Where it answers, without a path. */
  readonly url: string;
  /** Its process. */
  readonly pid: number;
  /** Fires when the process ends before `stop` was called. */
  readonly died: AbortSignal;
  /** Its last log lines, oldest first. */
  tail(): readonly string[];
  /** Ends it: SIGTERM, then SIGKILL. True: it ended by itself after SIGTERM, with exit code 0. */
  stop(): Promise<boolean>;
}

const readyTimeoutMs = 30_000;
/** A stop waits for requests that are under way (the service gives up after 15 s), and a little more. */
const stopTimeoutMs = 20_000;
const tailLines = 40;

/** Variables of the caller that reach the service: what a process needs to run at all, and what may be tuned. */
const inherited = ['PATH', 'HOME', 'LANG', 'LC_ALL', 'TZ', 'TMPDIR', 'USER', 'SystemRoot', 'TEMP', 'TMP'];
export const tunable = ['SEGMENTS', 'LOCK_TTL_MS', 'LOCK_WAIT_MS'];

/** Processes that this program must not leave behind, whatever ends it. */
const running = new Set<ChildProcess>();
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

/** Starts the service and waits until it listens; an error shows what it logged last. */
export async function startService(
  settings: ServiceSettings,
  options: {
    readonly entry?: string;
    /** Of the node that runs it, after those of `npm start`. */
    readonly nodeOptions?: readonly string[];
    readonly readyTimeoutMs?: number;
    readonly signal?: AbortSignal;
  } = {},
): Promise<Service> {
  // Its own process group: Ctrl-C in the terminal is for the bench, which then ends the service in order.
  const nodeOptions = [youngGeneration, ...(options.nodeOptions ?? [])];
  const entry = options.entry ?? serviceEntry;
  const child = spawn(process.execPath, [...nodeOptions, entry], {
    cwd: dirname(entry), // not where a file .env may be: it would change what is measured
    env: serviceEnv(settings),
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  });
  running.add(child);
  const exited = new Promise<void>((resolve) => {
    child.once('error', () => resolve());
    child.once('exit', () => resolve());
  }).then(() => {
    running.delete(child);
  });
  const log = watchLog(child);
  const limit = timeLimit(options.readyTimeoutMs ?? readyTimeoutMs, options.signal);
  const port = await Promise.race([log.port, exited.then(() => null), limit.reached]);
  limit.clear();
  if (port === null) {
    const why = running.has(child) ? 'did not listen in time' : `ended with ${exitText(child)}`;
    await end(child, exited);
    options.signal?.throwIfAborted();
    throw new Error(
      `the service${settings.strategy === null ? '' : ` (STRATEGY=${settings.strategy})`} ${why}; it logged last:\n${log.tail().join('\n')}`,
    );
  }
  return service(child, exited, port, log.tail);
}

/** Resolves after `ms`, or as soon as `signal` fires. */
function timeLimit(ms: number, signal?: AbortSignal): { readonly reached: Promise<null>; clear(): void } {
  const { promise, resolve } = withResolvers();
  const timer = setTimeout(resolve, ms);
  signal?.addEventListener('abort', resolve);
  if (signal?.aborted) resolve();
  const clear = (): void => {
    clearTimeout(timer);
    signal?.removeEventListener('abort', resolve);
  };
  return { reached: promise, clear };
}

function withResolvers(): { readonly promise: Promise<null>; resolve(): void } {
  let resolve = (): void => {};
  const promise = new Promise<null>((done) => {
    resolve = () => done(null);
  });
  return { promise, resolve };
}

function exitText(child: ChildProcess): string {
  return child.exitCode === null ? `signal ${child.signalCode}` : `code ${child.exitCode}`;
}

function service(child: ChildProcess, exited: Promise<void>, port: number, tail: () => string[]): Service {
  const died = new AbortController();
  let stopping = false;
  void exited.then(() => {
    if (!stopping) died.abort(new Error(`the service ended with ${exitText(child)}`));
  });
  const stop = async (): Promise<boolean> => {
    stopping = true;
    await end(child, exited);
    return child.exitCode === 0;
  };
  return {
    url: `http://127.0.0.1:${port}`,
    pid: child.pid!,
    died: died.signal,
    tail,
    stop,
    [Symbol.asyncDispose]: async () => {
      await stop();
    },
  };
}

function serviceEnv(settings: ServiceSettings): NodeJS.ProcessEnv {
  const env: NodeJS.ProcessEnv = {};
  for (const name of [...inherited, ...tunable]) {
    const value = process.env[name];
    if (value !== undefined) env[name] = value;
  }
  if (settings.strategy !== null) env.STRATEGY = settings.strategy;
  if (settings.lock !== null) env.LOCK = settings.lock;
  const servers = lockVariable(settings.lock);
  if (servers !== null) env[servers] = process.env[servers];
  env.DATABASE_URL = settings.databaseUrl;
  env.REDIS_URL = settings.redisUrl;
  env.HOST = '127.0.0.1';
  env.PORT = '0';
  env.LOG_LEVEL = 'info';
  env.NODE_ENV = 'production';
  return { ...env, ...settings.env };
}

/** Reads the log for as long as the process runs (a full pipe would block it) and keeps the last lines. */
function watchLog(child: ChildProcess): { readonly port: Promise<number>; tail(): string[] } {
  const lines: string[] = [];
  const keep = (line: string): void => {
    lines.push(line);
    if (lines.length > tailLines) lines.shift();
  };
  const port = new Promise<number>((resolve) => {
    if (child.stdout !== null) {
      createInterface({ input: child.stdout }).on('line', (line) => {
        keep(line);
        const found = listeningPort(line);
        if (found !== null) resolve(found);
      });
    }
    if (child.stderr !== null) createInterface({ input: child.stderr }).on('line', keep);
  });
  return { port, tail: () => [...lines] };
}

/** The port in the log line that says that the service listens; null: another line. */
function listeningPort(line: string): number | null {
  if (!line.includes('"msg":"listening"')) return null;
  try {
    const { port } = JSON.parse(line) as { port?: unknown };
    return typeof port === 'number' ? port : null;
  } catch {
    return null;
  }
}

async function end(child: ChildProcess, exited: Promise<void>): Promise<void> {
  child.kill('SIGTERM');
  const kill = setTimeout(() => child.kill('SIGKILL'), stopTimeoutMs);
  await exited;
  clearTimeout(kill);
}
