/** With CONFIRM=accepted: the answer to a customer never names an order that is closed, and the order is as it was when it was answered. */
import { expect, it } from 'vitest';
import { attempt, buy, call, createSale, eventually, patch, pay } from '../support/client.ts';
import { whileLocked } from '../support/nemesis.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

it('does not answer with a closed order', async () => {
  await using stores = await openTestStores();
  const { sql } = stores;
  await using service = await startService({ ...envOf(stores), STRATEGY: 'lua', CONFIRM: 'accepted' });
  const { id } = await createSale(service.url, 10);
  const { orderId } = (await buy(service.url, id, 'ann')).body;
  const placed = () => sql.query('SELECT FROM orders WHERE id = $1', [orderId]);
  await expect.poll(placed).toMatchObject({ rowCount: 1 });
  expect((await buy(service.url, id, 'ann')).body).toMatchObject({ orderId, replayed: true });
  // The state until the change is published to Redis: the relay waits for a lock, which is granted with the commit.
  const closing = await sql.connect();
  await closing.query('BEGIN');
  await closing.query(
    `WITH closed AS (UPDATE orders SET status = 'expired', closed_at = now() WHERE id = $1 RETURNING id, sale_id, user_id),
       counted AS (UPDATE sales SET sold = sold - 1 FROM closed WHERE sales.id = sale_id)
     INSERT INTO mirror_outbox (sale_id, change, order_id, user_id) SELECT sale_id, 'release', id, user_id FROM closed`,
    [orderId],
  );
  const again = whileLocked(sql, 'LOCK TABLE mirror_outbox IN EXCLUSIVE MODE', [], () =>
    eventually(
      () => attempt(service.url, id, 'ann'),
      ({ status, body }) => status !== 503 || body.reason === 'order-just-closed',
    ),
  );
  const waiting = `SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND query LIKE 'LOCK TABLE%' AND wait_event_type = 'Lock'`;
  await expect.poll(() => sql.query(waiting)).toMatchObject({ rowCount: 1 });
  await closing.query('COMMIT');
  closing.release();
  expect(await again).toMatchObject({ status: 503, body: { reason: 'order-just-closed' } });
});

it.each(['lua', 'segmented-lock', 'global-lock'])(
  '%s: an order that was answered with 202 keeps the price and the time to pay of that moment',
  async (STRATEGY) => {
    await using stores = await openTestStores();
    await using service = await startService({ ...envOf(stores), STRATEGY, CONFIRM: 'accepted' });
    const terms = { priceCents: 100, paymentWindowS: 60, maxPerOrder: 5 };
    const sale = await createSale(service.url, 10, terms);
    const commitsOf = async (saleId: number, userId: string, changes: object) => {
      const { orderId } = await whileLocked(stores.sql, 'LOCK TABLE orders IN SHARE MODE', [], async () => {
        const { status, body } = await buy(service.url, saleId, userId, 2);
        expect(status).toBe(202);
        expect((await patch(`${service.url}/sales/${saleId}`, changes)).status).toBe(200);
        return body;
      });
      const read = () => call(`${service.url}/orders/${orderId}`);
      await expect.poll(read, { timeout: 30_000 }).toMatchObject({ status: 200 });
      const { body } = await read();
      const windowMs = Date.parse(String(body.expiresAt)) - Date.parse(String(body.createdAt));
      return { orderId, priceCents: body.priceCents, windowS: windowMs / 1_000 };
    };
    const ann = await commitsOf(sale.id, 'ann', { priceCents: 500, paymentWindowS: null });
    expect(ann).toMatchObject({ priceCents: 100, windowS: 60 });
    const paid = { status: 200, body: { status: 'paid', priceCents: 100, amountCents: 200 } };
    expect(await pay(service.url, ann.orderId, 'p-1', 200)).toMatchObject(paid);
    const bob = await commitsOf(sale.id, 'bob', { priceCents: 0, paymentWindowS: 60 });
    expect(bob).toMatchObject({ priceCents: 500, windowS: 900 });
  },
);
