/** Stores of a test file: by default a database cloned on the shared Postgres, and a logical database of the shared Redis. */
import { randomBytes } from 'node:crypto';
import { Redis } from 'ioredis';
import pg from 'pg';
import { expect, inject } from 'vitest';
import type { PostgresPair } from '../../lab/servers/postgres-pair.ts';
import type { Sentinels } from '../../lab/servers/sentinels.ts';
import { serviceUrlOf } from '../../src/local/postgres-roles.ts';
import { openRedis } from '../../src/store/redis/connection.ts';
import { OwnPostgres, OwnRedis } from './servers.ts';

export interface TestStores extends AsyncDisposable {
  /** For the role of the service. */
  readonly databaseUrl: string;
  /** The same database for its owner. */
  readonly ownerUrl: string;
  readonly redisUrl: string;
  readonly redisPort: number;
  /** Connections of the owner, which do not pass the service. */
  readonly sql: pg.Pool;
  readonly redis: Redis;
}

/** With a redis-server that the test may kill, freeze or configure. */
export interface StoresWithRedis extends TestStores {
  readonly redisServer: OwnRedis;
}

/** With both servers. */
export interface OwnStores extends StoresWithRedis {
  readonly postgresServer: OwnPostgres;
}

interface Place {
  readonly url: string;
  close(): Promise<void>;
}

/** What a service needs to use them. Its tasks are done without a receiver. */
export function envOf(stores: Pick<TestStores, 'databaseUrl' | 'redisUrl'>) {
  return { DATABASE_URL: stores.databaseUrl, REDIS_URL: stores.redisUrl, TASK_WEBHOOK_URL: 'none' };
}

export async function openTestStores(): Promise<TestStores> {
  return connect(...(await Promise.all([openDatabase(), takeRedisDatabase()])));
}

export async function openStoresWithRedis(): Promise<StoresWithRedis> {
  const [place, redisServer] = await Promise.all([openDatabase(), OwnRedis.open()]);
  const stores = connect(place, { url: redisServer.url, close: () => redisServer[Symbol.asyncDispose]() });
  return { ...stores, redisServer };
}

/** With a database of this server, which the caller ends. */
export async function openStoresOn(server: OwnPostgres): Promise<TestStores> {
  return connect({ url: await server.database(), close: async () => {} }, await takeRedisDatabase());
}

/** @param servers that give a new database and a whole Redis; by default new ones, which end with the stores */
export async function openOwnStores(
  servers?: Pick<OwnStores, 'postgresServer' | 'redisServer'>,
): Promise<OwnStores> {
  const [postgresServer, redisServer] =
    servers === undefined
      ? await Promise.all([OwnPostgres.open(), OwnRedis.open()])
      : [servers.postgresServer, servers.redisServer];
  const end = async (server: AsyncDisposable) => {
    if (servers === undefined) await server[Symbol.asyncDispose]();
  };
  const stores = connect(
    { url: await postgresServer.database(), close: () => end(postgresServer) },
    { url: redisServer.url, close: () => end(redisServer) },
  );
  return { ...stores, postgresServer, redisServer };
}

/** The stores of `openTestStores`, with a pair of Postgres or a Redis with Sentinels in place of one, which the caller ends. */
export async function openEnsembleStores({
  pair,
  sentinels,
}: {
  readonly pair?: Pick<PostgresPair, 'url' | 'sql'>;
  readonly sentinels?: Sentinels;
}): Promise<TestStores> {
  const shared = await openTestStores();
  const followed = sentinels === undefined ? null : await openRedis(sentinels.url, () => {});
  const databaseUrl = pair?.url ?? shared.databaseUrl;
  const redisUrl = sentinels?.url ?? shared.redisUrl;
  return {
    ...shared,
    databaseUrl,
    redisUrl,
    ...(followed !== null && { redis: followed.redis as Redis }),
    get sql() {
      return pair === undefined ? shared.sql : pair.sql();
    },
    async [Symbol.asyncDispose]() {
      await followed?.close();
      await shared[Symbol.asyncDispose]();
    },
  };
}

function connect(postgres: Place, store: Place): TestStores {
  const sql = new pg.Pool({ connectionString: postgres.url, max: 4, application_name: 'test' });
  // A test may kill the servers, even while it holds a connection.
  sql.on('error', () => {});
  sql.on('connect', (client) => client.on('error', () => {}));
  const redis = new Redis(store.url, { retryStrategy: () => 100 });
  redis.on('error', () => {});
  return {
    databaseUrl: serviceUrlOf(postgres.url),
    ownerUrl: postgres.url,
    sql,
    redisUrl: store.url,
    redisPort: Number(new URL(store.url).port),
    redis,
    async [Symbol.asyncDispose]() {
      redis.disconnect();
      await sql.end();
      await Promise.all([postgres.close(), store.close()]);
    },
  };
}

/**
 * A new database of the shared Postgres.
 * @param how after CREATE DATABASE and its name; by default it is migrated
 * @returns its name, and its URL for the owner of the server
 */
export async function openDatabase(
  how = 'TEMPLATE stampede_template',
): Promise<Place & { readonly name: string }> {
  const name = `test_${randomBytes(6).toString('hex')}`;
  const server = new pg.Client({ connectionString: inject('postgresUrl') });
  await server.connect();
  await server.query(`CREATE DATABASE ${name} ${how}`);
  const url = new URL(inject('postgresUrl'));
  url.pathname = `/${name}`;
  return {
    name,
    url: url.href,
    async close() {
      await server.query(`DROP DATABASE ${name} WITH (FORCE)`);
      await server.end();
    },
  };
}

/** Database 0 counts the databases that were taken. */
async function takeRedisDatabase(): Promise<Place> {
  const redis = new Redis(inject('redisUrl'));
  const number = await redis.incr('databases-taken');
  const url = new URL(inject('redisUrl'));
  url.pathname = `/${number}`;
  return {
    url: url.href,
    async close() {
      await redis.select(number);
      await redis.flushdb();
      redis.disconnect();
    },
  };
}

/** Waits until Redis has each unit that came back: a request answers before, if another process has its change. */
export const published = ({ sql }: Pick<TestStores, 'sql'>) =>
  expect.poll(() => sql.query('SELECT FROM mirror_outbox')).toMatchObject({ rowCount: 0 });

/** Sales, orders and points in the database, as one text. */
export async function contentsOf({ sql }: Pick<TestStores, 'sql'>): Promise<string> {
  const tables = ['sales', 'orders', 'points_entries'];
  const rows = await Promise.all(tables.map((table) => sql.query(`SELECT * FROM ${table} ORDER BY id`)));
  return JSON.stringify(rows.map((result) => result.rows));
}
