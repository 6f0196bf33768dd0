/**
 * The service's side of the local stores: prepares the folder, spawns the guardian (guardian.ts) and holds the channel. When
 * the channel closes, the guardian stops both servers.
 *
 *   spawning ──ready──▶ serving ──stop()──▶ channel closed ──guardian exits──▶ stopped
 *      └─ failed, or the guardian exits: throws, nothing is left running
 *
 * While serving, neither the guardian nor the channel keeps the service's event loop alive: a service that does not call
 * stop() still exits, which closes the channel.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import {
  accessSync,
  chmodSync,
  closeSync,
  constants,
  existsSync,
  mkdirSync,
  openSync,
  realpathSync,
} from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { diskAdvice, inUse, LocalStoreError, systemCode } from './errors.ts';
import { type FolderLock, lockFolder, ownerOf } from './folder-lock.ts';
import type { GuardianMessage, GuardianOrder } from './guardian-protocol.ts';
import { stopOrphanedPostgres } from './postgres-server.ts';
import { identify } from './processes.ts';
import type { LocalRedis } from './redis-install.ts';
import { ensureRedisServer, stopOrphanedRedis } from './redis-server.ts';
import type { StoreUrls } from './urls.ts';

/** Covers the stop timeouts of both servers (15 s each). */
const STOP_TIMEOUT_MS = 40_000;

/** Running local stores. */
export interface LocalStores extends StoreUrls {
  /** Stops both gracefully and waits for their exit. Repeated calls wait for the same exit. */
  stop(): Promise<void>;
}

export interface LocalStoresOptions {
  /** Contains data, logs, the lock and the password. Created when missing. */
  readonly folder: string;
  readonly postgres: boolean;
  readonly redis: boolean;
  /** Receives progress messages for the operator. */
  readonly say: (line: string) => void;
  /** Appended to the servers' command lines (tests and benchmarks). */
  readonly postgresArgs?: readonly string[];
  readonly redisArgs?: readonly string[];
  /** Whether a missing Redis may be installed; by default it may. */
  readonly installRedis?: LocalRedis;
}

/** Like `mkdir -p`. For a read-only file system the recursive one of Node reports ENOENT instead of EROFS. */
function createFolder(path: string, mode: number): void {
  try {
    mkdirSync(path, { recursive: true, mode });
  } catch (error) {
    if (systemCode(error) !== 'ENOENT') throw error;
    mkdirSync(path, { mode });
  }
}

/**
 * Checks that no other service uses the stores of a folder. It may begin to do so afterwards; then `startLocalStores` reports it.
 * @throws LocalStoreError `folder-in-use`
 */
export function checkFolder(path: string): void {
  let pid: number | null = null;
  try {
    pid = ownerOf(join(path, 'lock'));
  } catch {
    // `startLocalStores` explains a folder that cannot be read
  }
  if (pid !== null) throw new LocalStoreError('folder-in-use', inUse(resolve(path), pid));
}

/** Creates the folder and checks that it is writable. @returns its real path, by which command lines are matched */
function prepareFolder(path: string): string {
  try {
    // Other accounts may enter only where a server's account has to: see server-account.ts.
    createFolder(path, 0o755);
    if (process.platform === 'linux') chmodSync(path, 0o700);
    for (const name of ['', 'postgres', 'redis', 'lock']) {
      const folder = join(path, name);
      if (existsSync(folder)) accessSync(folder, constants.W_OK | constants.X_OK);
    }
    return realpathSync(path);
  } catch (cause) {
    throw unusable(path, cause);
  }
}

function unusable(path: string, cause: unknown): LocalStoreError {
  const { uid, gid } = { uid: process.getuid?.(), gid: process.getgid?.() };
  const chown = `If an earlier run as another user (root?) created it, change its owner with: sudo chown -R ${uid}:${gid} '${path}'`;
  return new LocalStoreError(
    'folder-unusable',
    `The local stores cannot write to ${path}: ${(cause as Error).message}. ${diskAdvice(cause, path) ?? chown}`,
    { cause },
  );
}

const GUARDIAN = fileURLToPath(new URL('../../dist/programs/guardian.js', import.meta.url));

function openLog(folder: string): number {
  try {
    return openSync(join(folder, 'guardian.log'), 'a', 0o600);
  } catch (cause) {
    throw unusable(folder, cause);
  }
}

function spawnGuardian(order: GuardianOrder): ChildProcess {
  const log = openLog(order.folder);
  try {
    return spawn(process.execPath, [GUARDIAN, JSON.stringify(order)], {
      cwd: order.folder,
      detached: true,
      stdio: ['ignore', log, log, 'ipc'],
    });
  } finally {
    closeSync(log);
  }
}

type Ready = Extract<GuardianMessage, { stampede: 'ready' }>;

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
          `The guardian of the local stores exited (${how}). See ${log}.`,
        ),
      );
    });
    guardian.on('message', (message: GuardianMessage) => {
      if (message.stampede === 'progress') say(message.line);
      else if (message.stampede === 'ready') resolve(message);
      else if (message.stampede === 'failed') reject(new LocalStoreError(message.code, message.message));
    });
  });
}

/** Closes the channel and waits for the guardian to exit. */
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

const isInUse = (error: unknown) => error instanceof LocalStoreError && error.code === 'folder-in-use';

/**
 * Stops the servers that a killed guardian left behind, unless a new start on the folder has done so. A disk that is full or
 * read-only refuses the lock. Servers of another guardian are left alone without it too: see orphans.ts.
 */
async function stopOrphans(folder: string, say: (line: string) => void): Promise<void> {
  const owner = identify(process.pid);
  if (owner === null) return;
  const claims = join(folder, 'lock');
  let lock: FolderLock | null = null;
  try {
    lock = await lockFolder({ claims, owner, waitMs: 0, inUseMessage: () => '' });
  } catch (error) {
    if (isInUse(error)) return;
    say(`The local stores in ${folder} stop without their lock: ${(error as Error).message}`);
  }
  try {
    for (const name of ['postgres', 'redis']) mkdirSync(join(folder, name), { recursive: true, mode: 0o700 });
    await Promise.all([
      stopOrphanedPostgres(join(folder, 'postgres'), say),
      stopOrphanedRedis(join(folder, 'redis'), say),
    ]);
  } catch (error) {
    if (lock !== null || !isInUse(error)) throw error;
  } finally {
    lock?.release();
  }
}

/**
 * Starts a Postgres, a Redis, or both on a folder. They stop when this process ends for any reason.
 * @throws LocalStoreError
 */
export async function startLocalStores(options: LocalStoresOptions): Promise<LocalStores> {
  const { postgres, redis, say } = options;
  if (!postgres && !redis) {
    const none = { databaseUrl: null, migrationDatabaseUrl: null, redisUrl: null };
    return { ...none, stop: () => Promise.resolve() };
  }
  const service = identify(process.pid);
  if (process.platform === 'win32' || service === null) {
    const message = `Local stores are not supported on ${process.platform}. Use WSL, or set DATABASE_URL and REDIS_URL.`;
    throw new LocalStoreError('platform-unsupported', message);
  }
  const redisProgram = redis
    ? (await ensureRedisServer({ say, install: options.installRedis ?? 'auto' })).path
    : null;
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
    say(`The guardian of the local stores exited unexpectedly (${how}). Restart the service.`);
  });
  async function stop(): Promise<void> {
    await endOf(guardian, folder);
    if (guardian.exitCode !== 0) await stopOrphans(folder, say);
  }
  return {
    databaseUrl: ready.databaseUrl,
    migrationDatabaseUrl: ready.migrationDatabaseUrl,
    redisUrl: ready.redisUrl,
    stop: () => {
      stopped ??= stop();
      return stopped;
    },
  };
}
