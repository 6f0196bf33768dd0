/** Payments that pay an order, and those that pay none. Bad ones: every-route.test.ts, attacks.test.ts. */
import { beforeAll, expect, it } from 'vitest';
import { buy, call, createSale, post } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { startService } from '../support/service.ts';
import { contentsOf, envOf, openTestStores } from '../support/stores.ts';

const stores = opened(openTestStores);
const service = opened(() => startService(envOf(stores)));
let url: string;
beforeAll(() => {
  url = service.url;
});

it('an order id in capitals is the same order, also in its tasks', async () => {
  const { id } = await createSale(url, 1);
  const orderId = String((await buy(url, id, 'capitals')).body.orderId);
  const notificationId = `capitals-${orderId}`;
  for (const written of [orderId.toUpperCase(), orderId, orderId.toUpperCase()])
    expect(
      await post(`${url}/payments/notifications`, { notificationId, orderId: written, amountCents: 500 }),
    ).toMatchObject({ status: 200, body: { orderId, status: 'paid' } });
  const { rows } = await stores.sql.query('SELECT key FROM tasks WHERE lower(key) LIKE $1', [`%${orderId}`]);
  expect(rows.map(({ key }) => key).sort()).toEqual([`award:${orderId}`, `ship:${orderId}`]);
});

it('a payment that did not buy a unit is refunded, each once', async () => {
  const { id } = await createSale(url, 9);
  const orderOf = async (user: string) => String((await buy(url, id, user)).body.orderId);
  const notify = (notificationId: string, orderId: string) =>
    post(`${url}/payments/notifications`, { notificationId, orderId, amountCents: 500 });
  const owed = async (orderId: string) => {
    const { rows } = await stores.sql.query<{ payment: string }>(
      `SELECT payload->>'paymentNotificationId' AS payment FROM tasks WHERE kind = 'refund' AND payload->>'orderId' = $1`,
      [orderId],
    );
    return rows.map(({ payment }) => payment).sort();
  };
  const [twice, cancelled, revived] = [
    await orderOf('twice'),
    await orderOf('cancelled'),
    await orderOf('revived'),
  ];
  await call(`${url}/orders/${cancelled}/cancel`, { method: 'POST' });
  await stores.sql.query('UPDATE orders SET expires_at = now() WHERE id = $1', [revived]);
  await expect.poll(() => call(`${url}/orders/${revived}`)).toMatchObject({ body: { status: 'expired' } });
  for (const orderId of [twice, cancelled, revived])
    for (const n of [1, 2, 2, 1, 3])
      expect((await notify(`${n} of ${orderId}`, orderId)).body.status).toBe(
        orderId === cancelled ? 'refund-due' : 'paid',
      );
  const paymentsOf = (orderId: string, ...all: number[]) => all.map((n) => `${n} of ${orderId}`);
  expect(await owed(twice)).toEqual(paymentsOf(twice, 2, 3));
  expect(await owed(cancelled)).toEqual(paymentsOf(cancelled, 1, 2, 3));
  expect(await owed(revived)).toEqual(paymentsOf(revived, 2, 3));
});

const known = '00000000-0000-7000-8000-000000000000';
const payment = { notificationId: 'n', orderId: known, amountCents: 500 };

it("a payment that is no order's is recorded once and listed, and takes effect once the order exists", async () => {
  const { id } = await createSale(url, 2);
  const [one, other] = [(await buy(url, id, 'one')).body, (await buy(url, id, 'other')).body];
  const notify = (payment: object) => post(`${url}/payments/notifications`, payment);
  const first = { notificationId: `n-${one.orderId}`, orderId: one.orderId, amountCents: 500 };
  expect(await notify(first)).toMatchObject({ status: 200, body: { status: 'paid' } });
  const before = await contentsOf(stores);
  const unmatched = [
    { reason: 'unknown-order', ...payment },
    { reason: 'amount-mismatch', notificationId: 'less', orderId: other.orderId, amountCents: 499 },
    { reason: 'conflict', ...first, orderId: other.orderId },
    { reason: 'conflict', ...first, amountCents: 499 },
  ];
  for (const { reason, ...given } of [...unmatched, ...unmatched])
    expect(await notify(given)).toMatchObject({ status: 200, body: { result: 'unmatched', reason } });
  expect(await contentsOf(stores)).toBe(before);
  const newestFirst = unmatched.map((one) => ({ ...one, times: 2, actor: 'admin:loopback' })).reverse();
  expect((await call(`${url}/payments/unmatched`)).body).toMatchObject(newestFirst);
  const { rows } = await stores.sql.query(
    `SELECT details FROM (SELECT action, subject, details FROM audit_log
     UNION ALL SELECT action, subject, details FROM audit_pending) AS events
     WHERE action = 'payment.unmatched' AND subject = $1`,
    [`order ${known}`],
  );
  expect(rows.map(({ details }) => JSON.parse(details))).toEqual([
    { notificationId: 'n', amountCents: 500, reason: 'unknown-order' },
  ]);

  const [, newest] = (await call(`${url}/payments/unmatched?limit=2`)).body as unknown as { id: number }[];
  const older = await call(`${url}/payments/unmatched?limit=2&before=${newest!.id}`);
  expect(older.body).toMatchObject(newestFirst.slice(2));

  await stores.sql.query(
    `WITH sold AS (UPDATE sales SET stock = stock + 1, sold = sold + 1 WHERE id = $2)
     INSERT INTO orders (id, sale_id, user_id, status, price_cents, expires_at)
     VALUES ($1, $2, 'late', 'pending', 500, now() + interval '1 hour')`,
    [known, id],
  );
  expect(await notify(payment)).toMatchObject({ status: 200, body: { orderId: known, status: 'paid' } });
  expect((await call(`${url}/payments/unmatched`)).body).toMatchObject(newestFirst.slice(0, 3));
});
