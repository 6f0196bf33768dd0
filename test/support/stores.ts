/** Real stores of a test file's own: a cloned database and a redis-server. */
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import pg from 'pg';
import { inject } from 'vitest';
import { type RedisServer, startRedisServer } from '../../src/local/redis-server.ts';

export interface TestStores extends AsyncDisposable {
  readonly databaseUrl: string;
  readonly redisUrl: string;
  readonly redisServer: RedisServer;
  /** A connection for looking into the database. */
  readonly sql: pg.Pool;
}

/** Makes a database from the template, and starts a Redis without persistence. */
export async function openTestStores(): Promise<TestStores> {
  const name = `test_${randomBytes(6).toString('hex')}`;
  const server = new pg.Client({ connectionString: inject('postgresUrl') });
  await server.connect();
  await server.query(`CREATE DATABASE ${name} TEMPLATE stampede_template`);
  const url = new URL(inject('postgresUrl'));
  url.pathname = `/${name}`;
  const folder = await mkdtemp(path.join(tmpdir(), 'stampede-test-redis-'));
  const redisServer = await startRedisServer({ folder, args: ['--appendonly', 'no'] });
  const sql = new pg.Pool({ connectionString: url.href, max: 4 });
  sql.on('error', () => {});
  return {
    databaseUrl: url.href,
    redisUrl: redisServer.url,
    redisServer,
    sql,
    async [Symbol.asyncDispose]() {
      await sql.end();
      await redisServer.kill();
      await rm(folder, { recursive: true, force: true });
      await server.query(`DROP DATABASE ${name} WITH (FORCE)`);
      await server.end();
    },
  };
}
