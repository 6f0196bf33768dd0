/** The service under test: the compiled program in a process, as a user runs it. */
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { lockVariable } from './lock-servers.ts';
import { type Started, startTool } from './processes.ts';

/** The compiled entry of the service. */
export const serviceEntry = fileURLToPath(new URL('../../dist/main.js', import.meta.url));

/**
 * As `npm start` has it: with hundreds of attempts in flight, a young generation of the usual size is collected so often
 * that most of them are copied. Bare servers have the same.
 */
export const youngGeneration = '--max-semi-space-size=64';

/**
 * No attempt is shed because others wait: strategies are compared, not load shedding, which the suite `overload` measures.
 * No order expires during a run.
 */
export const noShedding = { ADMISSION_MS: '60000', PAYMENT_WINDOW_S: '86400' };

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
  readonly pid: number;
  /** Fires when the process ends before `stop` was called. */
  readonly died: AbortSignal;
  /** Its last log lines, the oldest first. */
  tail(): readonly string[];
  /** SIGTERM, then SIGKILL. @returns whether it ended by itself with exit code 0 */
  stop(): Promise<boolean>;
}

const readyTimeoutMs = 30_000;
/** The service waits 15 s for requests in flight when it stops. */
const stopTimeoutMs = 20_000;

/** Variables of the caller that reach the service: what a process needs to run, and what may be tuned. */
const inherited = ['PATH', 'HOME', 'LANG', 'LC_ALL', 'TZ', 'TMPDIR', 'USER', 'SystemRoot', 'TEMP', 'TMP'];
export const tunable = ['SEGMENTS', 'LOCK_TTL_MS', 'LOCK_WAIT_MS'];

/** Starts the service and waits until it listens. @throws with what it logged last */
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
  const { entry = serviceEntry, nodeOptions = [], signal } = options;
  let listening: (port: number | null) => void = () => {};
  const port = new Promise<number | null>((resolve) => {
    listening = resolve;
  });
  const started = startTool({
    command: [process.execPath, youngGeneration, ...nodeOptions, entry],
    cwd: dirname(entry), // not where a file .env may be: it would change what is measured
    env: serviceEnv(settings),
    exitMs: stopTimeoutMs,
    onLine: (line) => {
      const found = listeningPort(line);
      if (found !== null) listening(found);
    },
  });
  let why = 'did not listen in time';
  const stopWaiting = (): void => listening(null);
  const timer = setTimeout(stopWaiting, options.readyTimeoutMs ?? readyTimeoutMs);
  signal?.addEventListener('abort', stopWaiting);
  if (signal?.aborted) stopWaiting();
  void started.ended.then((how) => {
    why = how;
    stopWaiting();
  });
  const found = await port;
  clearTimeout(timer);
  signal?.removeEventListener('abort', stopWaiting);
  if (found !== null) return service(started, found);
  const reason = why;
  await started[Symbol.asyncDispose]();
  signal?.throwIfAborted();
  const name = settings.strategy === null ? '' : ` (STRATEGY=${settings.strategy})`;
  throw new Error(`the service${name} ${reason}; it logged last:\n${started.tail().join('\n')}`);
}

function service(started: Started, port: number): Service {
  const stop = async (): Promise<boolean> => {
    await started[Symbol.asyncDispose]();
    return (await started.ended) === 'ended with code 0';
  };
  return {
    url: `http://127.0.0.1:${port}`,
    pid: started.pid,
    died: started.died,
    tail: started.tail,
    stop,
    [Symbol.asyncDispose]: async () => void (await stop()),
  };
}

function serviceEnv(settings: ServiceSettings): NodeJS.ProcessEnv {
  const own = [...inherited, ...tunable].flatMap((name) =>
    process.env[name] === undefined ? [] : [[name, process.env[name]]],
  );
  const servers = lockVariable(settings.lock);
  return {
    ...Object.fromEntries(own),
    ...(settings.strategy !== null && { STRATEGY: settings.strategy }),
    ...(settings.lock !== null && { LOCK: settings.lock }),
    ...(servers !== null && { [servers]: process.env[servers] }),
    DATABASE_URL: settings.databaseUrl,
    REDIS_URL: settings.redisUrl,
    HOST: '127.0.0.1',
    PORT: '0',
    LOG_LEVEL: 'info',
    NODE_ENV: 'production',
    ...settings.env,
  };
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
