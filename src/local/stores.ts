/**
 * The service's side of the local stores: prepares the folder, spawns the guardian, and holds the channel
 * whose end is the guardian's order to stop both servers.
 *
 *   spawning ──ready──▶ serving ──stop()──▶ channel closed ──guardian's end──▶ stopped
 *      └─ failed, or the guardian's end: the error is thrown, nothing is left running
 *
 * While serving, neither the guardian nor the channel keeps the event loop of the service alive: a service
 * that forgets stop() ends all the same, and its end closes the channel.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { accessSync, closeSync, constants, existsSync, mkdirSync, openSync, realpathSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, extname, join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { LocalStoreError } from './errors.ts';
import { lockFolder } from './folder-lock.ts';
import type { GuardianMessage, GuardianOrder } from './guardian-protocol.ts';
import { stopOrphanedPostgres } from './postgres-server.ts';
import { identify } from './processes.ts';
import { ensureRedisServer, stopOrphanedRedis } from './redis-server.ts';

/** Both servers' own stop bounds (15 s) and some more. */
const STOP_TIMEOUT_MS = 40_000;

/** Running local stores. */
export interface LocalStores {
  /** Null when no Postgres was asked for. */
  readonly databaseUrl: string | null;
  /** Null when no Redis was asked for. */
  readonly redisUrl: string | null;
  /** Stops both in order and waits for their end. Called again, it waits for the same end. */
  stop(): Promise<void>;
}

export interface LocalStoresOptions {
  /** Where data, logs, the lock and the password are kept. Made when missing. */
  readonly folder: string;
  readonly postgres: boolean;
  readonly redis: boolean;
  /** Told what a person waiting at a terminal should know, line by line. */
  readonly say: (line: string) => void;
  /** Added to the servers' command lines (tests and benchmarks). */
  readonly postgresArgs?: readonly string[];
  readonly redisArgs?: readonly string[];
}

/** The folder, made and writable, as an absolute path without links: it is matched in command lines. */
function prepareFolder(path: string): string {
  try {
    // Others may enter it: as root, Postgres may have to run as another account. The secrets in it are 0600.
    mkdirSync(path, { recursive: true, mode: 0o755 });
    for (const name of ['', 'postgres', 'redis', 'lock']) {
      const folder = join(path, name);
      if (existsSync(folder)) accessSync(folder, constants.W_OK | constants.X_OK);
    }
    return realpathSync(path);
  } catch (cause) {
    const { uid, gid } = { uid: process.getuid?.(), gid: process.getgid?.() };
    throw new LocalStoreError(
      'folder-unusable',
      `The local stores cannot write to ${path}: ${(cause as Error).message}. If an earlier run as another user (root?) made it, take it over with: sudo chown -R ${uid}:${gid} ${path}`,
      { cause },
    );
  }
}

/** Compiled, the guardian is plain JavaScript; from the sources (tests, tsx) it needs tsx as a loader. */
function guardianCommand(): string[] {
  const here = fileURLToPath(import.meta.url);
  const extension = extname(here);
  const guardian = join(dirname(here), `guardian${extension}`);
  if (extension !== '.ts') return [guardian];
  const loader = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href;
  return ['--import', loader, guardian];
}

function spawnGuardian(order: GuardianOrder): ChildProcess {
  const log = openSync(join(order.folder, 'guardian.log'), 'a', 0o600);
  try {
    return spawn(process.execPath, [...guardianCommand(), JSON.stringify(order)], {
      cwd: order.folder,
      detached: true,
      stdio: ['ignore', log, log, 'ipc'],
    });
  } finally {
    closeSync(log);
  }
}

type Ready = Extract<GuardianMessage, { type: 'ready' }>;

function untilReady(guardian: ChildProcess, folder: string, say: (line: string) => void): Promise<Ready> {
  return new Promise((resolve, reject) => {
    guardian.once('error', (cause) =>
      reject(
        new LocalStoreError('guardian-failed', `${process.execPath} cannot be run: ${cause.message}`, {
          cause,
        }),
      ),
    );
    guardian.once('exit', (status, signal) => {
      const log = join(folder, 'guardian.log');
      const how = signal ?? `exit code ${status}`;
      reject(
        new LocalStoreError(
          'guardian-failed',
          `The guardian of the local stores ended (${how}). See ${log}.`,
        ),
      );
    });
    guardian.on('message', (message: GuardianMessage) => {
      if (message.type === 'say') say(message.line);
      else if (message.type === 'ready') resolve(message);
      else reject(new LocalStoreError(message.code, message.message));
    });
  });
}

/** Closes the channel and waits for the guardian's end. */
function endOf(guardian: ChildProcess, folder: string): Promise<void> {
  if (guardian.exitCode !== null || guardian.signalCode !== null) return Promise.resolve();
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      const message = `The local stores in ${folder} did not stop within ${STOP_TIMEOUT_MS / 1000} s (guardian: pid ${guardian.pid}).`;
      reject(new LocalStoreError('guardian-failed', message));
    }, STOP_TIMEOUT_MS);
    guardian.once('exit', () => {
      clearTimeout(timer);
      resolve();
    });
    guardian.ref();
    if (guardian.connected) guardian.disconnect();
  });
}

/** After a guardian's violent end the servers still run: stop them, unless a new start on the folder has. */
async function stopOrphans(folder: string, say: (line: string) => void): Promise<void> {
  const owner = identify(process.pid);
  if (owner === null) return;
  const claims = join(folder, 'lock');
  const lock = await lockFolder({ claims, owner, waitMs: 0, refusal: () => '' }).catch(() => null);
  if (lock === null) return;
  try {
    for (const name of ['postgres', 'redis']) mkdirSync(join(folder, name), { recursive: true, mode: 0o700 });
    await Promise.all([
      stopOrphanedPostgres(join(folder, 'postgres'), say),
      stopOrphanedRedis(join(folder, 'redis'), say),
    ]);
  } finally {
    lock.release();
  }
}

/**
 * Starts a real Postgres and a real Redis (either or both) on a folder. They end with this process, however
 * it ends. Throws LocalStoreError, whose message tells a person what to do.
 */
export async function startLocalStores(options: LocalStoresOptions): Promise<LocalStores> {
  const { postgres, redis, say } = options;
  if (!postgres && !redis) return { databaseUrl: null, redisUrl: null, stop: () => Promise.resolve() };
  const service = identify(process.pid);
  if (process.platform === 'win32' || service === null) {
    const message = `Local stores do not work on ${process.platform}: run this in WSL, or set DATABASE_URL and REDIS_URL.`;
    throw new LocalStoreError('platform-unsupported', message);
  }
  const redisProgram = redis ? (await ensureRedisServer({ say })).path : null;
  const folder = prepareFolder(resolve(options.folder));
  const { postgresArgs = [], redisArgs = [] } = options;
  const guardian = spawnGuardian({ folder, postgres, redis, service, redisProgram, postgresArgs, redisArgs });
  let ready: Ready;
  try {
    ready = await untilReady(guardian, folder, say);
  } catch (error) {
    await endOf(guardian, folder).catch(() => {});
    throw error;
  }
  guardian.unref();
  guardian.channel?.unref();

  let stopped: Promise<void> | null = null;
  guardian.once('exit', (status, signal) => {
    if (stopped !== null) return;
    const how = signal ?? `exit code ${status}`;
    say(`The guardian of the local stores ended unexpectedly (${how}): restart the service.`);
  });
  async function stop(): Promise<void> {
    await endOf(guardian, folder);
    if (guardian.exitCode !== 0) await stopOrphans(folder, say);
  }
  return {
    databaseUrl: ready.databaseUrl,
    redisUrl: ready.redisUrl,
    stop: () => {
      stopped ??= stop();
      return stopped;
    },
  };
}
