/** The cost of the search for expired orders, which runs every second beside a sale, and for a customer's. Postgres is real. */
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

it('reads the order of a customer, active or closed, and none of others', async () => {
  await stores.sql.query(
    `INSERT INTO points_entries (user_id, source_type, source_id, points)
     SELECT user_id, 'order', id::text, 1 FROM orders WHERE user_id IN ('user-1', 'user-9')`,
  );
  await stores.sql.query('SELECT pg_stat_force_next_flush()');
  const { rows } = await stores.sql.query<{ id: number }>('SELECT id FROM sales');
  const rowsRead = async () => {
    await postgres.pool.query('SELECT pg_stat_force_next_flush()');
    const { rows } = await stores.sql.query<{ read: number }>(
      `SELECT (seq_tup_read + idx_tup_fetch)::int AS read FROM pg_stat_user_tables WHERE relname = 'orders'`,
    );
    return rows[0]!.read;
  };
  const before = await rowsRead();
  const statusOf = async (user: string) => (await orderTable(postgres).ofUser(rows[0]!.id, user))?.status;
  expect([await statusOf('user-1'), await statusOf('user-9'), await statusOf('none')]).toEqual([
    'expired',
    'pending',
    undefined,
  ]);
  expect((await rowsRead()) - before).toBeLessThan(20);
});
