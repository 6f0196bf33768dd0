/** The audit by counts on stores that agree and on stores that do not; and the statements of strategies. */
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { Redis } from 'ioredis';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { findPgbench, libpqEnv } from '../../bench/reference/pgbench.ts';
import { insertSales } from '../../bench/reference/sales.ts';
import { pgbenchScript } from '../../bench/reference/statements.ts';
import { auditCounts, settleAll } from '../../lab/audit/counts.ts';
import { openTestStores, type TestStores } from '../support/stores.ts';

const IN_POSTGRES = [
  ...['for-update', 'for-update-prisma', 'unique-key', 'conditional-update', 'optimistic', 'advisory-lock'],
  ...['skip-locked', 'group-commit'],
];
const pgbench = findPgbench();

let stores: TestStores;
let redis: Redis;
beforeEach(async () => {
  stores = await openTestStores();
  redis = new Redis(stores.redisUrl);
});
afterEach(async () => {
  redis.disconnect();
  await stores[Symbol.asyncDispose]();
});

const check = (accepted = 0, inRedis = false) => auditCounts({ ...stores, inRedis, accepted });
const keyOf = (sale: number, part: string): string => `stampede:{sale:${sale}}:${part}`;
const sold = 'UPDATE sales SET sold = sold + $1 WHERE id = 1';

describe('the audit', () => {
  beforeEach(() => insertSales(stores.databaseUrl, { sales: 2, buyers: 5, stock: 8 }));

  it('finds nothing wrong with sales as they are prepared, unless more orders were promised', async () => {
    expect(await check(10)).toEqual([]);
    expect(await check(11)).toEqual(['11 answers promised an order, Postgres has 10 orders']);
  });

  it('finds counters and points that disagree with the orders', async () => {
    await stores.sql.query(sold, [1]);
    await stores.sql.query(`DELETE FROM points_entries WHERE ctid IN (SELECT ctid FROM points_entries
      WHERE source_id IN (SELECT id::text FROM orders WHERE sale_id = 2) LIMIT 2)`);
    expect(await check()).toEqual([
      'sale 1: sales.sold is 6, active orders have 5 units',
      'sale 2: 5 orders, 3 entries of points',
    ]);
  });

  it('finds more orders than units, and two orders of a customer', async () => {
    await stores.sql.query('DROP INDEX orders_one_active_per_customer');
    await stores.sql.query(`WITH placed AS (
        INSERT INTO orders (id, sale_id, user_id, status, price_cents, expires_at)
        SELECT gen_random_uuid(), 1, 'earlier-1', 'paid', 1, now() FROM generate_series(1, 4) RETURNING id, user_id
      ) INSERT INTO points_entries (user_id, source_type, source_id, points)
        SELECT user_id, 'order', id::text, 1 FROM placed`);
    await stores.sql.query('ALTER TABLE sales DROP CONSTRAINT sales_sold_within_stock');
    await stores.sql.query(sold, [4]);
    expect(await check()).toEqual([
      'sale 1: sold 9 of 8: 1 oversold',
      '1 customer has two orders of one sale',
    ]);
  });

  it('finds a Redis with another number of units, or with unsettled reservations', async () => {
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

  it('waits until the last reservation of every sale is settled', async () => {
    await redis.zadd(keyOf(2, 'reservations'), 1, 'ann x 1');
    const settled = settleAll(stores).then(() => 'settled');
    expect(await Promise.race([settled, sleep(300)])).toBeUndefined();
    await redis.del(keyOf(2, 'reservations'));
    await settled;
  });
});

describe('the statements of a strategy', () => {
  it('are a script of the statements that the strategy sends', async () => {
    await insertSales(stores.databaseUrl, { sales: 2, buyers: 0, stock: 8 });
    const script = await pgbenchScript('for-update', stores.databaseUrl, 2);
    expect(script).toMatch(/^\\set sale 2\n\\set n :n \+ 1\n\\set customer random\(.*\nBEGIN/);
    expect(script).toMatch(/ FOR UPDATE[\s\S]*COMMIT;\n$/);
    for (const part of [':sale', ':customer', "('01900000-"]) expect(script).toContain(part);
    expect(script).not.toMatch(/the-second|\$\d/);
    const reads = await pgbenchScript('optimistic', stores.databaseUrl, 1);
    expect(reads).toMatch(/^SELECT .* = :sale \\gset$/m);
    for (const part of [':version', "'2099-"]) expect(reads).toContain(part);
  });

  it.skipIf(pgbench === null).each(IN_POSTGRES)(
    'of %s sell a unit in each transaction of pgbench',
    async (strategy) => {
      await insertSales(stores.databaseUrl, { sales: 1, buyers: 0, stock: 8 });
      const folder = mkdtempSync(join(tmpdir(), 'stampede-pgbench-'));
      const script = join(folder, `${strategy}.sql`);
      writeFileSync(script, await pgbenchScript(strategy, stores.databaseUrl, 1));
      const shape = ['-n', '-M', 'prepared', '-t', '3', '-D', 'n=0', '-f', script];
      await promisify(execFile)(pgbench!, shape, {
        env: { ...process.env, ...libpqEnv(stores.databaseUrl) },
      });
      expect((await stores.sql.query('SELECT sold FROM sales')).rows).toEqual([{ sold: 2 + 3 }]);
      rmSync(folder, { recursive: true });
    },
  );
});
