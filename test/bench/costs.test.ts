import { type ChildProcess, execFileSync, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type CostsOptions, startCosts } from '../../bench/costs.ts';
import { openStores } from '../../bench/kit/stores.ts';
import { openTestStores, type TestStores } from '../support/stores.ts';

let stores: TestStores;
let postgresPid: number;
let folder: string;
beforeAll(async () => {
  stores = await openTestStores();
  const { rows } = await stores.sql.query<{ pid: number }>(
    `SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::int AS pid`,
  );
  postgresPid = rows[0]!.pid;
  folder = mkdtempSync(join(tmpdir(), 'stampede-test-costs-'));
});
afterAll(async () => {
  rmSync(folder, { recursive: true, force: true });
  await stores[Symbol.asyncDispose]();
});

const options = (changes: Partial<CostsOptions> = {}): CostsOptions => ({
  servicePid: process.pid,
  databaseUrl: stores.databaseUrl,
  redisUrl: stores.redisUrl,
  postgresPid,
  ...changes,
});

/** With so many attempts CPU is told in seconds. */
const wholeSeconds = 10_000;

/** A process that burns CPU when it is told to, by itself or in a child that lives on or ends, and tells how much. */
const burner = `
  const { fork } = require('node:child_process');
  const burn = (ms) => {
    const begun = process.cpuUsage();
    for (;;) {
      const { user, system } = process.cpuUsage(begun);
      if (user + system >= ms * 1000) return;
    }
  };
  process.on('disconnect', () => process.exit());
  process.on('message', ({ ms, where }) => {
    if (where === 'itself') { burn(ms); process.send('burnt'); return; }
    const child = fork(__filename);
    child.on('exit', () => process.send('burnt'));
    child.on('message', () => where === 'ended child' ? child.disconnect() : process.send('burnt'));
    child.send({ ms, where: 'itself' });
  });`;

function startBurner(): ChildProcess & Disposable {
  const path = join(folder, 'burner.cjs');
  writeFileSync(path, burner);
  const child = fork(path, { execArgv: [] });
  return Object.assign(child, { [Symbol.dispose]: () => void child.kill('SIGKILL') });
}

describe('CPU time', () => {
  it.runIf(process.platform === 'linux').each(['itself', 'living child', 'ended child'])(
    'of the service is what it burnt: %s',
    async (where) => {
      using service = startBurner();
      const burn = async (ms: number): Promise<void> => {
        service.send({ ms, where });
        await once(service, 'message');
      };
      await burn(300);
      const costs = await startCosts(options({ servicePid: service.pid! }));
      await burn(1_000);
      const { cpu } = await costs.stop(wholeSeconds / 2);
      // 1 s for half of 10,000 attempts; a child's own start costs some.
      expect(cpu.service! / 2).toBeGreaterThan(0.8);
      expect(cpu.service! / 2).toBeLessThan(1.2);
    },
  );

  it('of Redis is its own', async () => {
    const redis = new Redis(stores.redisUrl);
    const told = async (): Promise<number> => {
      const info = await redis.info('cpu');
      const part = (name: string): number => Number(new RegExp(`used_cpu_${name}:(\\S+)`).exec(info)![1]);
      return part('sys') + part('user');
    };
    const costs = await startCosts(options());
    const before = await told();
    await redis.eval('local n = 0 for i = 1, 2e7 do n = n + i % 7 end return n', 0);
    const burnt = (await told()) - before;
    const { cpu } = await costs.stop(wholeSeconds);
    expect(burnt).toBeGreaterThan(0.05);
    expect(cpu.redis! / burnt).toBeGreaterThan(0.9);
    expect(cpu.redis! / burnt).toBeLessThan(1.2);
    redis.disconnect();
  });

  it.runIf(process.platform === 'linux').each(['living', 'ended'])(
    'of Postgres counts a backend: %s',
    async (backend) => {
      const client = new pg.Client({ connectionString: stores.databaseUrl });
      await client.connect();
      const costs = await startCosts(options());
      const startMs = performance.now();
      await client.query('SELECT sum(sqrt(n)) FROM generate_series(1, 3000000) n');
      const seconds = (performance.now() - startMs) / 1_000;
      if (backend === 'ended') await endOf(client);
      const { cpu } = await costs.stop(wholeSeconds);
      // Other tests use the same server, and this machine's processors.
      expect(cpu.postgres).toBeGreaterThan(0.2 * seconds);
      if (backend === 'living') await client.end();
    },
  );
});

/** Ends a connection and waits until its backend has ended as well. */
async function endOf(client: pg.Client): Promise<void> {
  const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
  await client.end();
  const count = async (): Promise<unknown> => {
    const found = await stores.sql.query('SELECT FROM pg_stat_activity WHERE pid = $1', [rows[0]!.pid]);
    return found.rowCount;
  };
  await expect.poll(count).toBe(0);
}

describe('commands of Redis', () => {
  it('are counted exactly, those in scripts included', async () => {
    const redis = new Redis(stores.redisUrl);
    await redis.ping();
    const costs = await startCosts(options());
    for (let i = 0; i < 20; i++) await redis.set('k', i); // 20
    await redis.pipeline().get('k').get('k').exec(); // 2
    await redis.multi().set('k', 1).set('k', 2).exec(); // 4
    await redis.eval(`for i = 1, 23 do redis.call('INCR', 'k') end`, 0); // 24
    expect((await costs.stop(10)).redisCommands).toBe(5);
    redis.disconnect();
  });
});

describe('transactions of Postgres', () => {
  it('are counted for a known sequence', async () => {
    const client = new pg.Client({ connectionString: stores.databaseUrl });
    await client.connect();
    await client.query('CREATE TEMP TABLE unit AS SELECT 1 AS n');
    const costs = await startCosts(options());
    for (let i = 0; i < 150; i++) await client.query('SELECT 1');
    for (let i = 0; i < 50; i++) {
      await client.query('BEGIN');
      await client.query('UPDATE unit SET n = n + 1');
      await client.query(i % 2 === 0 ? 'COMMIT' : 'ROLLBACK');
    }
    await endOf(client); // a backend that ends tells at once
    const { postgresTransactions } = await costs.stop(100);
    // Those that looked for the backend's end, and the bench's own.
    expect(postgresTransactions).toBeGreaterThanOrEqual(2);
    expect(postgresTransactions).toBeLessThan(2.2);
  });
});

describe('transactions of a service that goes on', () => {
  it('are hardly missed when it can be asked', async () => {
    const pool = stores.sql; // there must be no other connection that the questions never reach
    const server = createServer(async (request, response) => {
      if (request.url === '/readyz') await pool.query('SELECT 1');
      response.end('{}');
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const load = (): Promise<unknown> =>
      Promise.all(Array.from({ length: 1_000 }, () => pool.query('SELECT count(*) FROM sales')));
    try {
      await load(); // a warm-up, which must not count
      const serviceUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
      const costs = await startCosts(options({ serviceUrl }));
      await load();
      const { postgresTransactions } = await costs.stop(100);
      expect(postgresTransactions).toBeGreaterThan(9.3); // some of the questions need not be counted
      expect(postgresTransactions).toBeLessThan(10.2);
    } finally {
      await new Promise((resolve) => server.close(resolve));
    }
  });
});

describe('the first process of Postgres', () => {
  it('is known where the bench starts it', async () => {
    await using started = await openStores({
      databaseUrl: undefined,
      redisUrl: undefined,
      keep: false,
      mayDelete: false,
      say: () => {},
    });
    const { postgresPid } = started;
    const name = execFileSync('ps', ['-o', 'comm=', '-p', String(postgresPid)], { encoding: 'utf8' });
    expect(name.trim()).toMatch(/postgres$/);
    const backend = await startCosts(options({ postgresPid }));
    expect((await backend.stop(1)).cpu.postgres).not.toBeNull();
  });

  it('is not known for one that was given', async () => {
    await using given = await openStores({
      databaseUrl: stores.databaseUrl,
      redisUrl: stores.redisUrl,
      keep: false,
      mayDelete: true,
      say: () => {},
    });
    expect(given.postgresPid).toBeNull();
  });
});

describe('what cannot be read', () => {
  it('is null: no process, no pid, no store', async () => {
    await using dead = startBurner() as ChildProcess & AsyncDisposable;
    dead.kill('SIGKILL');
    await once(dead, 'exit');
    const costs = await startCosts({
      servicePid: dead.pid!,
      databaseUrl: 'postgresql://nobody:x@127.0.0.1:1/none',
      redisUrl: 'redis://127.0.0.1:1',
      postgresPid: null,
    });
    expect(await costs.stop(100)).toEqual({
      cpu: { service: null, redis: null, postgres: null },
      redisCommands: null,
      postgresTransactions: null,
    });
  });

  it('is null when nothing was attempted', async () => {
    const costs = await startCosts(options());
    expect(await costs.stop(0)).toEqual({
      cpu: { service: null, redis: null, postgres: null },
      redisCommands: null,
      postgresTransactions: null,
    });
  });
});
