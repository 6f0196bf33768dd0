/** Stores of a test file: a cloned database, and a logical database of the shared Redis or a redis-server. */
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Redis } from 'ioredis';
import pg from 'pg';
import { inject } from 'vitest';
import { type RedisServer, startRedisServer } from '../../src/local/redis-server.ts';

export interface TestStores extends AsyncDisposable {
  readonly databaseUrl: string;
  readonly redisUrl: string;
  readonly redisPort: number;
  /** Connections past the service. */
  readonly sql: pg.Pool;
  readonly redis: Redis;
}

/** With a redis-server that the test may kill, freeze or configure. */
export interface StoresWithRedis extends TestStores {
  readonly redisServer: RedisServer;
}

/** Clones the template database, and takes a logical database of the shared Redis. */
export async function openTestStores(): Promise<TestStores> {
  const [postgres, redis] = await Promise.all([cloneDatabase(), takeRedisDatabase()]);
  return together(postgres, redis);
}

/** The same with a redis-server without persistence. */
export async function openStoresWithRedis(): Promise<StoresWithRedis> {
  const [postgres, redis] = await Promise.all([cloneDatabase(), startRedis()]);
  return { ...together(postgres, redis), redisServer: redis.server };
}

interface OpenRedis {
  readonly url: string;
  close(): Promise<void>;
}

function together(postgres: Awaited<ReturnType<typeof cloneDatabase>>, store: OpenRedis): TestStores {
  const redis = new Redis(store.url);
  redis.on('error', () => {}); // a test may kill its server
  return {
    databaseUrl: postgres.url,
    sql: postgres.sql,
    redisUrl: store.url,
    redisPort: Number(new URL(store.url).port),
    redis,
    async [Symbol.asyncDispose]() {
      redis.disconnect();
      await store.close();
      await postgres.close();
    },
  };
}

async function cloneDatabase() {
  const name = `test_${randomBytes(6).toString('hex')}`;
  const server = new pg.Client({ connectionString: inject('postgresUrl') });
  await server.connect();
  await server.query(`CREATE DATABASE ${name} TEMPLATE stampede_template`);
  const url = new URL(inject('postgresUrl'));
  url.pathname = `/${name}`;
  const sql = new pg.Pool({ connectionString: url.href, max: 4 });
  sql.on('error', () => {});
  return {
    url: url.href,
    sql,
    async close() {
      await sql.end();
      await server.query(`DROP DATABASE ${name} WITH (FORCE)`);
      await server.end();
    },
  };
}

/** Database 0 counts those that were taken. */
async function takeRedisDatabase(): Promise<OpenRedis> {
  const counter = new Redis(inject('redisUrl'));
  const number = await counter.incr('databases-taken');
  const url = new URL(inject('redisUrl'));
  url.pathname = `/${number}`;
  return {
    url: url.href,
    async close() {
      await counter.select(number);
      await counter.flushdb();
      counter.disconnect();
    },
  };
}

async function startRedis(): Promise<OpenRedis & { readonly server: RedisServer }> {
  const folder = await mkdtemp(path.join(tmpdir(), 'stampede-test-redis-'));
  const server = await startRedisServer({ folder, args: ['--appendonly', 'no'] });
  return {
    url: server.url,
    server,
    async close() {
      await server.kill();
      await rm(folder, { recursive: true, force: true });
    },
  };
}
