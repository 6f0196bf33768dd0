/** A waitlist that holds units: its events, its defaults, and the strategies that refuse it. */
import { expect, it } from 'vitest';
import { attempt, buy, call, cancel, createSale, patch, post } from '../support/client.ts';
import { judge } from '../support/judge.ts';
import { openScene } from '../support/scene.ts';
import { published } from '../support/stores.ts';

const bench = openScene();
const wait = (url: string, saleId: number, userId: string) =>
  post(`${url}/sales/${saleId}/waitlist`, { userId });

it('publishes an order that it places, and no unit as free that it holds', async () => {
  const env = { EVENTS: 'all', EVENT_WEBHOOK_URL: 'http://127.0.0.1:9', PAYMENT_WINDOW_S: '300' };
  const { url } = await bench.start({ STRATEGY: 'group-commit', ...env });
  const plain = await createSale(url, 1);
  expect(plain).toMatchObject({ waitlist: 'notify', waitlistHoldS: null });
  const { id } = plain;
  for (const [change, holdS] of [
    [{ waitlist: 'hold' }, 300],
    [{ waitlistHoldS: 30 }, 30],
    [{ waitlist: 'hold' }, 30],
  ] as const)
    expect((await patch(`${url}/sales/${id}`, change)).body).toMatchObject({
      waitlist: 'hold',
      waitlistHoldS: holdS,
    });
  const own = await createSale(url, 1, { waitlist: 'hold', paymentWindowS: 60 });
  expect(own).toMatchObject({ waitlistHoldS: 60 });
  const { orderId } = (await buy(url, id, 'ann')).body;
  await wait(url, id, 'ben');
  await cancel(url, orderId);
  await post(`${url}/sales/${id}/restock`, { units: 2 });
  const { rows } = await bench.stores.sql.query<{ type: string; data: { userId?: string; units?: number } }>(
    `SELECT payload->>'type' AS type, payload->'data' AS data FROM tasks WHERE kind = 'event' ORDER BY id`,
  );
  expect(rows.map(({ type, data }) => `${type} ${data.userId ?? data.units ?? ''}`)).toEqual([
    'order.placed ann',
    'sale.sold-out ',
    'order.cancelled ann',
    'order.placed ben',
    'order.offered ben',
    'sale.units-returned 2',
  ]);
});

it('neither it nor a transfer gives a customer more units than the limit of a group', async () => {
  const { url } = await bench.start({ STRATEGY: 'unique-key' });
  const group = { limitGroup: 'group', maxPerCustomer: 1 };
  const [sale, other] = [
    await createSale(url, 1, { waitlist: 'hold', ...group }),
    await createSale(url, 2, group),
  ];
  const { orderId } = (await buy(url, sale.id, 'ann')).body;
  for (const user of ['ben', 'cyd']) await wait(url, sale.id, user);
  expect((await buy(url, other.id, 'ben')).status).toBe(201);
  const given = await buy(url, other.id, 'dan');
  expect((await cancel(url, orderId)).status).toBe(200);
  const entry = async (user: string) => (await call(`${url}/sales/${sale.id}/waitlist/${user}`)).body;
  expect(await entry('ben')).toMatchObject({ place: 1, orderId: null });
  expect(await entry('cyd')).toMatchObject({ place: null, orderId: expect.any(String) });
  const transfer = (toUserId: string) => post(`${url}/orders/${given.body.orderId}/transfer`, { toUserId });
  const refused = { status: 409, problem: 'customer-limit', body: { limit: 1, left: 0 } };
  expect(await transfer('cyd')).toMatchObject(refused);
  expect(await transfer('ann')).toMatchObject({ status: 200 });
  expect((await buy(url, other.id, 'dan')).problem).toBe('sold-out');
  const { rows } = await bench.stores.sql.query(
    'SELECT user_id AS user, units FROM customer_units ORDER BY user_id',
  );
  expect(rows).toEqual(['ann', 'ben', 'cyd'].map((user) => ({ user, units: 1 })));
});

it('places no order for a customer who leaves while the one before is waited for', async () => {
  const { url } = await bench.start({ STRATEGY: 'unique-key' });
  const { sql } = bench.stores;
  const { id } = await createSale(url, 1, { waitlist: 'hold' });
  await buy(url, id, 'ann');
  for (const user of ['ben', 'cyd']) await wait(url, id, user);
  await sql.query(`ALTER FUNCTION offer_units SET lock_timeout = '1h'`);
  const [purchase, restock] = [await sql.connect(), await sql.connect()];
  await purchase.query('BEGIN');
  await purchase.query(
    `INSERT INTO orders (id, sale_id, user_id, status, price_cents, expires_at) VALUES (gen_random_uuid(), $1, 'ben', 'pending', 1, now())`,
    [id],
  );
  const offered = restock.query('UPDATE sales SET stock = stock + 2 WHERE id = $1', [id]);
  const isWaiting = async () => (await sql.query('SELECT FROM pg_locks WHERE NOT granted')).rowCount;
  await expect.poll(isWaiting, { timeout: 30_000 }).toBe(1);
  expect((await call(`${url}/sales/${id}/waitlist/cyd`, { method: 'DELETE' })).status).toBe(204);
  await purchase.query('ROLLBACK');
  await offered;
  for (const client of [purchase, restock]) client.release();
  const orders = await sql.query('SELECT user_id AS user FROM orders WHERE sale_id = $1 ORDER BY user_id', [
    id,
  ]);
  expect(orders.rows).toEqual([{ user: 'ann' }, { user: 'ben' }]);
  expect((await call(`${url}/sales/${id}`)).body).toMatchObject({ sold: 2, remaining: 1 });
});

it('is refused where Redis decides; a sale that holds already names customers there, and its units are for all', async () => {
  const postgres = await bench.start({ STRATEGY: 'group-commit' });
  const sale = await createSale(postgres.url, 2, { waitlist: 'hold' });
  const first = await buy(postgres.url, sale.id, 'ann');
  await postgres.stop();
  const { url } = await bench.start({ STRATEGY: 'lua' });
  const refused = { status: 409, problem: 'not-supported' };
  const body = { name: 'x', stock: 1, priceCents: 1, waitlist: 'hold' };
  expect(await post(`${url}/sales`, body)).toMatchObject(refused);
  expect(await patch(`${url}/sales/${sale.id}`, { waitlist: 'hold' })).toMatchObject(refused);
  await buy(url, sale.id, 'cyd');
  await bench.untilReserved(sale.id, 0);
  await wait(url, sale.id, 'ben');
  await cancel(url, first.body.orderId);
  await published(bench.stores);
  expect((await call(`${url}/sales/${sale.id}`)).body).toMatchObject({ remaining: 1 });
  await patch(`${url}/sales/${sale.id}`, { paused: true });
  expect((await patch(`${url}/sales/${sale.id}`, { paused: false })).body).toMatchObject({ remaining: 1 });
  // The search for customers to name leaves the unit free, too.
  const entry = async () => (await call(`${url}/sales/${sale.id}/waitlist/ben`)).body;
  await expect.poll(entry, { timeout: 30_000 }).toMatchObject({ namedAt: expect.any(String), orderId: null });
  expect(await attempt(url, sale.id, 'dan')).toMatchObject({ status: 201 });
  await expect
    .poll(() => judge(bench.stores.sql, bench.stores.redis, sale.id))
    .toMatchObject({ sold: 2, findings: [] });
});

it('counts the first thousand who wait', async () => {
  const { url } = await bench.start({ STRATEGY: 'group-commit' });
  const { id } = await createSale(url, 1);
  await buy(url, id, 'ann');
  await bench.stores.sql.query(
    `INSERT INTO waitlist (sale_id, user_id) SELECT $1, 'customer-' || n FROM generate_series(1, 1500) AS n`,
    [id],
  );
  const place = async (user: string) => (await call(`${url}/sales/${id}/waitlist/${user}`)).body.place;
  expect(
    await Promise.all(['customer-1', 'customer-1000', 'customer-1001', 'customer-1500'].map(place)),
  ).toEqual([1, 1000, 1001, 1001]);
  expect((await wait(url, id, 'ben')).body).toMatchObject({ place: 1001 });
});

it('serves the first who can be served, however many before cannot', async () => {
  const { url } = await bench.start({ STRATEGY: 'group-commit' });
  const terms = { waitlist: 'hold', maxPerOrder: 2, limitGroup: 'tour', maxPerCustomer: 2 };
  for (const [quantity, held] of [
    [2, 0],
    [1, 2],
  ]) {
    const { id } = await createSale(url, 1, terms);
    const { orderId } = (await buy(url, id, `ann-${quantity}`)).body;
    const others = [id, `other-${quantity}-`, quantity, held];
    await bench.stores.sql.query(
      `WITH waiting AS (
         INSERT INTO waitlist (sale_id, user_id, quantity) SELECT $1, $2 || n, $3::int FROM generate_series(1, 300) AS n RETURNING user_id
       ) INSERT INTO customer_units (limit_group, user_id, units) SELECT 'tour', user_id, $4::int FROM waiting WHERE $4 > 0`,
      others,
    );
    await wait(url, id, 'ben');
    await cancel(url, orderId);
    const entry = (await call(`${url}/sales/${id}/waitlist/ben`)).body;
    expect(entry).toMatchObject({ orderId: expect.any(String) });
    await cancel(url, entry.orderId);
  }
});

it('serves thousands in steps', async () => {
  const { url } = await bench.start({ STRATEGY: 'group-commit' });
  const { id } = await createSale(url, 1, { waitlist: 'hold' });
  await buy(url, id, 'ann');
  await bench.stores.sql.query(
    `INSERT INTO waitlist (sale_id, user_id) SELECT $1, 'customer-' || n FROM generate_series(1, 2000) AS n`,
    [id],
  );
  const { body } = await post(`${url}/sales/${id}/restock`, { units: 2000 });
  expect(body.sold).toBeLessThan(1000);
  await expect
    .poll(async () => (await call(`${url}/sales/${id}`)).body)
    .toMatchObject({ sold: 2001, remaining: 0 });
});
