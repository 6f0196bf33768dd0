/** The audit of bench:limits on stores that agree, and on stores that do not; and what it prepares in them. */
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { checkStores, untilSettled } from '../../bench/limits/audit.ts';
import { keysOf } from '../../bench/limits/sale-keys.ts';
import { insertSales } from '../../bench/limits/sales.ts';
import { statementsOf } from '../../bench/limits/statements.ts';
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

const check = (accepted = 0, inRedis = false) => checkStores({ ...stores, inRedis, accepted });
const sold = 'UPDATE sales SET sold = sold + $1 WHERE id = 1';

describe('the audit', () => {
  beforeEach(() => insertSales(stores.databaseUrl, { sales: 2, buyers: 5, stock: 8 }));

  it('finds nothing wrong with sales as they are prepared', async () => {
    expect(await check(10)).toEqual([]);
    const { rows } = await stores.sql.query('SELECT count(*)::int AS orders FROM orders');
    expect(rows).toEqual([{ orders: 10 }]);
  });

  it('sees orders that were promised and are not there', async () => {
    expect(await check(11)).toEqual(['11 answers promised an order, 10 orders are there']);
  });

  it('sees counters and points that do not agree with the orders', async () => {
    await stores.sql.query(sold, [1]);
    await stores.sql.query(`DELETE FROM points_entries WHERE ctid IN (SELECT ctid FROM points_entries
      WHERE source_id IN (SELECT id::text FROM orders WHERE sale_id = 2) LIMIT 2)`);
    expect(await check()).toEqual([
      'sale 1: sales.sold is 6, orders are 5',
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
    expect(await check()).toEqual(['sale 1: 9 orders for 8 units', '1 customer has two orders of one sale']);
  });

  it('sees a Redis that would sell another number, or that has not settled', async () => {
    expect(await check(0, true)).toEqual(['no sale is in Redis']);
    await redis.hset(keysOf(1).state, 'remaining', 3);
    await redis.hset(keysOf(2).segments, { 0: 1, 1: 2 });
    expect(await check(0, true)).toEqual([]);
    await redis.hset(keysOf(1).state, 'remaining', 4);
    await redis.zadd(keysOf(2).reservations, 1, 'ann x 1');
    expect(await check(0, true)).toEqual([
      'sale 1: Redis would sell 4 more, Postgres 3',
      '1 reservation is not settled',
    ]);
  });

  it('waits until the last reservation of every sale is settled', async () => {
    await redis.zadd(keysOf(2).reservations, 1, 'ann x 1');
    let settled = false;
    const wait = untilSettled(stores, new AbortController().signal).then(() => {
      settled = true;
    });
    await sleep(300);
    expect(settled).toBe(false);
    await redis.del(keysOf(2).reservations);
    await wait;
    await redis.zadd(keysOf(2).reservations, 1, 'ann x 1');
    const stop = new AbortController();
    const stopped = untilSettled(stores, stop.signal);
    stop.abort(new Error('stopped'));
    await expect(stopped).rejects.toThrow('stopped');
  });
});

describe('the statements of for-update', () => {
  it('are those that the strategy sends, with what their values stand for', async () => {
    await insertSales(stores.databaseUrl, { sales: 1, buyers: 0, stock: 8 });
    const statements = await statementsOf(stores.databaseUrl, 1);
    const texts = statements.map(({ text }) => text);
    expect(texts[0]).toMatch(/^BEGIN/);
    expect(texts.at(-1)).toMatch(/COMMIT$/);
    expect(texts.some((text) => text.includes('FOR UPDATE'))).toBe(true);
    const stands = statements.flatMap(({ values }) => values.map((value) => value.is));
    for (const part of ['sale', 'customer', 'order']) expect(stands).toContain(part);
    expect(await check(1)).toEqual([]);
  });
});
