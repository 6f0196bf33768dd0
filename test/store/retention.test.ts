/** Which old rows are deleted, and which are kept. Postgres is real. */
import { beforeEach, expect, it } from 'vitest';
import { limits } from '../../src/config/limits.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { createRetention } from '../../src/store/postgres/retention.ts';
import { testHealth } from '../support/background.ts';
import { buy, call, createSale, eventually, pay } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores, published } from '../support/stores.ts';

const DAYS = 30;

const stores = opened(openTestStores);
const postgres = opened(() => openPostgres(stores.databaseUrl, () => {}, { connections: 4 }));
beforeEach(async () => {
  await stores.sql.query(
    'TRUNCATE sales, payment_notifications, tasks, mirror_outbox RESTART IDENTITY CASCADE',
  );
  await stores.sql.query(`INSERT INTO sales (name, price_cents, stock) VALUES ('a', 500, 100000)`);
});

/** A process: its own health and metrics, on shared connections. @param beforeDelete runs before each deletion */
function openProcess(beforeDelete: () => Promise<unknown> = async () => {}) {
  const counts: Record<string, number> = {};
  const failures: string[] = [];
  const background = testHealth((what, error) => failures.push(`${what}: ${(error as Error).message}`));
  const pool = Object.create(postgres.pool, {
    query: {
      async value(text: string, values: unknown[]) {
        const selected = await postgres.pool.query(text, values);
        await beforeDelete();
        return selected;
      },
    },
    connect: { value: () => postgres.pool.connect() },
  });
  const count = (table: string, rows: number) => {
    counts[table] = (counts[table] ?? 0) + rows;
  };
  const retention = createRetention({ pool }, DAYS, count, background.loop('retention'));
  return { run: () => retention.deleteOld(() => false), deleted: counts, failures, background };
}

/** Adds orders that closed `closedDays` ago. @returns the id of the first */
async function addOrder(status: string, closedDays: number | null, count = 1): Promise<string> {
  const { rows } = await stores.sql.query<{ id: string }>(
    `INSERT INTO orders (id, sale_id, user_id, status, price_cents, expires_at, created_at, closed_at)
     SELECT gen_random_uuid(), 1, gen_random_uuid(), $1, 500, now(), now() - interval '1 year', now() - $2 * interval '1 day'
     FROM generate_series(1, $3::int) RETURNING id`,
    [status, closedDays, count],
  );
  return rows[0]!.id;
}
const addNotification = (id: string, orderId: string, days: number) =>
  stores.sql.query(
    `INSERT INTO payment_notifications (id, order_id, amount_cents, received_at)
     VALUES ($1, $2, 500, now() - $3 * interval '1 day')`,
    [id, orderId, days],
  );
const addTask = (key: string, state: string, days: number) =>
  stores.sql.query(
    `INSERT INTO tasks (kind, key, payload, state, run_at, updated_at)
     VALUES ('refund', $1, '{}', $2, now() - interval '1 year', now() - $3 * interval '1 day')`,
    [key, state, days],
  );
const idsOf = async (table: string, column = 'id') =>
  (await stores.sql.query<{ id: string }>(`SELECT ${column}::text AS id FROM ${table}`)).rows
    .map(({ id }) => id)
    .sort();

it('deletes old orders, notifications and tasks, and keeps recent, active and referenced rows', async () => {
  const kept = [
    await addOrder('expired', DAYS - 1),
    await addOrder('pending', null),
    await addOrder('paid', null),
    await addOrder('refund-due', DAYS + 1),
    await addOrder('expired', DAYS + 2),
  ];
  await stores.sql.query(
    `INSERT INTO mirror_outbox (sale_id, change, order_id, user_id) VALUES (1, 'release', $1, 'ann')`,
    [kept[4]],
  );
  await addOrder('expired', DAYS + 1);
  const cancelled = await addOrder('cancelled', DAYS + 1);
  const [sent, owed] = [await addOrder('paid', null), await addOrder('refund-due', null)];
  kept.push(sent, owed);
  await addNotification('young', sent, DAYS - 1);
  await addNotification('of an order', owed, DAYS + 1);
  await addNotification('of a deleted order', cancelled, DAYS - 1);
  await addTask(`refund:${sent}`, 'done', DAYS + 1);
  await addTask('young', 'done', DAYS - 1);
  await addTask(`refund:${owed}`, 'dead', DAYS + 1);
  for (const state of ['waiting', 'queued', 'processing', 'retry']) await addTask(state, state, DAYS + 1);
  await stores.sql.query(
    `INSERT INTO waitlist (sale_id, user_id, joined_at)
     SELECT 1, user_id, now() - days * interval '1 day' FROM (VALUES ('ann', $1 + 1), ('bob', $1 - 1)) AS t (user_id, days)`,
    [DAYS],
  );

  await stores.sql.query(
    `INSERT INTO sales (name, price_cents, stock, starts_at) VALUES ('started', 500, 1, now() - $1 * interval '1 day'), ('coming', 500, 1, 'infinity')`,
    [DAYS + 1],
  );
  await stores.sql.query(`
    WITH groups AS (
      INSERT INTO sale_groups SELECT id, 'fans', now(), true FROM sales WHERE id > 1 RETURNING sale_id
    ), codes AS (
      INSERT INTO sale_codes (sale_id, code, group_name, uses, taken) SELECT sale_id, 'c', 'fans', 2, 2 FROM groups RETURNING sale_id
    ) SELECT FROM codes`);
  await stores.sql.query(
    `INSERT INTO sale_code_uses (sale_id, code, user_id, taken_at)
     SELECT id, 'c', user_id || ' ' || name, now() - days * interval '1 day'
     FROM sales, (VALUES ('old', $1 + 1), ('young', $1 - 1)) AS t (user_id, days) WHERE id > 1`,
    [DAYS],
  );

  const process = openProcess();
  await process.run();
  expect(process.failures).toEqual([]);
  expect(process.deleted).toEqual({
    orders: 2,
    payment_notifications: 1,
    tasks: 1,
    waitlist: 1,
    sale_code_uses: 1,
  });
  expect(await idsOf('sale_code_uses', 'user_id')).toEqual(['old coming', 'young coming', 'young started']);
  expect(await idsOf('waitlist', 'user_id')).toEqual(['bob']);
  expect(await idsOf('orders')).toEqual(kept.sort());
  expect(await idsOf('payment_notifications')).toEqual(['of an order', 'young']);
  expect(await idsOf('tasks', 'key')).toEqual(
    ['young', `refund:${owed}`, 'waiting', 'queued', 'processing', 'retry'].sort(),
  );
});

it('skips a row that is locked, or no longer old once locked', async () => {
  const { sql } = stores;
  const [locked, revived] = [await addOrder('expired', DAYS + 1), await addOrder('expired', DAYS + 1)];
  const client = await sql.connect();
  await client.query('BEGIN');
  await client.query('SELECT FROM orders WHERE id = $1 FOR UPDATE', [locked]);
  const process = openProcess(() =>
    sql.query(`UPDATE orders SET status = 'paid', closed_at = NULL WHERE id = $1`, [revived]),
  );
  await process.run();
  await client.query(`UPDATE orders SET status = 'refund-due' WHERE id = $1`, [locked]);
  await client.query('COMMIT');
  client.release();
  await process.run();
  expect(await idsOf('orders')).toEqual([locked, revived].sort());
  expect(process.failures).toEqual([]); // it did not wait for the lock
});

it('isolates a row that a foreign key protects, and a table that fails', async () => {
  const { sql } = stores;
  const held = await addOrder('expired', DAYS + 9);
  await addOrder('expired', DAYS + 1, 700);
  await sql.query('CREATE TABLE invoices (order_id uuid REFERENCES orders (id))');
  await sql.query('INSERT INTO invoices VALUES ($1)', [held]);
  await addNotification('of a held order', held, DAYS + 1);
  await addTask('old', 'done', DAYS + 1);
  await sql.query('ALTER TABLE waitlist RENAME COLUMN joined_at TO came_at');
  try {
    const process = openProcess();
    const broken: unknown[] = [];
    postgres.pool.on('release', (error) => error && broken.push(error));
    await process.run();
    // Each deletion waits for the end of the one before, whose locks it would otherwise meet: only the failed selection does not.
    expect(broken).toEqual([expect.objectContaining({ message: expect.stringContaining('joined_at') })]);
    expect(await idsOf('orders')).toEqual([held]);
    expect(await idsOf('payment_notifications')).toEqual(['of a held order']);
    expect(await idsOf('tasks', 'key')).toEqual([]);
    expect(process.failures).toEqual([
      expect.stringMatching(`^order ${held}: .*violates foreign key constraint`),
      expect.stringMatching(/^delete from waitlist: .*joined_at/),
    ]);
    expect(process.background.degraded()).toEqual([
      { what: 'retention', detail: expect.stringMatching(/^2 failing; delete from waitlist/) },
    ]);
  } finally {
    await sql.query('DROP TABLE invoices');
    await sql.query('ALTER TABLE waitlist RENAME COLUMN came_at TO joined_at');
  }
});

it('deletes what comes behind more protected rows than a batch has', async () => {
  const { sql } = stores;
  await addOrder('expired', DAYS + 9, limits.retention.batch + 100);
  await sql.query('CREATE TABLE invoices (order_id uuid REFERENCES orders (id))');
  await sql.query('INSERT INTO invoices SELECT id FROM orders');
  await addOrder('expired', DAYS + 1, 3);
  const process = openProcess();
  await process.run();
  expect(process.deleted).toMatchObject({ orders: 3 });
  await sql.query('DROP TABLE invoices');
  const later = openProcess();
  await later.run();
  expect(later.deleted.orders).toBeGreaterThanOrEqual(limits.retention.batch + 100);
});

it('a late or repeated payment changes nothing after what is old was deleted', async () => {
  const { sql } = stores;
  await using service = await startService({ ...envOf(stores), RETENTION_DAYS: String(DAYS) });
  const sale = await createSale(service.url, 2);
  const orderOf = async (user: string) => String((await buy(service.url, sale.id, user)).body.orderId);
  const [paid, expired] = [await orderOf('ann'), await orderOf('ben')];
  expect((await pay(service.url, paid, 'p-1')).status).toBe(200);
  await sql.query(`UPDATE orders SET expires_at = now() WHERE id = $1`, [expired]);
  const order = () => call(`${service.url}/orders/${expired}`);
  await expect.poll(order).toMatchObject({ body: { status: 'expired' } });
  await published(stores);
  await sql.query(
    `UPDATE tasks SET state = 'done', run_at = now() - interval '1 year', updated_at = now() - interval '1 year'`,
  );
  await sql.query(`UPDATE payment_notifications SET received_at = now() - interval '1 year'`);
  await sql.query(`UPDATE orders SET closed_at = now() - interval '1 year' WHERE id = $1`, [expired]);
  // The service deletes old rows, too, and this process skips those that it has locked.
  await eventually(
    async () => {
      await openProcess().run();
      return idsOf('orders');
    },
    (ids) => ids.length === 1,
  );
  expect(await idsOf('orders')).toEqual([paid]);
  expect(await idsOf('payment_notifications')).toEqual(['p-1']);
  expect(await idsOf('tasks')).toEqual([]);

  const points = await idsOf('points_entries');
  const sold = async () => (await call(`${service.url}/sales/${sale.id}`)).body.sold;
  expect((await pay(service.url, paid, 'p-1')).body).toMatchObject({ orderId: paid, status: 'paid' });
  // An earlier version deleted notifications.
  await sql.query('DELETE FROM payment_notifications');
  expect((await pay(service.url, paid, 'p-1')).body).toMatchObject({ orderId: paid, status: 'paid' });
  for (let n = 0; n < 2; n++)
    expect((await pay(service.url, expired, 'p-2')).body).toMatchObject({ reason: 'unknown-order' });
  expect(await idsOf('tasks')).toEqual([]);
  expect(await idsOf('points_entries')).toEqual(points);
  const unmatched = await sql.query('SELECT reason, times FROM unmatched_payments WHERE order_id = $1', [
    expired,
  ]);
  expect(unmatched.rows).toEqual([{ reason: 'unknown-order', times: 2 }]);
  const { rows } = await sql.query('SELECT id, result FROM payment_notifications');
  expect(rows).toEqual([{ id: 'p-1', result: 'none' }]);
  expect(await sold()).toBe(1);
  // The customer of the deleted order may buy again.
  expect((await buy(service.url, sale.id, 'ben')).status).toBeLessThan(300);
});
