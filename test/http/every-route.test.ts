/** Every route: bad input gets a problem and changes nothing, and administrative routes answer only who may. */
import { request } from 'node:http';
import { beforeAll, describe, expect, it } from 'vitest';
import { ADMINISTRATIVE, askRoute, makeThings, ROUTES, type Things } from '../support/every-route.ts';
import { openIssuer } from '../support/issuer.ts';
import { opened } from '../support/opened.ts';
import { startService } from '../support/service.ts';
import { contentsOf, envOf, openTestStores } from '../support/stores.ts';

const TOKEN = 'a-long-enough-token';

const stores = opened(openTestStores);
const issuer = opened(openIssuer);
const service = opened(() => startService(envOf(stores)));
const guarded = opened(() =>
  startService({
    ...envOf(stores),
    ...issuer.env,
    TICKET_SECRETS: Buffer.alloc(32, 'k').toString('base64'),
    ADMIN_TOKEN: TOKEN,
  }),
);
let things: Things;
beforeAll(async () => {
  things = await makeThings(service.url, stores.sql);
});

async function everything(): Promise<string> {
  const payments = ['payment_notifications', 'unmatched_payments'].map((table) =>
    stores.sql.query(`SELECT * FROM ${table} ORDER BY id`),
  );
  const tasks = stores.sql.query('SELECT id, key, payload FROM tasks ORDER BY id'); // their state changes in the background
  const rows = (await Promise.all([...payments, tasks])).map((result) => result.rows);
  return `${await contentsOf(stores)}${JSON.stringify(rows)}`;
}

/** Expects requests to get a status, or one of several, and to change nothing. @param names of routes, or what tells them apart */
async function expectRefused(
  names: readonly string[],
  statuses: readonly number[],
  ask: (name: string) => ReturnType<typeof askRoute>,
): Promise<void> {
  expect(names.length).toBeGreaterThan(0);
  const before = await everything();
  const wrong: string[] = [];
  for (const name of names) {
    const { status, body, headers } = await ask(name);
    const isProblem = headers.get('content-type')?.startsWith('application/problem+json') === true;
    if (!statuses.includes(status) || !isProblem) wrong.push(`${name}: ${status} ${JSON.stringify(body)}`);
    expect(JSON.stringify(body)).not.toContain('10000000000000000'); // what a double makes of 9999999999999999
  }
  expect(wrong).toEqual([]);
  expect(await everything()).toBe(before);
}

describe('bad input', () => {
  const withId = Object.keys(ROUTES).filter((route) => /\{(sale|order|task)Id\}/.test(route));
  const naming = (number: string, orderId = number) =>
    ({
      ...things,
      saleId: number,
      orders: { pending: orderId, unpaid: orderId, expired: orderId },
      deadTask: number,
    }) as unknown as Things;
  // The refund of a sale and tickets without AUTH=jwt have requests of their own.
  const named = withId.filter((route) => !/^post .*sales.*(refund|tickets)$/.test(route));

  it.each(['0', '-1', '1e1', 'x', '%00', '%E0%A4%A', '9999999999999999'])('an id that is %s', async (id) =>
    expectRefused(named, [400], (route) => askRoute(route, naming(id))),
  );

  it.each(['424242', '9007199254740991'])('an id of nothing: %s', async (id) =>
    expectRefused(withId, [404], (route) =>
      askRoute(route, naming(id, '00000000-0000-7000-8000-000000000000')),
    ),
  );

  const bodyOf = (route: string) => {
    const [[, body] = ['']] = ROUTES[route]!({ ...things });
    return body;
  };
  const form = { 'content-type': 'application/x-www-form-urlencoded' };
  it.each<[string, number, (body: object) => RequestInit]>([
    ['no body', 400, () => ({ body: null })],
    ['an empty object', 400, () => ({ body: '{}' })],
    ['null', 400, () => ({ body: 'null' })],
    ['a list', 400, (body) => ({ body: JSON.stringify([body]) })],
    ['a text', 400, () => ({ body: '"u"' })],
    ['broken JSON', 400, (body) => ({ body: JSON.stringify(body).slice(0, -1) })],
    ['lists in lists', 400, () => ({ body: `${'['.repeat(2_000)}${']'.repeat(2_000)}` })],
    ['a member too many', 400, (body) => ({ body: JSON.stringify({ ...body, more: 1 }) })],
    ['__proto__', 400, (body) => ({ body: `{"__proto__":${JSON.stringify(body)}}` })],
    ['a huge body', 413, (body) => ({ body: JSON.stringify({ ...body, more: 'x'.repeat(20_000) }) })],
    ['another type', 415, () => ({ headers: { 'content-type': 'text/plain' } })],
    ['a form', 415, () => ({ body: 'userId=u', headers: form })],
    ['a compressed body', 415, () => ({ headers: { 'content-encoding': 'gzip' } })],
    ['another charset', 415, () => ({ headers: { 'content-type': 'application/json; charset=utf-7' } })],
  ])('%s', async (_name, status, change) => {
    const routes = Object.keys(ROUTES).filter((route) => Object.keys(bodyOf(route) ?? {}).length > 0);
    await expectRefused(routes, [status], (route) => askRoute(route, things, change(bodyOf(route)!)));
  });

  const NUL = 'a\u0000';
  const HALF = 'a\ud800'; // of a surrogate pair
  const picture = (imageUrl: string) => ({ imageUrl });
  const at = (startsAt: string, endsAt: string | null = null) => ({ startsAt, endsAt });
  const terms = [
    { name: '  ' },
    { name: 'x'.repeat(201) },
    { name: NUL },
    { name: HALF },
    { priceCents: -1 },
    { priceCents: 1_000_000_000, maxPerOrder: 100 },
    { maxPerOrder: 0 },
    { maxPerOrder: 101 },
    { paymentWindowS: 0 },
    ...['', '\u0000', 'x'.repeat(2_001), HALF, 7].map((description) => ({ description })),
    ...[
      '',
      'shoe.png',
      'http://example.com/a',
      'javascript:alert(1)',
      'data:image/png;base64,AA',
      'https://*/a',
    ].map(picture),
    ...['https://a;b/', "https://a'b/", 'https://u:p@example.com/', `https://a/${'ä'.repeat(200)}`].map(
      picture,
    ),
    ...['', 'usd', 'XYZ', null].map((currency) => ({ currency })),
    at('tomorrow'),
    at('2026-01-01T00:00:00'),
    at('2026-01-02T00:00:00Z', '2026-01-01T00:00:00Z'),
    at('2026-01-01T00:00:00Z', '2026-01-01T00:00:00Z'),
    at('0000-01-01T00:00:00Z'),
    at('0001-01-01T00:00:00+10:00'),
    { endsAt: '9999-12-31T23:59:59-14:00' },
  ];
  /** Members that replace those of a valid body. */
  const VALUES: Record<string, readonly object[]> = {
    'post /sales': [
      ...terms,
      ...[-1, 1.5, 2 ** 31, '5', undefined].map((stock) => ({ stock })),
      { priceCents: undefined },
    ],
    'patch /sales/{saleId}': [...terms, { stock: 9 }, { paused: 'yes' }],
    'post /sales/{saleId}/restock': [0, 0.5, 2_147_483_647, '1'].map((units) => ({ units })),
    'post /sales/{saleId}/orders': [
      ...[7, '', 'x'.repeat(65), 'a b', NUL, 'a\n'].map((userId) => ({ userId })),
      ...[0, -1, 0.5, 101, '1'].map((quantity) => ({ quantity })),
    ],
    'post /sales/{saleId}/waitlist': [
      ...[7, '', 'a b', NUL].map((userId) => ({ userId })),
      ...[0, 101, '1'].map((quantity) => ({ quantity })),
    ],
    'post /orders/{orderId}/extend': [0, 0.5, '60', 2 ** 31].map((seconds) => ({ seconds })),
    'post /orders/{orderId}/transfer': [7, '', 'a b', NUL].map((toUserId) => ({ toUserId })),
    'post /payments/notifications': [
      { orderId: 'x' },
      ...['', NUL].map((notificationId) => ({ notificationId })),
      ...[-1, 0.5].map((amountCents) => ({ amountCents })),
    ],
    'post /users/{userId}/points': [
      ...[0, -5, 0.5].map((points) => ({ points })),
      ...['', 'order', 'order-reversal', undefined].map((sourceType) => ({ sourceType })),
      ...[NUL, HALF].map((sourceId) => ({ sourceId })),
    ],
  };
  it.each(Object.entries(VALUES))('values: %s', async (route, values) => {
    const bodies = values.map((change) => JSON.stringify({ ...bodyOf(route), ...change }));
    await expectRefused(bodies, [400], (body) => askRoute(route, things, { body }));
  });
});

describe('an administrative route', () => {
  /** Not `fetch`, which sets Host itself. @returns the status */
  function ask(route: string, headers: Record<string, string>): Promise<number | undefined> {
    const [[path] = ['']] = ROUTES[route]!(things);
    const method = route.split(' ')[0]!.toUpperCase();
    return new Promise((resolve, reject) => {
      const asked = request(service.url + path, { method, headers }, (response) => {
        resolve(response.statusCode);
        response.destroy();
      });
      asked.on('error', reject).end();
    });
  }

  it('answers the client itself, its browser, and its own pages, without ADMIN_TOKEN', async () => {
    const host = `localhost:${new URL(service.url).port}`;
    const own = { host, origin: `http://${host}`, 'sec-fetch-site': 'same-origin' };
    for (const headers of [{}, { 'sec-fetch-site': 'none' }, own])
      for (const route of ADMINISTRATIVE) expect(await ask(route, headers), route).not.toBe(403);
  });

  it.each<[string, Record<string, string>]>([
    ['a name that was rebound to loopback', { host: 'evil.example:80' }],
    ['a name that begins like loopback', { host: '127.0.0.1.evil.example' }],
    ['a page of another site', { origin: 'https://evil.example' }],
    ['a sandboxed page', { origin: 'null' }],
    ['a link of another site', { 'sec-fetch-site': 'cross-site' }],
    ['another service on this machine', { 'sec-fetch-site': 'same-site', origin: 'http://localhost:1' }],
    ['a proxy', { 'x-forwarded-for': '203.0.113.7' }],
    ['a proxy of the standard', { forwarded: 'for=203.0.113.7' }],
    ['a proxy that says only itself', { via: '1.1 cache' }],
  ])('refuses %s without ADMIN_TOKEN', async (_name, headers) => {
    for (const route of ADMINISTRATIVE) expect(await ask(route, headers), route).toBe(403);
  });

  it('answers only the token, if one is set, also when many are guessed; and does not log it', async () => {
    const at = { ...things, url: guarded.url };
    const customer = await issuer.token('ann');
    // A list of a sale's orders is the customer's own, or an administrator's.
    const list = `${guarded.url}/sales/${things.saleId}/orders`;
    const statusOf = async (token: string) =>
      (await fetch(list, { headers: { authorization: `Bearer ${token}` } })).status;
    expect([await statusOf(customer), await statusOf(TOKEN), await statusOf('wrong')]).toEqual([
      404, 200, 401,
    ]);
    for (const headers of [
      {},
      { authorization: 'Bearer wrong-but-long-enough' },
      { authorization: `Bearer ${customer}` },
    ])
      await expectRefused(ADMINISTRATIVE, [401, 429], (route) => askRoute(route, at, { headers }));
    expect(await askRoute('get /tasks', at)).toMatchObject({ status: 429, problem: 'too-many-requests' });
    const headers = { authorization: `Bearer ${TOKEN}` };
    for (const route of ['get /tasks', 'get /payments/unmatched', 'get /sales/{saleId}/audit'])
      expect((await askRoute(route, at, { headers })).status, route).toBe(200);
    expect(guarded.log.join('\n')).not.toContain(TOKEN);
  });
});
