/** The routes of one service: what they answer, and that bad input changes nothing. */
import { connect } from 'node:net';
import { beforeAll, describe, expect, it } from 'vitest';
import { type Answer, attempt, buy, call, createSale, eventually, post } from '../support/client.ts';
import { ROUTES } from '../support/every-route.ts';
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

const json = { 'content-type': 'application/json' };

describe('bad input gets a problem and changes nothing', () => {
  const purchases: [string, number, RequestInit & { path?: string }][] = [
    ['a number for a user', 400, { body: '{"userId":7}' }],
    ['no user', 400, { body: '{}' }],
    ['no body', 400, {}],
    ['null', 400, { body: 'null' }],
    ['a list', 400, { body: '["u"]' }],
    ['a text', 400, { body: '"u"' }],
    ['a member too many', 400, { body: '{"userId":"u","saleId":2}' }],
    ['__proto__', 400, { body: '{"__proto__":{"userId":"u"}}' }],
    ['an empty user', 400, { body: '{"userId":""}' }],
    ['a 65-character user', 400, { body: JSON.stringify({ userId: 'x'.repeat(65) }) }],
    ['a user with a space', 400, { body: '{"userId":"a b"}' }],
    ['a user with a NUL', 400, { body: '{"userId":"a\\u0000"}' }],
    ['a user with a line break at the end', 400, { body: '{"userId":"a\\n"}' }],
    ['broken JSON', 400, { body: '{"userId":' }],
    ['a huge body', 413, { body: JSON.stringify({ userId: 'u', more: 'x'.repeat(5_000) }) }],
    ['another content type', 415, { body: '{"userId":"u"}', headers: { 'content-type': 'text/plain' } }],
    ['a form', 415, { body: 'userId=u', headers: { 'content-type': 'application/x-www-form-urlencoded' } }],
    ['a compressed body', 415, { body: '{"userId":"u"}', headers: { ...json, 'content-encoding': 'gzip' } }],
    [
      'another charset',
      415,
      { body: '{"userId":"u"}', headers: { 'content-type': 'application/json; charset=utf-7' } },
    ],
    ['sale 0', 400, { body: '{"userId":"u"}', path: '/sales/0/orders' }],
    ['sale -1', 400, { body: '{"userId":"u"}', path: '/sales/-1/orders' }],
    ['sale 1e1', 400, { body: '{"userId":"u"}', path: '/sales/1e1/orders' }],
    ['sale %00', 400, { body: '{"userId":"u"}', path: '/sales/%00/orders' }],
    ['a broken escape', 400, { body: '{"userId":"u"}', path: '/sales/%E0%A4%A/orders' }],
    ['an unknown sale', 404, { body: '{"userId":"u"}', path: '/sales/424242/orders' }],
    ['a sale beyond what can be', 404, { body: '{"userId":"u"}', path: '/sales/9007199254740991/orders' }],
  ];

  it.each(purchases)('purchase: %s', async (_name, status, { path, ...init }) => {
    const sale = await createSale(url, 5);
    const before = await everything();
    const answer = await call(`${url}${path ?? `/sales/${sale.id}/orders`}`, {
      method: 'POST',
      headers: json,
      ...init,
    });
    expect(answer.status).toBe(status);
    expect(answer.headers.get('content-type')).toContain('application/problem+json');
    expect(answer.body).toMatchObject({ status, title: expect.any(String), detail: expect.any(String) });
    expect(await everything()).toBe(before);
  });

  it.each([
    ['GET', '/sales/9999999999999999', ''],
    ['POST', '/sales/9999999999999999/restock', '{"units":1}'],
    ['POST', '/sales/9999999999999999/orders', '{"userId":"u"}'],
    ['POST', '/sales/9999999999999999/orders?', '{"userId":"u"}'],
    ['GET', '/sales/9999999999999999/orders?userId=u', ''],
    ['POST', '/tasks/9999999999999999/retry', ''],
  ])('a number that no double holds is not answered as another one: %s %s', async (method, path, body) => {
    const answer = await call(`${url}${path}`, { method, ...(body === '' ? {} : { body, headers: json }) });
    expect(answer).toMatchObject({ status: 400, problem: 'invalid-request' });
    expect(JSON.stringify(answer.body)).not.toContain('10000000000000000');
  });

  const sale = { name: 's', stock: 1, priceCents: 1 };
  it.each([
    ['negative stock', { ...sale, stock: -1 }],
    ['a fraction', { ...sale, stock: 1.5 }],
    ['too much stock', { ...sale, stock: 2 ** 31 }],
    ['stock as a text', { ...sale, stock: '5' }],
    ['no stock', { name: 's', priceCents: 1 }],
    ['a negative price', { ...sale, priceCents: -1 }],
    ['an empty name', { ...sale, name: '  ' }],
    ['a long name', { ...sale, name: 'x'.repeat(201) }],
    ['a NUL in the name', { ...sale, name: 'a\u0000b' }],
    ['half a surrogate pair in the name', { ...sale, name: 'a\ud800' }],
    ['a date that is none', { ...sale, startsAt: 'tomorrow' }],
    ['a date without a zone', { ...sale, startsAt: '2026-01-01T00:00:00' }],
    [
      'a window that ends before it starts',
      { ...sale, startsAt: '2026-01-02T00:00:00Z', endsAt: '2026-01-01T00:00:00Z' },
    ],
    ['the year 0', { ...sale, startsAt: '0000-01-01T00:00:00Z' }],
    ['the year 0 after its zone', { ...sale, startsAt: '0001-01-01T00:00:00+10:00' }],
    ['the year 10000 after its zone', { ...sale, endsAt: '9999-12-31T23:59:59-14:00' }],
    ['a window of no length', { ...sale, startsAt: '2026-01-01T00:00:00Z', endsAt: '2026-01-01T00:00:00Z' }],
  ])('sale: %s', async (_name, body) => {
    const before = await everything();
    expect(await post(`${url}/sales`, body)).toMatchObject({ status: 400, problem: 'invalid-request' });
    expect(await everything()).toBe(before);
  });

  it('sale: a list in a list, 8,000 times', async () => {
    const body = `${'['.repeat(8_000)}${']'.repeat(8_000)}`;
    const answer = await call(`${url}/sales`, { method: 'POST', headers: json, body });
    expect(answer).toMatchObject({ status: 400, problem: 'invalid-request' });
  });

  it.each([
    ['no units', {}, 400],
    ['zero units', { units: 0 }, 400],
    ['a fraction', { units: 0.5 }, 400],
    ['more than can be', { units: 2_147_483_647 }, 400],
    ['a cut too deep', { units: -6 }, 409],
  ])('restock: %s', async (_name, body, status) => {
    const { id } = await createSale(url, 5);
    const before = await everything();
    expect((await post(`${url}/sales/${id}/restock`, body)).status).toBe(status);
    expect(await everything()).toBe(before);
    // Redis, too, would still sell five.
    for (const user of ['a', 'b', 'c', 'd', 'e']) expect((await buy(url, id, user)).status).toBeLessThan(300);
    expect((await buy(url, id, 'f')).problem).toBe('sold-out');
  });

  it.each([
    ['zero points', { sourceType: 't', sourceId: '1', points: 0 }],
    ['negative points', { sourceType: 't', sourceId: '1', points: -5 }],
    ['no source', { points: 5 }],
    ['an empty source', { sourceType: '', sourceId: '1', points: 5 }],
    ['the source of an order', { sourceType: 'order', sourceId: '1', points: 5 }],
    ['the source of a reversal', { sourceType: 'order-reversal', sourceId: '1', points: 5 }],
    ['a NUL', { sourceType: 't', sourceId: '1\u0000', points: 5 }],
    ['half a surrogate pair', { sourceType: 't', sourceId: '\udc00', points: 5 }],
  ])('points: %s', async (_name, body) => {
    const before = await everything();
    expect(await post(`${url}/users/u/points`, body)).toMatchObject({
      status: 400,
      problem: 'invalid-request',
    });
    expect(await everything()).toBe(before);
  });

  it('names every mistake with its path', async () => {
    const { body } = await post(`${url}/sales`, { name: '', stock: -1, extra: 1 });
    const paths = (body.errors as { path: string }[]).map((error) => error.path);
    expect(paths).toEqual(expect.arrayContaining(['body.name', 'body.stock', 'body.priceCents']));
  });

  it('answers invalid HTTP with a problem, and serves the next request', async () => {
    const socket = connect(Number(new URL(url).port), '127.0.0.1');
    socket.write('NOT HTTP AT ALL\r\n\r\n');
    const answer = await new Promise<string>((resolve) =>
      socket.once('data', (data) => resolve(String(data))),
    );
    expect(answer).toMatch(/400 Bad Request.*application\/problem\+json.*invalid-request/s);
    socket.destroy();
    expect((await call(`${url}/healthz`)).status).toBe(200);
  });
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
    expect(await call(`${url}/sales/424242`)).toMatchObject({ status: 404, problem: 'unknown-sale' });
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
    expect((await call(`${url}/orders/nonsense`)).problem).toBe('invalid-request');
    expect((await call(`${url}/orders/00000000-0000-7000-8000-000000000000`)).problem).toBe('unknown-order');
  });
});

describe('points', () => {
  const award = { sourceType: 'review', sourceId: '42', points: 30 };

  it('are added once per source, however often they are sent', async () => {
    const send = () => post(`${url}/users/ann/points`, award);
    const isFinal = ({ status }: Answer) => status !== 503; // on a busy machine a request may wait too long for a connection
    const answers = await Promise.all(Array.from({ length: 50 }, () => eventually(send, isFinal)));
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

  it('answers a problem where there is no route', async () => {
    expect(await call(`${url}/nothing`)).toMatchObject({ status: 404, problem: 'not-found' });
    expect(await call(`${url}/sales/1/orders`, { method: 'DELETE' })).toMatchObject({ status: 404 });
  });

  it('requires the token, if one is set, and does not log it', async () => {
    const token = 'a-long-enough-token';
    await using guarded = await startService({ ...envOf(stores), ADMIN_TOKEN: token });
    const sale = { name: 's', stock: 1, priceCents: 1 };
    expect(await post(`${guarded.url}/sales`, sale)).toMatchObject({ status: 401, problem: 'unauthorized' });
    const asked = {
      method: 'POST',
      headers: { ...json, authorization: `Bearer ${token}` },
      body: JSON.stringify(sale),
    };
    const made = await call(`${guarded.url}/sales`, asked);
    expect(made.status).toBe(201);
    expect((await buy(guarded.url, Number(made.body.id), 'u')).status).toBeLessThan(300);
    for (let i = 0; i < 20; i++) await post(`${guarded.url}/sales`, sale);
    expect(await post(`${guarded.url}/sales`, sale)).toMatchObject({
      status: 429,
      problem: 'too-many-requests',
    });
    // The right token is accepted meanwhile.
    expect((await call(`${guarded.url}/sales`, asked)).status).toBe(201);
    await guarded.stop();
    expect(guarded.log.join('\n')).not.toContain(token);
  });

  it('rejects a port in use', async () => {
    const port = new URL(url).port;
    const second = startService({ ...envOf(stores), PORT: port });
    await expect(second).rejects.toThrow(`Port ${port} is in use`);
  });

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
