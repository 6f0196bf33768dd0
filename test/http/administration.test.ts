/** What administrators change while a sale runs. */
import { beforeAll, describe, expect, it } from 'vitest';
import { orderNumber } from '../../src/domain/order.ts';
import { attempt, buy, call, cancel, createSale, eventually, patch, post, users } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { startService } from '../support/service.ts';
import { contentsOf, envOf, openTestStores } from '../support/stores.ts';

const stores = opened(openTestStores);
const service = opened(() => startService(envOf(stores)));
let url: string;
beforeAll(() => {
  url = service.url;
});
const everything = () => contentsOf(stores);

describe('terms of a sale', () => {
  it('do not change to an end before the start that the sale has', async () => {
    const { id } = await createSale(url, 5, { startsAt: '2021-01-01T00:00:00Z' });
    const before = await everything();
    expect(await patch(`${url}/sales/${id}`, { endsAt: '2020-01-01T00:00:00Z' })).toMatchObject({
      problem: 'invalid-request',
    });
    expect(await everything()).toBe(before);
  });

  it('are changed: later orders have the new price and their time to pay', async () => {
    const sale = await createSale(url, 9, { endsAt: '2030-01-01T00:00:00Z' });
    const orderOf = async (userId: string) => {
      const { orderId } = (await buy(url, sale.id, userId)).body;
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
  });
});

describe('what a page shows of a sale', () => {
  it('is stored as given, changed one by one, and removed', async () => {
    const texts = {
      description: 'Two\n\tlines, <b>as text</b>',
      imageUrl: 'https://cdn.example.com/a%20b.webp?w=1',
      currency: 'JPY',
    };
    const given = {
      ...texts,
      description: ` ${texts.description}\n`,
      imageUrl: 'HTTPS://CDN.example.com:443/a b.webp?w=1',
    };
    const sale = await createSale(url, 9, given);
    expect(sale).toMatchObject(texts);
    const now = async () => (await call(`${url}/sales/${sale.id}`)).body;
    expect(await now()).toEqual(sale);
    const change = async (changes: object) => (await patch(`${url}/sales/${sale.id}`, changes)).body;
    expect(await change({ imageUrl: null })).toEqual({ ...sale, imageUrl: null });
    expect(await change({ description: 'Other', currency: 'EUR' })).toMatchObject({
      ...{ description: 'Other', imageUrl: null, currency: 'EUR' },
    });
    const last = await change({ description: null, imageUrl: 'http://[::1]:8080/' });
    expect(last).toMatchObject({ description: null, imageUrl: 'http://[::1]:8080/' });
    expect(await now()).toEqual(last);
  });

  it('has the currency of its orders: with one, it is fixed', async () => {
    const { id } = await createSale(url, 9, { currency: 'EUR' });
    await buy(url, id, 'first');
    expect(await patch(`${url}/sales/${id}`, { currency: 'EUR', name: 'Same' })).toMatchObject({
      status: 200,
    });
    const before = await everything();
    expect(await patch(`${url}/sales/${id}`, { currency: 'USD', name: 'Other' })).toMatchObject({
      ...{ status: 400, problem: 'invalid-request' },
    });
    expect(await everything()).toBe(before);
  });
});

describe('an Idempotency-Key', () => {
  let last = 0;
  const newKey = () => `key-${++last}`;
  const send = (path: string, key: string, body?: unknown) =>
    call(url + path, {
      method: 'POST',
      headers: { 'idempotency-key': key, ...(body !== undefined && { 'content-type': 'application/json' }) },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
  /** A busy machine may answer 503. */
  const repeat = (...sent: Parameters<typeof send>) =>
    eventually(
      () => send(...sent),
      ({ status }) => status !== 503,
    );
  const sale = { name: 'keyed', stock: 4, priceCents: 500 };

  it('makes ten requests at once one sale, and one restock, with the same answer', async () => {
    const before = newKey();
    const made = await Promise.all(Array.from({ length: 10 }, () => repeat('/sales', before, sale)));
    expect(new Set(made.map(({ status, body }) => JSON.stringify([status, body]))).size).toBe(1);
    expect(made[0]).toMatchObject({ status: 201 });
    expect(made.map(({ headers }) => headers.get('location'))).toEqual(
      made.map(({ body }) => `/sales/${body.id}`),
    );
    const { id } = made[0]!.body;
    for (const units of [3, -2]) {
      const [key, left] = [newKey(), (await call(`${url}/sales/${id}`)).body.remaining as number];
      const restocked = await Promise.all(
        Array.from({ length: 10 }, () => repeat(`/sales/${id}/restock`, key, { units })),
      );
      for (const { status, body } of restocked)
        expect({ status, body }).toEqual({ status: 200, body: restocked[0]!.body });
      // Redis has as many units as Postgres: all of them are sold, and no more.
      expect(await call(`${url}/sales/${id}`)).toMatchObject({ body: { remaining: left + units } });
    }
    const bought = await Promise.all(users(6, 'keyed').map((user) => attempt(url, Number(id), user)));
    expect(bought.map(({ status }) => status).sort()).toEqual([201, 201, 201, 201, 201, 409]);
    expect(await send(`/sales/${id}/restock`, newKey(), { units: 1 })).toMatchObject({
      body: { remaining: 1 },
    });
  });

  it.each<[string, unknown, unknown]>([
    ['/sales', sale, { ...sale, stock: 5 }],
    ['/sales/:sale/restock', { units: 2 }, { units: 3 }],
    ['/users/keyed/points', { sourceType: 'gift', sourceId: '1', points: 2 }, undefined],
  ])('is not used for another request: POST %s', async (route, body, other) => {
    const { id } = await createSale(url, 5);
    const [path, key] = [route.replace(':sale', String(id)), newKey()];
    const first = await send(path, key, body);
    expect(first.status).toBeLessThan(300);
    const before = await everything();
    const { id: elsewhere } = await createSale(url, 5);
    expect(await send(path, key, body)).toMatchObject({ status: first.status, body: first.body });
    if (other !== undefined)
      expect(await send(path, key, other)).toMatchObject({ status: 422, problem: 'key-reused' });
    expect(await send(`/sales/${elsewhere}/restock`, key, { units: 2 })).toMatchObject({ status: 422 });
    expect(await everything()).not.toBe(before); // the other sale
    expect(await call(`${url}/sales/${elsewhere}`)).toMatchObject({ body: { stock: 5 } });
  });

  it('is free again after a refusal, and after a day', async () => {
    const { id } = await createSale(url, 1);
    const key = newKey();
    expect(await send(`/sales/${id}/restock`, key, { units: -2 })).toMatchObject({ problem: 'below-sold' });
    expect(await send(`/sales/${id}/restock`, key, { units: 2 })).toMatchObject({ body: { stock: 3 } });
    await stores.sql.query(`UPDATE idempotency_keys SET created_at = now() - interval '24 hours 1 second'`);
    expect(await send(`/sales/${id}/restock`, key, { units: 1 })).toMatchObject({ body: { stock: 4 } });
    const { rows } = await stores.sql.query('SELECT id FROM idempotency_keys');
    expect(rows).toEqual([{ id: `loopback:${key}` }]);
  });

  it.each(['', 'a b', 'é', 'x'.repeat(256)])('is refused when it is %j', async (key) => {
    const before = await everything();
    const answer = await send('/sales', key, sale).catch(() => null); // fetch does not send every text
    if (answer !== null) expect(answer).toMatchObject({ status: 400, problem: 'invalid-request' });
    expect(await everything()).toBe(before);
  });

  it('is kept with its effect: without the transaction that stores the answer, nothing happened', async () => {
    const { id } = await createSale(url, 1);
    const key = newKey();
    await stores.sql.query(
      `ALTER TABLE idempotency_keys ADD CONSTRAINT broken CHECK (answer IS NULL) NOT VALID`,
    );
    expect((await send(`/sales/${id}/restock`, key, { units: 2 })).status).toBeGreaterThanOrEqual(500);
    await stores.sql.query('ALTER TABLE idempotency_keys DROP CONSTRAINT broken');
    expect(await call(`${url}/sales/${id}`)).toMatchObject({ body: { stock: 1 } });
    expect(await send(`/sales/${id}/restock`, key, { units: 2 })).toMatchObject({ body: { stock: 3 } });
  });
});

describe('the orders of a sale', () => {
  const listOf = async (query: string) => {
    const answer = await call(`${url}/sales/${query}`);
    expect(answer.status).toBe(200);
    return { list: answer.body as unknown as { orderId: string; userId: string }[], headers: answer.headers };
  };

  it('are listed newest first, in pages, by status and by what is looked for', async () => {
    const { id } = await createSale(url, 9, { maxPerOrder: 2 });
    await attempt(url, (await createSale(url, 9)).id, 'elsewhere');
    const names = ['ann', 'bob', 'Ann.2', 'cyd', 'dan'];
    const placed: string[] = [];
    for (const name of names) placed.push(String((await buy(url, id, name)).body.orderId));
    await cancel(url, placed[1]);
    expect((await listOf(`${id}/orders`)).list.map(({ userId }) => userId)).toEqual(names.toReversed());
    const seen: string[] = [];
    for (let next: string | undefined = `${id}/orders?limit=2`; next !== undefined; ) {
      const { list, headers } = await listOf(next);
      seen.push(...list.map(({ orderId }) => orderId));
      next = /^<\/sales\/(.*)>; rel="next"$/.exec(headers.get('link') ?? '')?.[1];
    }
    expect(seen).toEqual(placed.toReversed());
    const found = async (query: string) =>
      (await listOf(`${id}/orders?${query}`)).list.map((one) => one.userId);
    expect(await found('search=ann')).toEqual(['Ann.2', 'ann']);
    expect(await found(`search=${placed[3]!.toUpperCase()}`)).toEqual(['cyd']);
    expect(orderNumber(placed[3]!)).toMatch(/^[89AB][0-9A-F]{3}-[0-9A-F]{4}$/);
    expect(await found(`search=${orderNumber(placed[3]!)}`)).toEqual(['cyd']);
    expect(await found('status=cancelled')).toEqual(['bob']);
    expect(await found('status=pending&search=an')).toEqual(['dan', 'Ann.2', 'ann']);
    for (const query of ['limit=0', 'status=new', 'before=1', 'more=1'])
      expect(await call(`${url}/sales/${id}/orders?${query}`)).toMatchObject({ status: 400 });
  });

  it('are exported whole, however many there are', async () => {
    const { id } = await createSale(url, 3_000, { maxPerOrder: 2 });
    const names = users(2_500);
    await stores.sql.query(
      `INSERT INTO orders (id, sale_id, user_id, quantity, status, price_cents, expires_at)
       SELECT (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint + n), 12, '0') || lpad(to_hex(n), 20, '0'))::uuid,
         $1, name, 1, 'paid', 500, now() FROM unnest($2::text[]) WITH ORDINALITY AS t (name, n)`,
      [id, names],
    );
    const { status, body, headers } = await call(`${url}/sales/${id}/orders.csv`);
    expect(status).toBe(200);
    expect(headers.get('content-disposition')).toContain(`sale-${id}-orders.csv`);
    const [head, ...lines] = String(body.text).trimEnd().split('\r\n');
    expect(head).toBe(
      'orderId,userId,status,quantity,priceCents,amountCents,createdAt,expiresAt,paidAt,closedAt',
    );
    expect(lines.map((line) => line.split(',')[1])).toEqual(names.toReversed());
    expect(lines[0]).toMatch(/^[0-9a-f-]{36},user-2499,paid,1,500,500,\S+Z,\S+Z,,$/);
  });
});

it('the waitlist and the log of a sale are listed, of that sale only', async () => {
  const [{ id }, other] = [await createSale(url, 1), await createSale(url, 1)];
  const { orderId } = (await buy(url, id, 'ann')).body;
  await users(3).reduce(async (before, userId) => {
    await before;
    await post(`${url}/sales/${id}/waitlist`, { userId });
  }, Promise.resolve());
  const waiting = users(3).map((userId, n) => ({ saleId: id, userId, place: n + 1, namedAt: null }));
  expect((await call(`${url}/sales/${id}/waitlist`)).body).toMatchObject(waiting);
  expect((await call(`${url}/sales/${id}/waitlist?limit=1`)).body).toHaveLength(1);
  await patch(`${url}/sales/${id}`, { paused: true });
  await patch(`${url}/sales/${other.id}`, { paused: true });
  await post(`${url}/SALES/%3${id}/restock`, { units: -9 }); // a path in capitals, with its digit encoded
  await post(`${url}/orders/${orderId}/refund`, {});
  const actor = 'admin:loopback';
  const log = await eventually(
    async () => (await call(`${url}/sales/${id}/audit-log`)).body as unknown as { status: number | null }[],
    (acts) => acts.filter(({ status }) => status !== null).length === 2,
  );
  expect(log).toMatchObject([
    { actor, action: 'order.cancelled', subject: `order ${orderId}`, details: { saleId: id, userId: 'ann' } },
    { actor, action: `POST /sales/${id}/restock`, details: { units: -9 }, status: 409 },
    { actor, action: `PATCH /sales/${id}`, details: { paused: true }, status: 200 },
  ]);
  expect((await call(`${url}/sales/${other.id}/waitlist`)).body).toEqual([]);
});
