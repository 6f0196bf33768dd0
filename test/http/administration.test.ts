/** What administrators change while a sale runs. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { attempt, call, createSale, patch } from '../support/client.ts';
import { startService, type TestService } from '../support/service.ts';
import { contentsOf, openTestStores, type TestStores } from '../support/stores.ts';

let stores: TestStores;
let service: TestService;
let url: string;
beforeAll(async () => {
  stores = await openTestStores();
  service = await startService({ DATABASE_URL: stores.databaseUrl, REDIS_URL: stores.redisUrl });
  url = service.url;
});
afterAll(async () => {
  await service?.kill();
  await stores?.[Symbol.asyncDispose]();
});
const everything = () => contentsOf(stores);

describe('terms of a sale', () => {
  it.each<[string, object | null]>([
    ['nothing', {}],
    ['no object', null],
    ['the stock', { stock: 9 }],
    ['no unit for an order', { maxPerOrder: 0 }],
    ['more than a hundred', { maxPerOrder: 101 }],
    ['an end before the start that it has', { endsAt: '2020-01-01T00:00:00Z' }],
    ['orders that are too dear', { priceCents: 1_000_000_000, maxPerOrder: 100 }],
    ['a window of no time', { paymentWindowS: 0 }],
    ['a pause of another type', { paused: 'yes' }],
  ])('do not change by %s', async (_name, body) => {
    const { id } = await createSale(url, 5, { startsAt: '2021-01-01T00:00:00Z' });
    const before = await everything();
    expect(await patch(`${url}/sales/${id}`, body)).toMatchObject({
      status: 400,
      problem: 'invalid-request',
    });
    expect(await everything()).toBe(before);
  });

  it('are changed: later orders have the new price and their time to pay', async () => {
    const sale = await createSale(url, 9, { endsAt: '2030-01-01T00:00:00Z' });
    const orderOf = async (userId: string) => {
      const { orderId } = (await attempt(url, sale.id, userId)).body;
      return (await call(`${url}/orders/${orderId}`)).body;
    };
    const before = await orderOf('before');
    const terms = { name: 'Other', priceCents: 700, endsAt: null, paymentWindowS: 60 };
    expect(await patch(`${url}/sales/${sale.id}`, terms)).toMatchObject({
      status: 200,
      body: { ...terms, stock: 9, sold: 1, maxPerOrder: 1 },
    });
    const order = await orderOf('after');
    expect(order).toMatchObject({ priceCents: 700, amountCents: 700 });
    expect(Date.parse(String(order.expiresAt)) - Date.parse(String(order.createdAt))).toBe(60_000);
    expect(await call(`${url}/orders/${before.orderId}`)).toMatchObject({ body: before });
    expect(await patch(`${url}/sales/424242`, terms)).toMatchObject({ status: 404, problem: 'unknown-sale' });
  });
});
