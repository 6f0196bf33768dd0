/** The service under test: the built program in a process, as a user runs it; here, or on another machine (remote.ts). */
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { startTool, type Wait } from './kit/processes.ts';
import { remoteService, sshCommand } from './remote.ts';
import { lockVariable } from './servers/lock-servers.ts';

/** The built entry of the service. */
export const serviceEntry = fileURLToPath(new URL('../dist/commands/start.js', import.meta.url));

/**
 * The option of `npm start`: with hundreds of attempts in flight, a young generation of the usual size is collected so often
 * that most attempts are copied. Bare servers have the same.
 */
export const youngGeneration = '--max-semi-space-size=64';

/** No attempt is shed because others wait: the suite `overload` measures that. No order expires during a run. */
export const noShedding = { ADMISSION_MS: '60000', PAYMENT_WINDOW_S: '86400' };

export interface ServiceSettings {
  readonly strategy: string;
  /** Null: the service's default. */
  readonly lock: string | null;
  readonly databaseUrl: string;
  readonly redisUrl: string;
  /** Further variables; they win. */
  readonly env?: Readonly<Record<string, string>>;
}

export type Service = Readonly<Awaited<ReturnType<typeof startService>>>;

/** The service waits 15 s for requests in flight when it stops. */
const stopTimeoutMs = 20_000;

/** Variables of the caller that reach the service: what a process needs to run, and what may be tuned. */
const inherited = ['PATH', 'HOME', 'LANG', 'LC_ALL', 'TZ', 'TMPDIR', 'USER'];
export const tunable = ['SEGMENTS', 'LOCK_TTL_MS', 'LOCK_WAIT_MS'];

export interface ServiceOptions extends Wait {
  readonly entry?: string;
  /** Options of the node that runs it, after those of `npm start`. */
  readonly nodeOptions?: readonly string[];
}

/** Starts the service and waits until it listens, 2 min by default: a busy machine migrates for half a minute. @throws with its last lines */
export async function startService(
  settings: ServiceSettings,
  { entry = serviceEntry, nodeOptions = [], withinMs = 120_000, signal }: ServiceOptions = {},
) {
  let onLine = (_line: string): void => {};
  const remote = remoteService();
  const flags = [youngGeneration, ...nodeOptions];
  const there =
    remote && sshCommand(remote, [...flags, 'dist/commands/start.js'], serviceEnv(settings, '0.0.0.0'));
  const started = startTool({
    ...(there === null
      ? // not where a file .env may be: it would change what is measured
        { command: [process.execPath, ...flags, entry], cwd: dirname(entry), env: localEnv(settings) }
      : { command: there, endsWithInput: true }),
    name: `the service (STRATEGY=${settings.strategy})`,
    exitMs: stopTimeoutMs,
    onLine: (line) => onLine(line),
  });
  /** SIGTERM, then SIGKILL. @returns whether it ended by itself with exit code 0 */
  const stop = async (): Promise<boolean> => {
    await started[Symbol.asyncDispose]();
    return (await started.ended) === 'ended with code 0';
  };
  const watch = (listens: (port: string) => void): void => {
    onLine = (line) => {
      const port = line.includes('"msg":"listening"') ? /"port":(\d+)/.exec(line)?.[1] : undefined;
      if (port !== undefined) listens(port);
    };
  };
  try {
    const port = await started.until(watch, { withinMs, ...(signal && { signal }) });
    const { died, tail } = started;
    /** Its base URL, without a path. */
    const url = `http://${remote?.host ?? '127.0.0.1'}:${port}`;
    /** Null: it runs on another machine. */
    const pid = remote === null ? started.pid : null;
    return { url, pid, died, tail, stop, [Symbol.asyncDispose]: async () => void (await stop()) };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** The caller's variables of these names that are set. */
function ofCaller(names: readonly string[]): Record<string, string> {
  return Object.fromEntries(names.flatMap((name) => (process.env[name] ? [[name, process.env[name]]] : [])));
}

const localEnv = (settings: ServiceSettings): Record<string, string> => ({
  ...ofCaller(inherited),
  ...serviceEnv(settings, '127.0.0.1'),
});

function serviceEnv(settings: ServiceSettings, host: string): Record<string, string> {
  const { strategy, lock, databaseUrl, redisUrl, env } = settings;
  return {
    ...ofCaller([...tunable, lockVariable(lock) ?? '', 'ADMIN_TOKEN']),
    STRATEGY: strategy,
    ...(lock !== null && { LOCK: lock }),
    ...{ DATABASE_URL: databaseUrl, REDIS_URL: redisUrl, HOST: host, PORT: '0', AUTH: 'none' },
    TASK_WEBHOOK_URL: 'none', // tasks are done, not kept
    ...{ LOG_LEVEL: 'info', NODE_ENV: 'production' },
    ...env,
  };
}
