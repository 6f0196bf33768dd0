/**
 * Postgres and Redis for the trials: local ones in a temporary folder, or those of DATABASE_URL and REDIS_URL. Every
 * trial has a new database and a Redis without a key of Stampede. On a given server the bench deletes only what it made,
 * and `stampede:*` keys that the user agreed to lose.
 */
import { Cluster, Redis } from 'ioredis';
import pg from 'pg';
import { parseRedisUrl } from '../../src/config/urls/redis.ts';
import { type LocalStores, startLocalStores } from '../../src/local/stores.ts';
import { removeFolder, temporaryFolder } from '../kit/temporary-folder.ts';
import { reasonOf } from '../kit/text.ts';

export interface StoresOptions {
  /** A running Postgres whose user may create databases; undefined: a local one is started. */
  readonly databaseUrl: string | undefined;
  /** A running Redis; undefined: a local one is started. */
  readonly redisUrl: string | undefined;
  /** Keep the databases of the trials, and the folder of a local Postgres. */
  readonly keep: boolean;
  /** `stampede:*` keys in the given Redis may be deleted. */
  readonly mayDelete: boolean;
  readonly say: (line: string) => void;
}

export type BenchStores = Awaited<ReturnType<typeof openStores>>;

export async function openStores(options: StoresOptions) {
  const { keep, mayDelete, say } = options;
  const [postgres, redis] = [options.databaseUrl === undefined, options.redisUrl === undefined];
  const folder = await temporaryFolder('stampede-bench-');
  let local: LocalStores | null = null;
  const stop = async (): Promise<void> => {
    await local?.stop();
    if (keep && postgres) say(`the local stores are kept in ${folder}`);
    else await removeFolder(folder);
  };
  try {
    local = await startLocalStores({ folder, postgres, redis, say });
    const databaseUrl = options.databaseUrl ?? local.migrationDatabaseUrl!;
    const redisUrl = options.redisUrl ?? local.redisUrl!;
    if (!redis && !mayDelete) await refuseForeignKeys(redisUrl);
    const versions = {
      postgres: await postgresVersion(databaseUrl),
      redis: versionIn(await withRedis(redisUrl, (redis) => redis.info('server'))),
    };
    // Distinguishes the databases of this run from those that an earlier run kept.
    const run = Date.now().toString(36);
    return {
      versions,
      /** The postmaster's pid; null: Postgres was given, and may run elsewhere. */
      postgresPid: postgres ? await readPostgresPid(databaseUrl) : null,
      /** Makes a database and empties Redis. `name` distinguishes the databases of a run. */
      fresh: (name: string) =>
        freshStores({ databaseUrl, redisUrl }, { name: `${run}_${name}`, keep, ownRedis: redis }),
      [Symbol.asyncDispose]: stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** The empty stores of one trial. Disposing drops its database. */
async function freshStores(
  { databaseUrl, redisUrl }: { readonly databaseUrl: string; readonly redisUrl: string },
  { name, keep, ownRedis }: { readonly name: string; readonly keep: boolean; readonly ownRedis: boolean },
) {
  const database = `stampede_bench_${name}`;
  const onServer = (text: string) => withPostgres(databaseUrl, (client) => client.query(text));
  const clearRedis = () =>
    withRedis(redisUrl, async (redis) => {
      if (ownRedis) await redis.flushall();
      else for await (const keys of ownKeys(redis)) if (keys.length > 0) await redis.unlink(...keys);
    });
  await onServer(`CREATE DATABASE ${database}`);
  await clearRedis();
  const url = new URL(databaseUrl);
  url.pathname = `/${database}`;
  return {
    databaseUrl: url.href,
    redisUrl,
    [Symbol.asyncDispose]: async () => {
      await clearRedis();
      if (!keep) await onServer(`DROP DATABASE ${database} WITH (FORCE)`);
    },
  };
}

const ownKeys = (redis: Redis): AsyncIterable<string[]> =>
  redis.scanStream({ match: 'stampede:*', count: 1_000 }) as AsyncIterable<string[]>;

/** A Redis that already serves a Stampede must not be emptied under it. */
async function refuseForeignKeys(url: string): Promise<void> {
  await withRedis(url, async (redis) => {
    for await (const [key] of ownKeys(redis)) {
      if (key === undefined) continue;
      throw new Error(
        `REDIS_URL already holds keys of a Stampede (such as ${key}), which the bench would delete. ` +
          'Name another Redis, or say --yes if they may go.',
      );
    }
  });
}

const postgresVersion = (url: string): Promise<string> =>
  withPostgres(url, async (client) => (await client.query('SHOW server_version')).rows[0].server_version);

/** The version in the reply of INFO. */
export function versionIn(info: string): string {
  const valkey = /^valkey_version:(\S+)/m.exec(info)?.[1];
  return valkey === undefined ? (/^redis_version:(\S+)/m.exec(info)?.[1] ?? 'unknown') : `Valkey ${valkey}`;
}

/** The postmaster's pid of a local Postgres, whose files the bench may read. */
const readPostgresPid = (url: string): Promise<number> =>
  withPostgres(url, async (client) => {
    const text = `SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::int AS pid`;
    return (await client.query(text)).rows[0].pid;
  });

const connectTimeoutMs = 10_000;
/** The audit reads the millions of orders that a load may leave. */
const queryTimeoutMs = 120_000;

/** One connection for a few statements. @throws "Postgres: …" */
export async function withPostgres<T>(url: string, use: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({
    connectionString: url,
    connectionTimeoutMillis: connectTimeoutMs,
    query_timeout: queryTimeoutMs,
    application_name: 'stampede-bench',
  });
  client.on('error', () => {}); // the statement in flight fails as well
  try {
    await client.connect().catch((cause) => {
      throw new Error(`Postgres: ${reasonOf(cause)}`, { cause });
    });
    return await use(client);
  } finally {
    await client.end().catch(() => {});
  }
}

/** Not connected yet; every command fails at once when the connection does. */
export function redisClient(url: string): Redis {
  const redis = new Redis(url, {
    lazyConnect: true,
    connectTimeout: connectTimeoutMs,
    commandTimeout: queryTimeoutMs,
    retryStrategy: () => null,
    maxRetriesPerRequest: 0,
    connectionName: 'stampede-bench',
  });
  return redis.on('error', () => {}); // the command in flight fails as well
}

/** Commands on keys are the same as those of one server. */
function clusterClient(hosts: readonly { readonly host: string; readonly port: number }[]): Redis {
  const cluster = new Cluster([...hosts], { lazyConnect: true, clusterRetryStrategy: () => null });
  return cluster.on('error', () => {}) as unknown as Redis; // the command in flight fails as well
}

/** One connection for a few commands, to a server or a cluster. @throws "Redis: …" */
export async function withRedis<T>(url: string, use: (redis: Redis) => Promise<T>): Promise<T> {
  const address = parseRedisUrl(url);
  const isCluster = typeof address === 'object' && address.kind === 'cluster';
  const redis = isCluster ? clusterClient(address.hosts) : redisClient(url);
  try {
    await redis.connect().catch((cause) => {
      throw new Error(`Redis: ${reasonOf(cause)}`, { cause });
    });
    return await use(redis);
  } finally {
    redis.disconnect();
  }
}
