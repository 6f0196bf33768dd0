/**
 * Services: in the process of the test, and, where a process has to die or the operating system is part of the test, as processes from
 * the build, which the global setup makes once for the whole run.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFile, cp, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { ODD_NAME, temporaryFolder } from '../../lab/kit/temporary-folder.ts';
import { parseEnv } from '../../src/config/env.ts';
import { createLogger } from '../../src/metrics/logger.ts';
import { choices } from '../../src/service/core.ts';
import { createService } from '../../src/service/service.ts';
import { prepareStores } from '../../src/service/startup.ts';

const root = fileURLToPath(new URL('../../', import.meta.url));

/** A built program. */
export const entryOf = (command: string, folder = root) =>
  path.join(folder, 'dist/commands', `${command}.js`);

type Environment = Readonly<Record<string, string>>;

/** Runs what `npm run` runs for a command that ends by itself. @param folder the installation; by default this checkout */
export function runCommand(
  command: 'audit' | 'check-server' | 'migrate' | 'reconcile',
  env: Environment,
  args: readonly string[] = [],
  folder?: string,
): Promise<{ readonly code: number; readonly out: string; readonly err: string }> {
  const options = { cwd: folder ?? path.join(root, 'src'), env: { PATH: process.env.PATH, ...env } };
  return new Promise((resolve) => {
    execFile(process.execPath, [entryOf(command, folder), ...args], options, (error, out, err) =>
      resolve({ code: error === null ? 0 : Number(error.code), out, err }),
    );
  });
}

/** One process. */
export interface Run extends AsyncDisposable {
  readonly process: ChildProcess;
  /** Null when the process ended before it listened. */
  readonly url: Promise<string | null>;
  readonly log: readonly string[];
  readonly ended: Promise<unknown>;
  /** SIGKILL, and waits for the end. */
  kill(): Promise<void>;
  /** SIGTERM, and waits for the end. @returns the exit code */
  stop(): Promise<number | null>;
}

/** A service in the process of the test. */
export interface TestService extends AsyncDisposable {
  readonly url: string;
  /** Of ADMIN_PORT; null: not set. */
  readonly adminUrl: string | null;
  readonly log: readonly string[];
  /** Stops it as SIGTERM does. */
  stop(): Promise<unknown>;
}

export interface ServiceProcess extends Omit<Run, 'url'> {
  readonly url: string;
}

export interface LaunchOptions {
  /** Its installation; by default this checkout. */
  readonly folder?: string;
  /** A shell script that prepares the process, such as `ulimit -n 100`. */
  readonly prepare?: string;
}

/** Starts a process that may end before it listens. */
export function launch(env: Environment, { folder, prepare = ':' }: LaunchOptions = {}): Run {
  const line = ['-c', `${prepare}; exec "$0" "$@"`, process.execPath, entryOf('start', folder)];
  const child = spawn('/bin/sh', line, {
    cwd: folder ?? path.join(root, 'src'), // the checkout's file .env must not apply
    env: { PATH: process.env.PATH, TMPDIR: tmpdir(), PORT: '0', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const ended = once(child, 'exit');
  const log: string[] = [];
  child.stderr.on('data', (chunk) => log.push(String(chunk)));
  const url = new Promise<string | null>((resolve) => {
    createInterface({ input: child.stdout }).on('line', (line) => {
      log.push(line);
      const port = /"port":(\d+).*"msg":"listening"/.exec(line)?.[1];
      if (port !== undefined) resolve(`http://127.0.0.1:${port}`);
    });
    void ended.then(() => resolve(null));
  });
  const end = async (signal: NodeJS.Signals) => {
    if (child.exitCode === null && child.signalCode === null) child.kill(signal);
    await ended;
  };
  return {
    process: child,
    url,
    log,
    ended,
    kill: () => end('SIGKILL'),
    async stop() {
      await end('SIGTERM');
      return child.exitCode;
    },
    [Symbol.asyncDispose]: () => end('SIGKILL'),
  };
}

/** Starts a service in this process, on stores that it migrates. @throws what ended its start */
export async function startService(env: Environment): Promise<TestService> {
  const config = parseEnv({ PORT: '0', ...env }, choices);
  const urls = {
    databaseUrl: config.databaseUrl!,
    migrationDatabaseUrl: config.migrationDatabaseUrl,
    redisUrl: config.redisUrl,
  };
  const log: string[] = [];
  const to = { write: (line: string) => void log.push(line) };
  const logger = await createLogger({ level: config.logLevel, worker: null, terminal: null, to });
  await prepareStores(urls, config, logger);
  const service = await createService({ config, urls, log: logger });
  const stop = () => service.close();
  try {
    const { port, adminPort } = await service.listen();
    const at = (port: number) => `http://127.0.0.1:${port}`;
    const adminUrl = adminPort === null ? null : at(adminPort);
    return { url: at(port), adminUrl, log, stop, [Symbol.asyncDispose]: stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** Starts a process of the service and waits until it listens. @throws with its log when it does not. */
export async function spawnService(env: Environment, options: LaunchOptions = {}): Promise<ServiceProcess> {
  const run = launch({ LOG_LEVEL: 'info', ...env }, options);
  const url = await run.url;
  if (url === null) throw new Error(`the service ended before it listened:\n${run.log.join('\n')}`);
  return { ...run, url };
}

/** A copy of the sources in a temporary folder, for tests that change them or run npm in them. */
export async function copySources(): Promise<AsyncDisposable & { readonly folder: string }> {
  const folder = await temporaryFolder('stampede-test-sources-');
  const left = /^(node_modules|dist|coverage|\.git|\.env|\.local|bench\/results\/(?!canonical).*)$/;
  await cp(root, folder, { recursive: true, filter: (file) => !left.test(path.relative(root, file)) });
  await symlink(path.join(root, 'node_modules'), path.join(folder, 'node_modules'));
  return { folder, [Symbol.asyncDispose]: () => rm(folder, { recursive: true, maxRetries: 10 }) };
}

/** A copy of the build in a temporary folder, for tests that need their own `.env` or `.local`. */
export interface Installation extends AsyncDisposable {
  readonly folder: string;
  start(env: Environment, options?: Pick<LaunchOptions, 'prepare'>): Run;
}

export async function installService(): Promise<Installation> {
  const folder = await temporaryFolder(`${ODD_NAME}-`);
  await cp(path.join(root, 'dist'), path.join(folder, 'dist'), { recursive: true });
  await copyFile(path.join(root, 'package.json'), path.join(folder, 'package.json'));
  for (const part of ['lua', 'prisma', 'node_modules']) {
    await symlink(path.join(root, part), path.join(folder, part));
  }
  return {
    folder,
    start: (env, options) => launch(env, { ...options, folder }),
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true }),
  };
}
