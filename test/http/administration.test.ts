/** What administrators change while a sale runs. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { attempt, call, cancel, createSale, patch, users } from '../support/client.ts';
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
    for (const name of names) placed.push(String((await attempt(url, id, name)).body.orderId));
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
    expect(await found('status=cancelled')).toEqual(['bob']);
    expect(await found('status=pending&search=an')).toEqual(['dan', 'Ann.2', 'ann']);
    for (const query of ['limit=0', 'status=new', 'before=1', 'more=1'])
      expect(await call(`${url}/sales/${id}/orders?${query}`)).toMatchObject({ status: 400 });
    for (const path of ['orders', 'orders.csv'])
      expect(await call(`${url}/sales/424242/${path}`)).toMatchObject({ problem: 'unknown-sale' });
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
