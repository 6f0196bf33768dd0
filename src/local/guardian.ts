/**
 * The guardian: a process that runs the local Postgres and Redis and stops them when its service ends, even after `kill -9`.
 *
 *   locking ──▶ starting ──both ready──▶ serving ──channel closed──▶ ending ──▶ exit
 *      └───────────┴──── channel closed, or a failure (reported) ─────▲
 *
 * The channel is an IPC socket whose other end only the service holds. The kernel closes it when the service stops, crashes or
 * is killed, so the guardian needs no polling. The guardian runs in its own session: Ctrl-C in a terminal reaches the service
 * but not the stores. If the guardian itself is killed, the servers become orphans, and the next start on the folder stops
 * them.
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { diskAdvice, inUse, LocalStoreError } from './errors.ts';
import { type FolderLock, lockFolder } from './folder-lock.ts';
import type { GuardianMessage, GuardianOrder } from './guardian-protocol.ts';
import { serviceUrlOf } from './postgres-roles.ts';
import { type PostgresServer, startPostgresServer, stopOrphanedPostgres } from './postgres-server.ts';
import { type RedisServer, startRedisServer, stopOrphanedRedis } from './redis-server.ts';
import { passwordFor, readOrCreateSecret } from './secret.ts';
import { giveToProjectOwner } from './server-account.ts';
import { removeStoreUrls, writeStoreUrls } from './urls.ts';

const WAIT_FOR_ENDING_MS = 20_000;

const order = JSON.parse(process.argv[2] ?? 'null') as GuardianOrder;
const ending = new AbortController();

/** Resolves when the message is handed to the kernel, or when the channel is closed. */
function send(message: GuardianMessage): Promise<void> {
  return new Promise((resolve) => {
    if (!process.connected || process.send === undefined) resolve();
    else process.send(message, undefined, undefined, () => resolve());
  });
}

const say = (line: string) => void send({ stampede: 'progress', line });

interface Servers {
  postgres: PostgresServer | null;
  redis: RedisServer | null;
}

/** Starts both concurrently. `servers` holds each one that started, even when the other failed. */
async function startServers(servers: Servers): Promise<void> {
  const { signal } = ending;
  const postgresFolder = join(order.folder, 'postgres');
  const redisFolder = join(order.folder, 'redis');
  for (const folder of [postgresFolder, redisFolder]) mkdirSync(folder, { recursive: true, mode: 0o700 });
  await Promise.all([stopOrphanedPostgres(postgresFolder, say), stopOrphanedRedis(redisFolder, say)]);
  const secret = readOrCreateSecret(order.folder);
  const starts: Promise<void>[] = [];
  if (order.postgres) {
    const options = { folder: postgresFolder, password: secret, args: order.postgresArgs, say, signal };
    starts.push(
      startPostgresServer(options).then((server) => {
        servers.postgres = server;
      }),
    );
  }
  if (order.redis) {
    const program = order.redisProgram === null ? {} : { program: order.redisProgram };
    const password = passwordFor('redis', secret);
    const options = { folder: redisFolder, password, args: order.redisArgs, say, signal, ...program };
    starts.push(
      startRedisServer(options).then((server) => {
        servers.redis = server;
      }),
    );
  }
  const failed = (await Promise.allSettled(starts)).find((result) => result.status === 'rejected');
  if (failed !== undefined) throw failed.reason;
}

function reportUnexpectedEnd(name: string, server: PostgresServer | RedisServer | null): void {
  void server?.ended.then((how) => {
    if (ending.signal.aborted) return;
    say(
      `The local ${name} exited unexpectedly (${how}). Restart the service. Last log lines:\n${server.tail()}`,
    );
  });
}

async function sendFailure(error: unknown): Promise<void> {
  if (error instanceof LocalStoreError) {
    await send({ stampede: 'failed', code: error.code, message: error.message });
    return;
  }
  console.error(error);
  const message = error instanceof Error ? error.message : String(error);
  await send({
    stampede: 'failed',
    code: 'guardian-failed',
    message:
      `The local stores failed to start: ${message}. ${diskAdvice(error, order.folder) ?? ''}`.trimEnd(),
  });
}

/** Logs an error: a disk that is full or read-only must not keep the servers running. */
function attempt(step: () => void): void {
  try {
    step();
  } catch (error) {
    console.error(error);
  }
}

async function guard(): Promise<void> {
  let lock: FolderLock | null = null;
  const servers: Servers = { postgres: null, redis: null };
  try {
    lock = await lockFolder({
      claims: join(order.folder, 'lock'),
      owner: order.service,
      waitMs: WAIT_FOR_ENDING_MS,
      signal: ending.signal,
      inUseMessage: (ownerPid) => inUse(order.folder, ownerPid),
    });
    giveToProjectOwner(order.folder);
    await startServers(servers);
    reportUnexpectedEnd('Postgres', servers.postgres);
    reportUnexpectedEnd('Redis', servers.redis);
    const migrationDatabaseUrl = servers.postgres?.url() ?? null;
    const databaseUrl = migrationDatabaseUrl && serviceUrlOf(migrationDatabaseUrl);
    const urls = { databaseUrl, migrationDatabaseUrl, redisUrl: servers.redis?.url ?? null };
    writeStoreUrls(order.folder, urls);
    giveToProjectOwner(order.folder);
    await send({ stampede: 'ready', ...urls });
    if (!ending.signal.aborted) {
      await new Promise((resolve) => ending.signal.addEventListener('abort', resolve, { once: true }));
    }
  } catch (error) {
    await sendFailure(error);
  } finally {
    ending.abort();
    if (lock !== null) {
      attempt(lock.markEnding);
      attempt(() => removeStoreUrls(order.folder));
    }
    await Promise.all([servers.postgres?.stop(), servers.redis?.stop()]);
    if (lock !== null) attempt(lock.release);
  }
}

process.stderr.on('error', () => {}); // a full disk refuses the log too, and an unhandled error would end this process at once
process.on('disconnect', () => ending.abort());
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => ending.abort());
// The service may have died before this line; then the event has already fired.
if (!process.connected) ending.abort();

await guard();
process.exit(0);
