/** The audit by counts on stores that agree and on stores that do not; and the statements of strategies. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { auditCounts, settleAll } from '../../bench/audit/counts.ts';
import { measureReference } from '../../bench/kit/pgbench.ts';
import { insertSales } from '../../bench/kit/sales.ts';
import { pgbenchScript, statementsOf } from '../../bench/kit/statements.ts';
import { openTestStores, type TestStores } from '../support/stores.ts';

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

  it('finds nothing wrong with sales as they are prepared', async () => {
    expect(await check(10)).toEqual([]);
    const { rows } = await stores.sql.query('SELECT count(*)::int AS orders FROM orders');
    expect(rows).toEqual([{ orders: 10 }]);
  });

  it('sees orders that were promised and are not there', async () => {
    expect(await check(11)).toEqual(['11 answers promised an order, Postgres has 10 orders']);
  });

  it('sees counters and points that do not agree with the orders', async () => {
    await stores.sql.query(sold, [1]);
    await stores.sql.query(`DELETE FROM points_entries WHERE ctid IN (SELECT ctid FROM points_entries
      WHERE source_id IN (SELECT id::text FROM orders WHERE sale_id = 2) LIMIT 2)`);
    expect(await check()).toEqual([
      'sale 1: sales.sold is 6, active orders are 5',
      'sale 2: 5 orders, 3 entries of points',
    ]);
  });

  it('sees more orders than units, and two orders of a customer', async () => {
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

  it('sees a Redis that would sell another number, or that has not settled', async () => {
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
    let settled = false;
    const wait = settleAll(stores).then(() => {
      settled = true;
    });
    await sleep(300);
    expect(settled).toBe(false);
    await redis.del(keyOf(2, 'reservations'));
    await wait;
  });
});

describe('the statements of a strategy', () => {
  it('are those that the strategy sends, with what their values stand for', async () => {
    await insertSales(stores.databaseUrl, { sales: 1, buyers: 0, stock: 8 });
    const statements = await statementsOf('for-update', stores.databaseUrl, 1);
    const texts = statements.map(({ text }) => text);
    expect(texts[0]).toMatch(/^BEGIN/);
    expect(texts.at(-1)).toMatch(/COMMIT$/);
    expect(texts.some((text) => text.includes('FOR UPDATE'))).toBe(true);
    const stands = statements.flatMap(({ values }) => values.map((value) => value.is));
    for (const part of ['sale', 'customer', 'order']) expect(stands).toContain(part);
    expect(await check(2)).toEqual([]);
  });

  it('become a script in which numbers are variables, and an order has one id', () => {
    const statements = [
      { text: 'SELECT version FROM sales WHERE id = $1', values: [{ is: 'sale' }] },
      {
        text: 'UPDATE sales SET a = $1, b = $2\n  WHERE version = $3 AND c = ANY ($4) AND d = $5',
        values: [
          { is: 'fixed', text: '900' },
          { is: 'fixed', text: "it's" },
          { is: 'version' },
          { is: 'list', of: [{ is: 'customer' }] },
          { is: 'order' },
        ],
      },
    ] as const;
    const lines = pgbenchScript(statements, 7).split('\n');
    expect(lines.slice(0, 5)).toEqual([
      '\\set sale 7',
      '\\set n :n + 1',
      '\\set fixed1 900',
      expect.stringContaining('\\set customer random('),
      'SELECT version FROM sales WHERE id = :sale \\gset',
    ]);
    expect(lines[5]).toMatch(
      /a = :fixed1, b = 'it''s' WHERE version = :version AND c = ANY \(ARRAY\[:customer\]\) AND d = \('019/,
    );
    expect(() => pgbenchScript([{ text: 'SELECT $2', values: [] }], 1)).toThrow('no value $2');
  });

  it('are run by pgbench, or by pg where it is not installed', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'stampede-pgbench-'));
    const { signal } = new AbortController();
    const load = { warmupMs: 1_000, durationMs: 2_000, layout: { server: null }, folder, signal };
    const { perSecond } = await measureReference({
      strategy: 'optimistic',
      databaseUrl: stores.databaseUrl,
      ...load,
    });
    expect(perSecond).toBeGreaterThan(1);
    rmSync(folder, { recursive: true });
  });
});
