/** REDIS_URL=none: a whole service on Postgres alone. The contracts of strategies and tickets are tested elsewhere. */
import { expect, it } from 'vitest';
import { buy, call, createSale, post } from './support/client.ts';
import { startService } from './support/service.ts';
import { envOf, openTestStores } from './support/stores.ts';

it('handles tasks and points without Redis, and reports Postgres as its only store', async () => {
  await using stores = await openTestStores();
  await using service = await startService({ ...envOf(stores), REDIS_URL: 'none' });
  const { id } = await createSale(service.url, 1);
  const { orderId } = (await buy(service.url, id, 'ann')).body;
  const paid = { notificationId: `p-${id}`, orderId, amountCents: 500 };
  expect((await post(`${service.url}/payments/notifications`, paid)).status).toBe(200);
  const states = `SELECT DISTINCT state FROM tasks WHERE payload ->> 'orderId' = $1`;
  await expect.poll(() => stores.sql.query(states, [orderId])).toMatchObject({ rows: [{ state: 'done' }] });
  expect((await call(`${service.url}/users/ann/points`)).body).toMatchObject({ balance: 5 });
  expect((await call(`${service.url}/readyz`)).body).toEqual({ status: 'ok', stores: { postgres: 'ok' } });
  expect((await call(`${service.url}/sales/${id}/audit`)).body).toMatchObject({ agrees: true });
  expect(service.log.join('\n')).not.toMatch(/redis/i);
});
