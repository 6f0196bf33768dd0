/**
 * Postgres and Redis for the trials: local ones in a temporary folder, or those of DATABASE_URL and REDIS_URL. Every
 * trial has a new database and a Redis without a key of Stampede. On a server that was given, nothing
 * is dropped or deleted that the bench did not make, except `stampede:*` keys that the user agreed to lose. The servers
 * of REDLOCK_URLS and ZOOKEEPER_URL are not stores: what locks leave there ends by itself.
 */
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import pg from 'pg';
import { startLocalStores } from '../../src/local/stores.ts';

export interface StoresOptions {
  /** A running Postgres whose user may create databases; undefined: a local one is started. */
  readonly databaseUrl: string | undefined;
  /** A running Redis; undefined: a local one is started. */
  readonly redisUrl: string | undefined;
  /** Keep the databases of the trials (and the folder of a local Postgres). */
  readonly keep: boolean;
  /** `stampede:*` keys in the given Redis may be deleted. */
  readonly mayDelete: boolean;
  readonly say: (line: string) => void;
}

/** The empty stores of one trial. Disposing drops its database. */
interface TrialStores extends AsyncDisposable {
  readonly databaseUrl: string;
  readonly redisUrl: string;
}

export interface BenchStores extends AsyncDisposable {
  readonly versions: { readonly postgres: string; readonly redis: string };
  /** The first process of Postgres; null: it was given, and may run elsewhere. */
  readonly postgresPid: number | null;
  /** Makes a database and empties Redis. `name` tells the databases of a run apart. */
  fresh(name: string): Promise<TrialStores>;
}

const connectTimeoutMs = 10_000;
/** The audit reads the millions of orders that a load may leave. */
const queryTimeoutMs = 120_000;
/** Keys asked for and deleted at a time. */
const scanCount = 1_000;

export async function openStores(options: StoresOptions): Promise<BenchStores> {
  const local = await startMissing(options);
  try {
    const databaseUrl = options.databaseUrl ?? local.databaseUrl;
    const redisUrl = options.redisUrl ?? local.redisUrl;
    if (databaseUrl === null || redisUrl === null) throw new Error('a local store was not started');
    if (options.redisUrl !== undefined && !options.mayDelete) await refuseForeignKeys(redisUrl);
    const ownRedis = options.redisUrl === undefined;
    const versions = { postgres: await postgresVersion(databaseUrl), redis: await redisVersion(redisUrl) };
    const pid = options.databaseUrl === undefined ? await readPostgresPid(databaseUrl) : null;
    // Distinguishes the databases of this run from those that an earlier run kept.
    const run = Date.now().toString(36);
    return {
      versions,
      postgresPid: pid,
      fresh: (name) => freshStores({ databaseUrl, redisUrl, ownRedis, keep: options.keep }, `${run}_${name}`),
      [Symbol.asyncDispose]: local.stop,
    };
  } catch (error) {
    await local.stop();
    throw error;
  }
}

interface LocalStores {
  readonly databaseUrl: string | null;
  readonly redisUrl: string | null;
  stop(): Promise<void>;
}

async function startMissing({ databaseUrl, redisUrl, keep, say }: StoresOptions): Promise<LocalStores> {
  const postgres = databaseUrl === undefined;
  const redis = redisUrl === undefined;
  if (!postgres && !redis) return { databaseUrl: null, redisUrl: null, stop: async () => {} };
  const folder = await mkdtemp(join(tmpdir(), 'stampede-bench-'));
  await chmod(folder, 0o755); // As root, Postgres runs as another account and must be able to enter.
  const remove = async (): Promise<void> => {
    if (keep && postgres) say(`the local stores are kept in ${folder}`);
    else await rm(folder, { recursive: true, force: true });
  };
  try {
    const stores = await startLocalStores({ folder, postgres, redis, say });
    const stop = async (): Promise<void> => {
      await stores.stop();
      await remove();
    };
    return { databaseUrl: stores.databaseUrl, redisUrl: stores.redisUrl, stop };
  } catch (error) {
    await remove();
    throw error;
  }
}

interface Servers {
  readonly databaseUrl: string;
  readonly redisUrl: string;
  readonly ownRedis: boolean;
  readonly keep: boolean;
}

async function freshStores(servers: Servers, name: string): Promise<TrialStores> {
  const database = `stampede_bench_${name}`;
  await withPostgres(servers.databaseUrl, (client) => client.query(`CREATE DATABASE ${database}`));
  const clearRedis = (): Promise<void> =>
    withRedis(servers.redisUrl, async (redis) => {
      if (servers.ownRedis) await redis.flushall();
      else await deleteOwnKeys(redis);
    });
  await clearRedis();
  const url = new URL(servers.databaseUrl);
  url.pathname = `/${database}`;
  return {
    databaseUrl: url.href,
    redisUrl: servers.redisUrl,
    [Symbol.asyncDispose]: async () => {
      await clearRedis();
      if (servers.keep) return;
      await withPostgres(servers.databaseUrl, (client) =>
        client.query(`DROP DATABASE ${database} WITH (FORCE)`),
      );
    },
  };
}

/** A Redis that already serves a Stampede must not be emptied under it. */
async function refuseForeignKeys(url: string): Promise<void> {
  const found = await withRedis(url, async (redis) => {
    for await (const keys of ownKeys(redis)) {
      if (keys.length > 0) return keys[0];
    }
    return undefined;
  });
  if (found === undefined) return;
  throw new Error(
    `the Redis of REDIS_URL already holds keys of a Stampede (such as ${found}), which the bench would delete. ` +
      'Give it a Redis of its own, or say --yes if they may go.',
  );
}

async function deleteOwnKeys(redis: Redis): Promise<void> {
  for await (const keys of ownKeys(redis)) {
    if (keys.length > 0) await redis.unlink(...keys);
  }
}

function ownKeys(redis: Redis): AsyncIterable<string[]> {
  return redis.scanStream({ match: 'stampede:*', count: scanCount }) as AsyncIterable<string[]>;
}

async function postgresVersion(url: string): Promise<string> {
  return withPostgres(url, async (client) => {
    const { rows } = await client.query<{ server_version: string }>('SHOW server_version');
    return rows[0]?.server_version ?? 'unknown';
  });
}

async function redisVersion(url: string): Promise<string> {
  const info = await withRedis(url, (redis) => redis.info('server'));
  const valkey = /^valkey_version:(\S+)/m.exec(info)?.[1];
  return valkey === undefined ? (/^redis_version:(\S+)/m.exec(info)?.[1] ?? 'unknown') : `Valkey ${valkey}`;
}

/** Of a local Postgres, where the bench may read every file of it. */
async function readPostgresPid(url: string): Promise<number | null> {
  return withPostgres(url, async (client) => {
    const { rows } = await client.query<{ pid: number }>(
      `SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::int AS pid`,
    );
    return rows[0]?.pid ?? null;
  });
}

export async function withPostgres<T>(url: string, use: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({
    connectionString: url,
    connectionTimeoutMillis: connectTimeoutMs,
    query_timeout: queryTimeoutMs,
    application_name: 'stampede-bench',
  });
  client.on('error', () => {}); // A connection that breaks fails the query in flight.
  try {
    await client.connect();
    return await use(client);
  } catch (cause) {
    throw new Error(`Postgres: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
  } finally {
    await client.end().catch(() => {});
  }
}

export async function withRedis<T>(url: string, use: (redis: Redis) => Promise<T>): Promise<T> {
  const redis = new Redis(url, {
    lazyConnect: true,
    connectTimeout: connectTimeoutMs,
    commandTimeout: queryTimeoutMs,
    retryStrategy: () => null,
    maxRetriesPerRequest: 0,
    connectionName: 'stampede-bench',
  });
  redis.on('error', () => {}); // The command in flight fails as well.
  try {
    await redis.connect();
    return await use(redis);
  } catch (cause) {
    throw new Error(`Redis: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
  } finally {
    redis.disconnect();
  }
}
