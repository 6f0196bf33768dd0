import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { Redis } from 'ioredis';
import pg from 'pg';
import { expect, it } from 'vitest';
import { type FarStores, openFarStores } from '../../lab/far-stores.ts';
import { identify } from '../../src/local/processes.ts';
import { opened } from '../support/opened.ts';
import { openTestStores } from '../support/stores.ts';

const stores = opened(openTestStores);

const open = (rttMs: number): Promise<FarStores> =>
  openFarStores({ databaseUrl: stores.databaseUrl, redisUrl: stores.redisUrl, rttMs });

/** Clients that are connected, have completed their handshake, and give up at the first error. */
async function clientsOf({ databaseUrl, redisUrl }: Pick<FarStores, 'databaseUrl' | 'redisUrl'>) {
  const redis = new Redis(redisUrl, {
    lazyConnect: true,
    retryStrategy: () => null,
    maxRetriesPerRequest: 0,
  });
  const sql = new pg.Client({ connectionString: databaseUrl });
  for (const client of [redis, sql]) client.on('error', () => {});
  await Promise.all([redis.connect(), sql.connect()]);
  return {
    redis,
    sql,
    async [Symbol.asyncDispose]() {
      redis.disconnect();
      await sql.end().catch(() => {});
    },
  };
}

/** The shortest of successive calls, ms. */
async function shortest(times: number, ask: () => Promise<unknown>): Promise<number> {
  let leastMs = Infinity;
  for (let n = 0; n < times; n++) {
    const startMs = performance.now();
    await ask();
    leastMs = Math.min(leastMs, performance.now() - startMs);
  }
  return leastMs;
}

it('far stores are the same databases of the same user, and a round trip takes as long as is set', async () => {
  await using link = await open(20);
  await using clients = await clientsOf(link);
  const { redis, sql } = clients;
  expect(new URL(link.databaseUrl).port).not.toBe(new URL(stores.databaseUrl).port);
  const { rows } = await sql.query('SELECT current_database() AS name, current_user AS "user"');
  const { pathname, username } = new URL(stores.databaseUrl);
  expect(rows).toEqual([{ name: pathname.slice(1), user: username }]);
  expect(await redis.client('INFO')).toContain(` db=${new URL(stores.redisUrl).pathname.slice(1)} `);
  // Of concurrent requests, one may come due while the timer fires for another.
  const tookMs = await Promise.all([
    shortest(20, () => redis.ping()),
    shortest(20, () => sql.query('SELECT 1')),
  ]);
  expect(Math.min(...tookMs)).toBeGreaterThanOrEqual(20);
  await link.delay(200);
  expect(await shortest(1, () => redis.ping())).toBeGreaterThanOrEqual(200);
});

it('round trips are counted for known sequences and connections', async () => {
  await using link = await open(1);
  await using clients = await clientsOf(link);
  await using more = await clientsOf(link);
  const { redis, sql } = clients;
  await sql.query('CREATE TEMP TABLE unit AS SELECT 1 AS n');
  const count = async (work: () => Promise<unknown>) => {
    await link.reset();
    await work();
    return link.roundTrips();
  };
  const both = async () => {
    for (let n = 0; n < 5; n++) await Promise.all([redis.ping(), more.redis.ping()]);
  };
  const transaction = async () => {
    for (const text of ['BEGIN', 'UPDATE unit SET n = n + 1', 'COMMIT']) await sql.query(text);
  };
  expect(await count(async () => {})).toEqual({ redis: 0, postgres: 0 });
  const pipeline = () => redis.pipeline().ping().ping().ping().exec();
  expect(await count(pipeline)).toEqual({ redis: 1, postgres: 0 });
  // Parse, bind and execute go together; an answer of several chunks counts once.
  expect(await count(() => sql.query(`SELECT repeat('x', $1)`, [3_000_000]))).toEqual({
    redis: 0,
    postgres: 1,
  });
  expect(await count(() => Promise.all([both(), transaction()]))).toEqual({ redis: 10, postgres: 3 });
});

it('the end of the proxies is reported, unless it was requested', async () => {
  await using link = await open(0);
  process.kill(link.pid, 'SIGKILL');
  await expect.poll(() => link.died.aborted).toBe(true);
  const other = await open(0);
  await other[Symbol.asyncDispose]();
  expect(identify(other.pid)).toBeNull();
  expect(other.died.aborted).toBe(false);
});

it('the end of their owner by SIGKILL ends them', async () => {
  const module = new URL('../../lab/far-stores.ts', import.meta.url).href;
  const options = JSON.stringify({ databaseUrl: stores.databaseUrl, redisUrl: stores.redisUrl, rttMs: 0 });
  const source = `
    const { openFarStores } = await import(${JSON.stringify(module)});
    const { pid, databaseUrl, redisUrl } = await openFarStores(${options});
    console.log(JSON.stringify({ pid, databaseUrl, redisUrl }));
    setInterval(() => {}, 1_000);`;
  const owner = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', source], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [line] = (await once(createInterface({ input: owner.stdout }), 'line')) as [string];
  const link: FarStores = JSON.parse(line);
  await using clients = await clientsOf(link);
  const closed = once(clients.redis, 'close');
  owner.kill('SIGKILL');
  await expect.poll(() => identify(link.pid)).toBeNull();
  await closed;
});
