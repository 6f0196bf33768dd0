/**
 * The local stores of a service: a Postgres and a Redis on a folder that no other service uses.
 *
 *   locking ──▶ starting ──both ready──▶ serving ──stop()──▶ stopping ──▶ stopped
 *      │            └─ one failed: the other is stopped ──────────▲
 *      └─ another service has the folder: throws
 *
 * The servers are children of the service, and stop however it ends: see watcher.ts. While serving, nothing here keeps its event loop alive:
 * a service that does not call stop() still exits.
 */
import { accessSync, chmodSync, constants, existsSync, mkdirSync, realpathSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { diskAdvice, inUse, LocalStoreError, systemCode } from './errors.ts';
import { serviceUrlOf } from './postgres-roles.ts';
import { type PostgresServer, startPostgresServer, stopOrphanedPostgres } from './postgres-server.ts';
import { findUsers, identify, type MarkedProcess } from './processes.ts';
import type { LocalRedis } from './redis-install.ts';
import { ensureRedisServer, type RedisServer, startRedisServer, stopOrphanedRedis } from './redis-server.ts';
import { passwordFor, readOrCreateSecret } from './secret.ts';
import { giveToProjectOwner } from './server-account.ts';
import { hasStoreUrls, removeStoreUrls, type StoreUrls, writeStoreUrls } from './urls.ts';
import { Watcher } from './watcher.ts';

/** Covers the stop timeouts of both servers (15 s each). */
const WAIT_FOR_ENDING_MS = 20_000;

/** Running local stores. */
export interface LocalStores extends StoreUrls {
  /** Stops both gracefully and waits for their exit. Repeated calls wait for the same exit. */
  stop(): Promise<void>;
}

export interface LocalStoresOptions {
  /** Contains data, logs and the password. Created when missing. */
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
  const folder = existsSync(path) ? realpathSync(path) : resolve(path);
  const refusal = refusalOf(folder, findUsers(folder));
  if (refusal !== null) throw new LocalStoreError('folder-in-use', refusal);
}

/** Why a folder is not free; null: no service uses it, or one that is starting or stopping. */
function refusalOf(folder: string, users: readonly MarkedProcess[]): string | null {
  const [user] = users;
  const deleted = users.find(({ path }) => !existsSync(path));
  if (deleted !== undefined)
    return `The server of ${deleted.path} belongs to another service (pid ${deleted.owner.pid}), although the folder was deleted. Stop that service (kill ${deleted.owner.pid}). Its stores lose their data then, so copy what you need first.`;
  return user === undefined || !hasStoreUrls(folder) ? null : inUse(folder, user.owner.pid);
}

/** Creates the folder and checks that it is writable. @returns its real path, by which command lines are matched */
function prepareFolder(path: string): string {
  try {
    // Other accounts may enter only where a server's account has to: see server-account.ts.
    createFolder(path, 0o755);
    if (process.platform === 'linux') chmodSync(path, 0o700);
    for (const name of ['', 'postgres', 'redis']) {
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

interface Servers {
  postgres: PostgresServer | null;
  redis: RedisServer | null;
}

interface Wanted extends LocalStoresOptions {
  /** Null: no Redis. */
  readonly redisProgram: string | null;
}

/** Starts both concurrently. `servers` holds each one that started, even when the other failed. */
async function startServers(wanted: Wanted, watcher: Watcher, servers: Servers): Promise<void> {
  const { folder, say, redisProgram, postgresArgs = [], redisArgs = [] } = wanted;
  const [postgresFolder, redisFolder] = [join(folder, 'postgres'), join(folder, 'redis')];
  for (const path of [postgresFolder, redisFolder]) mkdirSync(path, { recursive: true, mode: 0o700 });
  await Promise.all([stopOrphanedPostgres(postgresFolder, say), stopOrphanedRedis(redisFolder, say)]);
  const secret = readOrCreateSecret(folder);
  const startPostgres = async () => {
    const options = { folder: postgresFolder, password: secret, args: postgresArgs, say, watcher };
    servers.postgres = await startPostgresServer(options);
  };
  const startRedis = async (program: string) => {
    const password = passwordFor('redis', secret);
    const options = { folder: redisFolder, password, args: redisArgs, program, say, watcher };
    servers.redis = await startRedisServer(options);
  };
  const starts = [wanted.postgres && startPostgres(), redisProgram !== null && startRedis(redisProgram)];
  const failed = (await Promise.allSettled(starts)).find((result) => result.status === 'rejected');
  if (failed !== undefined) throw failed.reason;
}

/** Starts the stores on a folder that exists. */
async function startIn(wanted: Wanted): Promise<LocalStores> {
  const { folder, say } = wanted;
  const watcher = await Watcher.claim({
    path: folder,
    cwd: folder,
    waitMs: WAIT_FOR_ENDING_MS,
    refusal: (users) => refusalOf(folder, users),
    inUse: (pid) => inUse(folder, pid),
  });
  const servers: Servers = { postgres: null, redis: null };
  let stopped: Promise<void> | null = null;
  async function stopAll(): Promise<void> {
    try {
      removeStoreUrls(folder);
    } catch (error) {
      // A disk that is read-only must not keep the servers running.
      say(`The local stores in ${folder} stop, although this failed: ${(error as Error).message}`);
    }
    await Promise.all([servers.postgres?.stop(), servers.redis?.stop()]);
    await watcher.end();
  }
  const stop = () => {
    stopped ??= stopAll();
    return stopped;
  };
  const reportUnexpectedEnd = (name: string, server: PostgresServer | RedisServer | null) => {
    void server?.ended.then((how) => {
      if (stopped !== null) return;
      const tail = server.tail();
      say(`The local ${name} exited unexpectedly (${how}). Restart the service. Last log lines:\n${tail}`);
    });
  };
  try {
    giveToProjectOwner(folder);
    await startServers(wanted, watcher, servers);
    reportUnexpectedEnd('Postgres', servers.postgres);
    reportUnexpectedEnd('Redis', servers.redis);
    const migrationDatabaseUrl = servers.postgres?.url() ?? null;
    const databaseUrl = migrationDatabaseUrl && serviceUrlOf(migrationDatabaseUrl);
    const urls = { databaseUrl, migrationDatabaseUrl, redisUrl: servers.redis?.url ?? null };
    writeStoreUrls(folder, urls);
    giveToProjectOwner(folder);
    watcher.unref();
    return { ...urls, stop };
  } catch (error) {
    await stop();
    throw error;
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
  if (process.platform === 'win32' || identify(process.pid) === null) {
    const message = `Local stores are not supported on ${process.platform}. Use WSL, or set DATABASE_URL and REDIS_URL.`;
    throw new LocalStoreError('platform-unsupported', message);
  }
  const redisProgram = redis
    ? (await ensureRedisServer({ say, install: options.installRedis ?? 'auto' })).path
    : null;
  const folder = prepareFolder(resolve(options.folder));
  try {
    return await startIn({ ...options, folder, redisProgram });
  } catch (cause) {
    if (cause instanceof LocalStoreError) throw cause;
    const message = `The local stores failed to start: ${(cause as Error).message}. ${diskAdvice(cause, folder) ?? ''}`;
    throw new LocalStoreError('stores-failed', message.trimEnd(), { cause });
  }
}
