/** The audit by counts on stores that agree and on stores that do not; and the statements of strategies. */
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { beforeEach, expect, it } from 'vitest';
import { findPgbench, libpqEnv } from '../../bench/reference/pgbench.ts';
import { insertSales } from '../../bench/reference/sales.ts';
import { pgbenchScript } from '../../bench/reference/statements.ts';
import { auditCounts } from '../../lab/audit/counts.ts';
import { openTestStores, type TestStores } from '../support/stores.ts';
import { bySize } from '../support/tier.ts';

let stores: TestStores;
beforeEach(async () => {
  stores = await openTestStores();
  return () => stores[Symbol.asyncDispose]();
});

const check = (accepted = 0, inRedis = false) => auditCounts({ ...stores, inRedis, accepted });
const keyOf = (sale: number, part: string): string => `stampede:{sale:${sale}}:${part}`;

it('the audit finds counters, orders, points and promises that disagree', async () => {
  const { databaseUrl, sql } = stores;
  await insertSales(databaseUrl, { sales: 2, buyers: 5, stock: 8 });
  expect(await check(10)).toEqual([]);
  expect(await check(11)).toEqual(['11 answers promised an order, Postgres has 10 orders']);
  await sql.query(`DELETE FROM points_entries WHERE ctid IN (SELECT ctid FROM points_entries
    WHERE source_id IN (SELECT id::text FROM orders WHERE sale_id = 2) LIMIT 2)`);
  await sql.query('UPDATE sales SET sold = sold + 1 WHERE id = 1');
  const points = 'sale 2: 5 orders, 3 entries of points';
  expect(await check()).toEqual(['sale 1: sales.sold is 6, active orders have 5 units', points]);
  await sql.query('DROP INDEX orders_one_active_per_customer');
  await sql.query('ALTER TABLE sales DROP CONSTRAINT sales_sold_within_stock');
  await sql.query(`WITH placed AS (
      INSERT INTO orders (id, sale_id, user_id, status, price_cents, expires_at)
      SELECT gen_random_uuid(), 1, 'earlier-1', 'paid', 1, now() FROM generate_series(1, 4) RETURNING id, user_id
    ) INSERT INTO points_entries (user_id, source_type, source_id, points)
      SELECT user_id, 'order', id::text, 1 FROM placed`);
  await sql.query('UPDATE sales SET sold = 9 WHERE id = 1');
  const twice = '1 customer has two orders of one sale';
  expect(await check()).toEqual(['sale 1: sold 9 of 8: 1 oversold', points, twice]);
});

it('the audit finds a Redis with another number of units, or with unsettled reservations', async () => {
  const { databaseUrl, redis } = stores;
  await insertSales(databaseUrl, { sales: 2, buyers: 5, stock: 8 });
  expect(await check(0, true)).toEqual(['Redis has no sale']);
  await redis.hset(keyOf(1, 'state'), 'remaining', 3);
  await redis.hset(keyOf(2, 'segments'), { 0: 1, 1: 2 });
  expect(await check(0, true)).toEqual([]);
  await redis.hset(keyOf(1, 'state'), 'remaining', 4);
  await redis.zadd(keyOf(2, 'reservations'), 1, 'ann x 1');
  expect(await check(0, true)).toEqual([
    'sale 1: Redis would sell 4 more, Postgres 3',
    'sale 2: 1 reservation never settled',
  ]);
});

/** A transaction; a read whose result later statements use; arrays and NULL. */
const CORE = ['for-update', 'optimistic', 'group-commit'];
const OTHERS = ['for-update-prisma', 'unique-key', 'conditional-update', 'advisory-lock', 'skip-locked'];
const pgbench = findPgbench();

it.skipIf(pgbench === null).each(bySize({ core: CORE, full: CORE, nightly: [...CORE, ...OTHERS] }))(
  'the statements of %s sell a unit in each transaction of pgbench',
  async (strategy) => {
    await insertSales(stores.databaseUrl, { sales: 1, buyers: 0, stock: 8 });
    const folder = mkdtempSync(join(tmpdir(), 'stampede-pgbench-'));
    const script = join(folder, `${strategy}.sql`);
    writeFileSync(script, await pgbenchScript(strategy, stores.databaseUrl, 1));
    const shape = ['-n', '-M', 'prepared', '-t', '3', '-D', 'n=0', '-f', script];
    await promisify(execFile)(pgbench!, shape, { env: { ...process.env, ...libpqEnv(stores.databaseUrl) } });
    expect((await stores.sql.query('SELECT sold FROM sales')).rows).toEqual([{ sold: 2 + 3 }]);
    rmSync(folder, { recursive: true });
  },
);
