/** What payment notifications and cancellations are refused for, and that they then change nothing. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { attempt, call, createSale, post } from '../support/client.ts';
import { startService, type TestService } from '../support/service.ts';
import { openTestStores, type TestStores } from '../support/stores.ts';

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

/** Everything that is in the database, as one text. */
async function everything(): Promise<string> {
  const tables = ['sales', 'orders', 'points_entries', 'payment_notifications', 'mirror_outbox'];
  const queries = tables.map((table) => `SELECT * FROM ${table} ORDER BY id`);
  queries.push('SELECT id, key, payload FROM tasks ORDER BY id'); // how far they are is their own affair
  const rows = await Promise.all(queries.map((query) => stores.sql.query(query)));
  return JSON.stringify(rows.map((result) => result.rows));
}

describe('bad input gets a problem and changes nothing', () => {
  const known = '00000000-0000-7000-8000-000000000000';
  const payment = { notificationId: 'n', orderId: known, amountCents: 500 };
  it.each([
    ['an unknown order', 404, payment],
    ['an order id that is none', 400, { ...payment, orderId: 'x' }],
    ['no notification id', 400, { ...payment, notificationId: '' }],
    ['a NUL', 400, { ...payment, notificationId: 'n\u0000' }],
    ['a negative amount', 400, { ...payment, amountCents: -1 }],
    ['a fraction', 400, { ...payment, amountCents: 0.5 }],
    ['more than it knows', 400, { ...payment, currency: 'EUR' }],
    ['nothing', 400, {}],
  ])('payment: %s', async (_name, status, body) => {
    const before = await everything();
    expect((await post(`${url}/payments/notifications`, body)).status).toBe(status);
    expect(await everything()).toBe(before);
  });

  it('payment: an order id in capitals is the same order, also in its tasks', async () => {
    const { id } = await createSale(url, 1);
    const orderId = String((await attempt(url, id, 'capitals')).body.orderId);
    const notificationId = `capitals-${orderId}`;
    for (const written of [orderId.toUpperCase(), orderId, orderId.toUpperCase()])
      expect(
        await post(`${url}/payments/notifications`, { notificationId, orderId: written, amountCents: 500 }),
      ).toMatchObject({ status: 200, body: { orderId, status: 'paid' } });
    const { rows } = await stores.sql.query('SELECT key FROM tasks WHERE lower(key) LIKE $1', [
      `%${orderId}`,
    ]);
    expect(rows.map(({ key }) => key).sort()).toEqual([`award:${orderId}`, `ship:${orderId}`]);
  });

  it('payment: an amount that differs from the price, and a repeated id with other contents', async () => {
    const { id } = await createSale(url, 2);
    const [one, other] = [(await attempt(url, id, 'one')).body, (await attempt(url, id, 'other')).body];
    const first = { notificationId: `n-${one.orderId}`, orderId: one.orderId, amountCents: 500 };
    const before = await everything();
    expect(await post(`${url}/payments/notifications`, { ...first, amountCents: 499 })).toMatchObject({
      status: 409,
      problem: 'amount-mismatch',
    });
    expect(await everything()).toBe(before);
    expect((await post(`${url}/payments/notifications`, first)).status).toBe(200);
    for (const more of [{ amountCents: 499 }, { orderId: other.orderId }]) {
      expect(await post(`${url}/payments/notifications`, { ...first, ...more })).toMatchObject({
        status: 409,
        problem: 'idempotency-conflict',
      });
    }
    expect((await call(`${url}/orders/${other.orderId}`)).body).toMatchObject({ status: 'pending' });
  });

  it.each([
    ['an unknown order', 404, known],
    ['an order id that is none', 400, 'x'],
  ])('cancel: %s', async (_name, status, orderId) => {
    const before = await everything();
    expect((await call(`${url}/orders/${orderId}/cancel`, { method: 'POST' })).status).toBe(status);
    expect(await everything()).toBe(before);
  });
});
