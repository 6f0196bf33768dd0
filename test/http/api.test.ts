/** The routes of one service: what they answer. Bad input: every-route.test.ts. */
import { beforeAll, describe, expect, it } from 'vitest';
import { type Answer, attempt, buy, call, createSale, eventually, post } from '../support/client.ts';
import { ROUTES } from '../support/every-route.ts';
import { opened } from '../support/opened.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

const stores = opened(openTestStores);
const service = opened(() => startService(envOf(stores)));
let url: string;
beforeAll(() => {
  url = service.url;
});
it('a cut below what is sold is refused, and Redis still sells all', async () => {
  const { id } = await createSale(url, 2);
  expect(await post(`${url}/sales/${id}/restock`, { units: -3 })).toMatchObject({ problem: 'below-sold' });
  for (const user of ['a', 'b']) expect((await buy(url, id, user)).status).toBeLessThan(300);
  expect((await buy(url, id, 'c')).problem).toBe('sold-out');
});

describe('sales', () => {
  it('are made, listed newest first, and read', async () => {
    const window = { startsAt: '2030-01-01T00:00:00+02:00', endsAt: '2030-01-02T00:00:00Z' };
    const made = await createSale(url, 7, window);
    expect(made).toEqual({
      id: made.id,
      name: 'test',
      priceCents: 500,
      maxPerOrder: 1,
      paused: false,
      paymentWindowS: null,
      stock: 7,
      sold: 0,
      remaining: 7,
      startsAt: '2029-12-31T22:00:00.000Z',
      endsAt: '2030-01-02T00:00:00.000Z',
    });
    expect((await call(`${url}/sales/${made.id}`)).body).toEqual(made);
    const list = (await call(`${url}/sales`)).body as unknown as { id: number }[];
    expect(list[0]).toEqual(made);
  });

  it('may have no stock at all', async () => {
    const { id } = await createSale(url, 0);
    expect((await buy(url, id, 'u')).problem).toBe('sold-out');
    await post(`${url}/sales/${id}/restock`, { units: 1 });
    expect((await buy(url, id, 'u')).status).toBeLessThan(300);
  });
});

describe('orders', () => {
  it('are read by id and by customer', async () => {
    const { id } = await createSale(url, 1);
    const { body } = await buy(url, id, 'reader');
    const order = await call(`${url}/orders/${body.orderId}`);
    expect(order.body).toMatchObject({
      saleId: id,
      userId: 'reader',
      status: 'pending',
      paidAt: null,
      closedAt: null,
    });
    const window = Date.parse(String(order.body.expiresAt)) - Date.parse(String(order.body.createdAt));
    expect(window).toBe(900_000);
    expect((await call(`${url}/sales/${id}/orders?userId=reader`)).body).toEqual(order.body);
    expect((await call(`${url}/sales/${id}/orders?userId=other`)).problem).toBe('unknown-order');
    expect((await call(`${url}/sales/${id}/orders?userId=`)).problem).toBe('invalid-request');
  });
});

describe('points', () => {
  const award = { sourceType: 'review', sourceId: '42', points: 30 };

  it('are added once per source, however often they are sent', async () => {
    const send = () => post(`${url}/users/ann/points`, award);
    const isFinal = ({ status }: Answer) => status !== 503; // on a busy machine a request may wait too long for a connection
    const answers = await Promise.all(Array.from({ length: 20 }, () => eventually(send, isFinal)));
    expect(answers.filter((answer) => answer.status === 201).length).toBeLessThanOrEqual(1);
    expect(answers.filter((answer) => ![200, 201].includes(answer.status))).toEqual([]);
    expect(new Set(answers.map((answer) => JSON.stringify(answer.body))).size).toBe(1);
    const account = (await call(`${url}/users/ann/points`)).body;
    expect(account).toMatchObject({ balance: 30, entries: [{ ...award }] });
  });

  it('conflict when one source comes with other points', async () => {
    await post(`${url}/users/ben/points`, award);
    const answer = await post(`${url}/users/ben/points`, { ...award, points: 31 });
    expect(answer).toMatchObject({ status: 409, problem: 'idempotency-conflict' });
    expect((await call(`${url}/users/ben/points`)).body).toMatchObject({ balance: 30 });
  });

  it('are earned with an order, once', async () => {
    const { id } = await createSale(url, 1, { priceCents: 1250 });
    const { body } = await buy(url, id, 'cat');
    await attempt(url, id, 'cat');
    expect((await call(`${url}/users/cat/points`)).body).toMatchObject({
      balance: 12,
      entries: [{ sourceType: 'order', sourceId: body.orderId, points: 12 }],
    });
    expect((await call(`${url}/users/nobody/points`)).body).toEqual({ balance: 0, entries: [] });
  });
});

describe('the service', () => {
  it('lists its strategies and the active one', async () => {
    const { body } = await call(`${url}/strategies`);
    expect(body).toMatchObject({ active: 'lua', lock: 'redis' });
    const unsafe = (body.strategies as { name: string; guarantees: object }[]).find(
      (s) => s.name === 'unsafe',
    );
    expect(unsafe?.guarantees).toMatchObject({ neverOversells: false });
    const setnx = (body.locks as { name: string }[]).find((l) => l.name === 'redis-setnx');
    expect(setnx).toMatchObject({ flaw: expect.any(String), capabilities: ['held-while-working'] });
  });

  it('is healthy, ready, and measured', async () => {
    expect((await call(`${url}/healthz`)).body).toEqual({ status: 'ok' });
    await expect
      .poll(async () => (await call(`${url}/readyz`)).body)
      .toEqual({ status: 'ok', stores: { postgres: 'ok', redis: 'ok' } });
    const { text } = (await call(`${url}/metrics`)).body;
    expect(text).toMatch(/stampede_attempts_total\{strategy="lua",outcome="accepted"\} \d+/);
  });

  it('describes every route that it has', async () => {
    const { paths } = (await call(`${url}/openapi.json`)).body as { paths: Record<string, object> };
    expect(
      Object.entries(paths)
        .flatMap(([path, item]) => Object.keys(item).map((method) => `${method} ${path}`))
        .sort(),
    ).toEqual(Object.keys(ROUTES).sort());
    expect((await call(`${url}/docs`)).body.text).toContain('/docs.js');
  });

  it.each(['/orders/x', '/sales', '/sales/1/orders?userId=a', '/users/a/points', '/readyz', '/nothing'])(
    'lets no cache keep %s',
    async (path) => {
      const { headers } = await call(`${url}${path}`);
      expect(headers.get('cache-control')).toBe('private, no-store');
    },
  );

  it('explains a missing store', async () => {
    const env = { DATABASE_URL: 'postgresql://u:secret@127.0.0.1:1/x', REDIS_URL: stores.redisUrl };
    const failure = await startService(env).then(
      () => '',
      (error: Error) => error.message,
    );
    expect(failure).toContain('Cannot use Postgres at 127.0.0.1:1/x');
    expect(failure).not.toContain('secret');
  });

  it('answers 202 with CONFIRM=accepted, and the order follows', async () => {
    await using fast = await startService({ ...envOf(stores), CONFIRM: 'accepted' });
    const { id } = await createSale(fast.url, 20);
    const answers = await Promise.all(Array.from({ length: 30 }, (_, i) => buy(fast.url, id, `u${i}`)));
    const accepted = answers.filter(({ status }) => status === 202 || status === 200); // 200: of a repeat
    expect(accepted).toHaveLength(20);
    await fast.stop(); // a stop commits what was acknowledged
    const { rows } = await stores.sql.query(`SELECT id FROM orders WHERE sale_id = $1`, [id]);
    expect(rows.map((row) => row.id).sort()).toEqual(accepted.map(({ body }) => body.orderId).sort());
  });
});
