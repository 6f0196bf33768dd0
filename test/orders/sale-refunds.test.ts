/** A refund of many orders: more than a batch has, some of which Postgres rejects. Both stores are real. */
import { beforeAll, expect, it } from 'vitest';
import { limits } from '../../src/config/limits.ts';
import { buy, call, createSale, eventually, pay, post } from '../support/client.ts';
import { judge } from '../support/judge.ts';
import { opened } from '../support/opened.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

const WAIT_MS = 300_000;

const stores = opened(openTestStores);
const service = opened(() => startService({ ...envOf(stores), STRATEGY: 'lua' }));
beforeAll(() =>
  stores.sql.query(`CREATE FUNCTION reject() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'not this order' USING ERRCODE = '23514'; END $$`),
);

/** Postgres rejects every change of these orders until the trigger is dropped. */
const rejectOrders = (which: string) =>
  stores.sql.query(
    `CREATE TRIGGER reject BEFORE UPDATE ON orders FOR EACH ROW WHEN (${which}) EXECUTE FUNCTION reject()`,
  );

/** Orders of one unit, paid except each tenth, as the service would have written them. */
const insertOrders = (saleId: number, count: number) =>
  stores.sql.query(
    `WITH placed AS (
       INSERT INTO orders (id, sale_id, user_id, status, price_cents, expires_at, paid_at)
       SELECT gen_random_uuid(), $1, 'user-' || n, CASE WHEN n % 10 = 0 THEN 'pending' ELSE 'paid' END, 500,
         now() + interval '1 hour', CASE WHEN n % 10 = 0 THEN NULL ELSE now() END
       FROM generate_series(1, $2) AS n RETURNING *
     ), earned AS (
       INSERT INTO points_entries (user_id, source_type, source_id, points)
       SELECT user_id, 'order', id::text, points_earned(price_cents) FROM placed
     ), paid AS (
       INSERT INTO payment_notifications (id, order_id, amount_cents, result)
       SELECT 'n-' || id, id, price_cents, 'paid' FROM placed WHERE status = 'paid'
     ), tasks AS (
       INSERT INTO tasks (kind, key, payload, state)
       SELECT kind, kind || ':' || id, json_build_object('orderId', id), 'done' FROM placed, unnest(ARRAY['ship', 'award']) AS kind
       WHERE status = 'paid'
     )
     UPDATE sales SET sold = sold + $2 WHERE id = $1`,
    [saleId, count],
  );

it('goes on past more rejected orders than a batch has, and refunds them when it can', async () => {
  const count = limits.expiryBatch + 20;
  const { id } = await createSale(service.url, count);
  await insertOrders(id, count);
  // All but those of user-9 and user-90 to user-99, who come last.
  await rejectOrders(`NEW.user_id !~ '^user-9'`);
  await post(`${service.url}/sales/${id}/refund`, { returnUnits: false });
  const progress = () => call(`${service.url}/sales/${id}/refund`);
  await eventually(progress, ({ body }) => body.remaining === count - 11);
  const ready = () => call(`${service.url}/readyz`);
  await eventually(ready, ({ body }) => JSON.stringify(body).includes('refunds'));
  const again = { status: 409, problem: 'invalid-transition' };
  expect(await post(`${service.url}/sales/${id}/refund`, {})).toMatchObject(again);
  await stores.sql.query('DROP TRIGGER reject ON orders');
  await eventually(progress, ({ body }) => Boolean(body.finishedAt), WAIT_MS);
  expect(await call(`${service.url}/sales/${id}`)).toMatchObject({ body: { stock: 0, sold: 0 } });
  await expect.poll(() => judge(stores.sql, stores.redis, id)).toMatchObject({ findings: [] });
});

it('covers what was bought since when it is requested again', async () => {
  const { id } = await createSale(service.url, 2);
  await buy(service.url, id, 'first');
  await rejectOrders(`NEW.user_id = 'first'`);
  const request = (body: unknown = {}) => post(`${service.url}/sales/${id}/refund`, body);
  expect(await request(null)).toMatchObject({ status: 400, problem: 'invalid-request' });
  expect(await request()).toMatchObject({ status: 202, body: { orders: 1, remaining: 1 } });
  await buy(service.url, id, 'second');
  expect(await request()).toMatchObject({ status: 202, body: { orders: 2, finishedAt: null } });
  await stores.sql.query('DROP TRIGGER reject ON orders');
  const progress = () => call(`${service.url}/sales/${id}/refund`);
  await eventually(progress, ({ body }) => Boolean(body.finishedAt), WAIT_MS);
  expect(await call(`${service.url}/sales/${id}`)).toMatchObject({ body: { sold: 0 } });
});

it('refunds the other sales while a lock holds one up', async () => {
  const [held, other] = await Promise.all([createSale(service.url, 5), createSale(service.url, 5)]);
  for (const { id } of [held, other]) await buy(service.url, id, 'ann');
  const holder = await stores.sql.connect();
  await holder.query('BEGIN');
  await holder.query('SELECT FROM sales WHERE id = $1 FOR NO KEY UPDATE', [held.id]);
  const progress = (id: number) => () => call(`${service.url}/sales/${id}/refund`);
  for (const { id } of [held, other])
    expect((await post(`${service.url}/sales/${id}/refund`, {})).status).toBe(202);
  // No transaction is open beside the statement that waits: Postgres would end it when it has idled for 3 s.
  const open = async () =>
    (
      await stores.sql.query(
        `SELECT count(*)::int AS waiting, (SELECT count(*)::int FROM pg_locks
           WHERE relation = 'sale_refunds'::regclass AND mode = 'RowShareLock') AS open
         FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%closed AS%'`,
      )
    ).rows[0];
  expect(await eventually(open, ({ waiting }) => waiting > 0)).toEqual({ waiting: 1, open: 0 });
  await eventually(progress(other.id), ({ body }) => Boolean(body.finishedAt));
  expect((await progress(held.id)()).body).toMatchObject({ remaining: 1, finishedAt: null });
  await holder.query('ROLLBACK');
  holder.release();
  await eventually(progress(held.id), ({ body }) => Boolean(body.finishedAt));
});

it('ends the tasks of a refunded order that were not delivered, and refunds a payment that comes later', async () => {
  const { id } = await createSale(service.url, 5);
  const [paid, late] = await Promise.all(['ann', 'bob'].map((user) => buy(service.url, id, user)));
  const [paidId, lateId] = [paid!.body.orderId, late!.body.orderId];
  await pay(service.url, paidId);
  const undelivered = ['ship', 'award'].map((kind) => `${kind}:${paidId}`);
  const tasks = async () =>
    (
      await stores.sql.query(
        'SELECT state, last_error AS error, attempts FROM tasks WHERE key = ANY($1) ORDER BY key DESC',
        [undelivered],
      )
    ).rows;
  await expect.poll(tasks).toMatchObject([{ state: 'done' }, { state: 'done' }]);
  const [ship, award] = (await tasks()).map(({ attempts }) => attempts);
  // One waits, and the other's attempt, of a worker that died an hour ago, is the last.
  await stores.sql.query(
    `UPDATE tasks SET state = CASE kind WHEN 'ship' THEN 'retry' ELSE 'processing' END,
       run_at = now() + interval '1 hour', updated_at = now() + interval '1 hour' WHERE key = ANY($1)`,
    [undelivered],
  );
  await stores.sql.query('UPDATE orders SET expires_at = clock_timestamp() WHERE id = $1', [lateId]);
  const statusOf = async (orderId: unknown) => (await call(`${service.url}/orders/${orderId}`)).body.status;
  await expect.poll(() => statusOf(lateId)).toBe('expired');

  expect((await post(`${service.url}/sales/${id}/refund`, {})).status).toBe(202);
  await eventually(
    () => call(`${service.url}/sales/${id}/refund`),
    ({ body }) => Boolean(body.finishedAt),
  );
  const ended = { state: 'done', error: 'the order was refunded', attempts: ship };
  const inProgress = {
    state: 'processing',
    error: 'the order was refunded during an attempt',
    attempts: award,
  };
  expect(await tasks()).toEqual([ended, inProgress]);
  await stores.sql.query(`UPDATE tasks SET updated_at = now() - interval '1 hour' WHERE key = ANY($1)`, [
    undelivered,
  ]);
  await expect.poll(tasks).toEqual([ended, { ...ended, attempts: award }]);
  await pay(service.url, lateId);
  expect([await statusOf(paidId), await statusOf(lateId)]).toEqual(['refund-due', 'refund-due']);
  await expect.poll(() => judge(stores.sql, stores.redis, id)).toMatchObject({ findings: [] });
});
