/** With CONFIRM=accepted: the answer to a customer never names an order that is closed. */
import { expect, it } from 'vitest';
import { attempt, createSale } from '../support/client.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

it('does not answer with a closed order', async () => {
  await using stores = await openTestStores();
  const { sql } = stores;
  await using service = await startService({ ...envOf(stores), STRATEGY: 'lua', CONFIRM: 'accepted' });
  const { id } = await createSale(service.url, 10);
  const { orderId } = (await attempt(service.url, id, 'ann')).body;
  const placed = () => sql.query('SELECT FROM orders WHERE id = $1', [orderId]);
  await expect.poll(placed).toMatchObject({ rowCount: 1 });
  expect((await attempt(service.url, id, 'ann')).body).toMatchObject({ orderId, replayed: true });
  // The state until the change is published to Redis.
  await sql.query(
    `WITH closed AS (UPDATE orders SET status = 'expired', closed_at = now() WHERE id = $1 RETURNING sale_id)
     UPDATE sales SET sold = sold - 1 FROM closed WHERE id = sale_id`,
    [orderId],
  );
  const again = await attempt(service.url, id, 'ann');
  expect(again).toMatchObject({ status: 503, body: { reason: 'order-just-closed' } });
});
