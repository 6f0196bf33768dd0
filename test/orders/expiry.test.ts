/** The cost of the search for expired orders, which runs every second beside a sale, and for those of a customer and of a sale. Postgres is real. */
import { beforeAll, expect, it } from 'vitest';
import { createInstruments } from '../../src/metrics/instruments.ts';
import { createLifecycle } from '../../src/orders/lifecycle.ts';
import { orderTable } from '../../src/store/postgres/orders.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { testHealth } from '../support/background.ts';
import { opened } from '../support/opened.ts';
import { openTestStores } from '../support/stores.ts';

const PENDING = 5_000;
const DUE = 3;

const stores = opened(openTestStores);
const postgres = opened(() => openPostgres(stores.databaseUrl, () => {}, { connections: 4 }));
beforeAll(async () => {
  await stores.sql.query(
    `INSERT INTO sales (name, price_cents, stock, sold) VALUES ('a', 100, $1::int, $1::int)`,
    [PENDING + DUE],
  );
  await stores.sql.query(
    `INSERT INTO orders (id, sale_id, user_id, status, price_cents, expires_at)
     SELECT gen_random_uuid(), sales.id, 'user-' || n, 'pending', 100,
       now() + CASE WHEN n <= $2 THEN interval '-1 second' ELSE interval '1 hour' END
     FROM sales, generate_series(1, $1::int) AS n`,
    [PENDING + DUE, DUE],
  );
});

/** Entries that were read from the index of pending orders. */
async function entriesRead(): Promise<number> {
  // A connection reports its statistics on request; this one has run every statement here.
  await postgres.pool.query('SELECT pg_stat_force_next_flush()');
  const { rows } = await stores.sql.query<{ read: number }>(
    `SELECT idx_tup_read::int AS read FROM pg_stat_user_indexes
     WHERE indexrelname = 'orders_pending_expires_at_idx'`,
  );
  return rows[0]!.read;
}

it('reads only the due orders, not every pending one', async () => {
  const lifecycle = createLifecycle({
    postgres,
    orders: orderTable(postgres),
    outbox: null,
    instruments: createInstruments(),
    health: testHealth().loop('expiry'),
  });
  const before = await entriesRead();
  expect(await lifecycle.expireDue()).toBe(DUE);
  const found = await entriesRead();
  expect(found - before).toBeGreaterThanOrEqual(DUE); // this index is used
  for (let passes = 0; passes < 10; passes++) expect(await lifecycle.expireDue()).toBe(0);
  expect((await entriesRead()) - before).toBeLessThan(PENDING / 10);
});

/** Rows of orders that were read. */
async function rowsRead(): Promise<number> {
  for (const pool of [stores.sql, postgres.pool]) await pool.query('SELECT pg_stat_force_next_flush()');
  const { rows } = await stores.sql.query<{ read: number }>(
    `SELECT (seq_tup_read + idx_tup_fetch)::int AS read FROM pg_stat_user_tables WHERE relname = 'orders'`,
  );
  return rows[0]!.read;
}

it('reads the order of a customer, active or closed, and none of others', async () => {
  await stores.sql.query(
    `INSERT INTO points_entries (user_id, source_type, source_id, points)
     SELECT user_id, 'order', id::text, 1 FROM orders WHERE user_id IN ('user-1', 'user-9')`,
  );
  const { rows } = await stores.sql.query<{ id: number }>('SELECT id FROM sales');
  const before = await rowsRead();
  const statusOf = async (user: string) => (await orderTable(postgres).ofUser(rows[0]!.id, user))?.status;
  expect([await statusOf('user-1'), await statusOf('user-9'), await statusOf('none')]).toEqual([
    'expired',
    'pending',
    undefined,
  ]);
  expect((await rowsRead()) - before).toBeLessThan(20);
});

it('counts the unpaid orders of a customer by when Postgres wrote them, whatever the time in their ids', async () => {
  await stores.sql.query(
    `INSERT INTO points_entries (user_id, source_type, source_id, points, created_at)
     SELECT user_id, 'order', id::text, 1, now() - CASE user_id WHEN 'user-20' THEN interval '0' ELSE interval '61 min' END
     FROM orders WHERE user_id IN ('user-20', 'user-21')`,
  );
  const pendingOf = async (user: string) => (await orderTable(postgres).unpaidOf(user, 3_600_000)).pending;
  expect([await pendingOf('user-20'), await pendingOf('user-21')]).toEqual([1, 0]);
});

it('reads a page of the orders of a sale, and none of others', async () => {
  const { rows } = await stores.sql.query<{ id: number }>(
    `INSERT INTO sales (name, price_cents, stock, sold) VALUES ('b', 100, 10, 10) RETURNING id`,
  );
  const { id } = rows[0]!;
  // Some of processes whose clocks are years behind.
  await stores.sql.query(
    `INSERT INTO orders (id, sale_id, user_id, status, price_cents, expires_at)
     SELECT overlay(gen_random_uuid()::text PLACING lpad(n::text, 8, '0') FROM 1)::uuid, $1, n, 'paid', 100, now()
     FROM generate_series(1, 10) AS n`,
    [id],
  );
  const list = async (limit: number, before?: string) => orderTable(postgres).list(id, { limit, before });
  const before = await rowsRead();
  const page = await list(4);
  const rest = await list(100, page.at(-1)!.orderId);
  expect((await rowsRead()) - before).toBe(10);
  expect([...page, ...rest].map(({ userId }) => userId)).toEqual(
    Array.from({ length: 10 }, (_, n) => String(10 - n)),
  );
});
