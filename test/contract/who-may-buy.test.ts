/**
 * Who may buy, with every strategy: the limit of a customer over a group of sales, and groups that may buy before a sale starts for all. The
 * services of all strategies share the stores.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { strategies } from '../../src/strategies/registry.ts';
import {
  type Answer,
  buy,
  call,
  cancel,
  createSale,
  eventually,
  patch,
  pay,
  post,
  users,
} from '../support/client.ts';
import { openIssuer } from '../support/issuer.ts';
import { judge } from '../support/judge.ts';
import { opened } from '../support/opened.ts';
import { startService, type TestService } from '../support/service.ts';
import { envOf, openTestStores, published } from '../support/stores.ts';

const stores = opened(openTestStores);

/** Units of active orders by group and customer, and those that are counted. */
const HELD = `
  SELECT limit_group, user_id, sum(quantity)::int AS units FROM orders
  WHERE limit_group IS NOT NULL AND status IN ('pending', 'paid') GROUP BY 1, 2 ORDER BY 1, 2`;
const COUNTED = 'SELECT limit_group, user_id, units FROM customer_units ORDER BY 1, 2';

async function unitsOf(limitGroup: string): Promise<Record<string, number>> {
  const [held, counted] = await Promise.all([HELD, COUNTED].map((sql) => stores.sql.query(sql)));
  expect(counted!.rows).toEqual(held!.rows);
  const ofGroup = held!.rows.filter((row) => row.limit_group === limitGroup);
  return Object.fromEntries(ofGroup.map(({ user_id, units }) => [user_id, units]));
}

/** An instant, so many minutes from now. */
const inMinutes = (minutes: number) => new Date(Date.now() + minutes * 60_000).toISOString();

/** Buys with a code, until the outcome is known. */
const buyWith = (
  url: string,
  saleId: number,
  userId: string,
  code: string,
  more: object = {},
): Promise<Answer> =>
  eventually(
    () => post(`${url}/sales/${saleId}/orders`, { userId, code, ...more }),
    ({ status }) => status !== 503,
  );

describe.each([...strategies.keys()])('with %s', (name) => {
  const { store, guarantees } = strategies.get(name)!.description;
  let a: TestService;
  let b: TestService;

  beforeAll(async () => {
    const env = {
      ...envOf(stores),
      STRATEGY: name,
      REDIS_URL: store === 'postgres' ? 'none' : stores.redisUrl,
    };
    [a, b] = await Promise.all([startService(env), startService(env)]);
  });
  afterAll(() => Promise.all([a?.stop(), b?.stop()]));

  /** Two sales of a group. */
  const group = async (maxPerCustomer: number, limitGroup: string, stock = 100) =>
    Promise.all(
      [a, b].map(({ url }) => createSale(url, stock, { limitGroup, maxPerCustomer, maxPerOrder: 5 })),
    );

  async function expectSound(...saleIds: readonly number[]): Promise<void> {
    if (!guarantees.neverStrands) return;
    for (const id of saleIds)
      await expect
        .poll(() => judge(stores.sql, store === 'redis' ? stores.redis : null, id))
        .toMatchObject({ findings: [] });
  }

  it('limits the units of a customer over the sales of a group, and counts those of active orders only', async () => {
    const limitGroup = `${name}-units`;
    const [one, two] = await group(3, limitGroup);
    expect(one).toMatchObject({ limitGroup, maxPerCustomer: 3 });
    const first = await buy(a.url, one!.id, 'ann', 2);
    expect(first.status).toBe(201);
    const refused = { status: 409, problem: 'customer-limit' };
    expect(await buy(b.url, two!.id, 'ann', 2)).toMatchObject({ ...refused, body: { limit: 3, left: 1 } });
    expect((await buy(b.url, two!.id, 'bob', 3)).status).toBe(201);
    const second = await buy(b.url, two!.id, 'ann', 1);
    expect(second.status).toBe(201);
    for (const [sale, order] of [[one, first] as const, [two, second] as const])
      expect(await buy(a.url, sale!.id, 'ann', 5)).toMatchObject({
        status: 200,
        body: { orderId: order.body.orderId },
      });
    expect(await unitsOf(limitGroup)).toEqual({ ann: 3, bob: 3 });
    expect((await cancel(b.url, first.body.orderId)).status).toBe(200);
    expect(await unitsOf(limitGroup)).toEqual({ ann: 1, bob: 3 });
    if (store === 'redis') await published(stores);
    const lower = { maxPerCustomer: 2 };
    for (const { id } of [one!, two!])
      expect(await patch(`${a.url}/sales/${id}`, lower)).toMatchObject({ status: 200, body: lower });
    expect((await buy(b.url, two!.id, 'bob')).status).toBe(200); // the order stays
    expect(await buy(a.url, one!.id, 'ann', 2)).toMatchObject({ ...refused, body: { limit: 2, left: 1 } });
    expect((await buy(a.url, one!.id, 'ann', 1)).status).toBe(201);
    expect(await unitsOf(limitGroup)).toEqual({ ann: 2, bob: 3 });
    await expectSound(one!.id, two!.id);
  });

  it('an order that passes to another customer counts for that one, within the limit', async () => {
    const limitGroup = `${name}-transfer`;
    const [one, two] = await group(2, limitGroup);
    const given = await buy(a.url, one!.id, 'ann', 2);
    expect((await buy(b.url, two!.id, 'bob')).status).toBe(201);
    const transfer = (toUserId: string) =>
      post(`${a.url}/orders/${given.body.orderId}/transfer`, { toUserId });
    const refused = { status: 409, body: { type: '/problems/customer-limit', limit: 2, left: 1 } };
    expect(await transfer('bob')).toMatchObject(refused);
    expect(await unitsOf(limitGroup)).toEqual({ ann: 2, bob: 1 });
    expect((await transfer('cyd')).status).toBe(200);
    expect(await unitsOf(limitGroup)).toEqual({ bob: 1, cyd: 2 });
  });

  it('sells one unit to each of forty customers who buy in two sales of a group at once', async () => {
    const limitGroup = `${name}-race`;
    const sales = await group(1, limitGroup);
    const asked = users(40).flatMap((user, i) => {
      const [here, there] = i % 2 === 0 ? sales : sales.toReversed();
      return [buy(a.url, here!.id, user), buy(b.url, there!.id, user)];
    });
    const answers = await Promise.all(asked);
    expect(await unitsOf(limitGroup)).toEqual(Object.fromEntries(users(40).map((user) => [user, 1])));
    // 200: an answer was unknown, and its repeat found the order.
    for (let i = 0; i < answers.length; i += 2) {
      const [won, lost] = answers.slice(i, i + 2).sort((x, y) => x.status - y.status);
      expect([200, 201]).toContain(won!.status);
      expect(lost!.problem).toBe('customer-limit');
    }
    await expectSound(...sales.map(({ id }) => id));
  });

  it('refunds a late payment of an order that the limit does not allow any more', async () => {
    const limitGroup = `${name}-late`;
    const [one, two] = await group(1, limitGroup);
    const { body } = await buy(a.url, one!.id, 'ann');
    await stores.sql.query(
      `UPDATE orders SET expires_at = clock_timestamp() - interval '1 second' WHERE id = $1`,
      [body.orderId],
    );
    await expect.poll(() => unitsOf(limitGroup)).toEqual({});
    expect((await buy(b.url, two!.id, 'ann')).status).toBe(201);
    expect((await pay(b.url, body.orderId)).body).toMatchObject({ status: 'refund-due' });
    expect(await unitsOf(limitGroup)).toEqual({ ann: 1 });
    await expectSound(one!.id, two!.id);
  });

  it('opens a sale to a group with a code, each use to one customer, and to no other', async () => {
    const sale = await createSale(a.url, 100, { startsAt: inMinutes(60), maxPerOrder: 3 });
    const add = (body: object) => post(`${b.url}/sales/${sale.id}/groups`, body);
    const group = { name: 'members', opensAt: inMinutes(-1), codes: [{ code: 'first', uses: 2 }] };
    const added = { status: 201, body: { name: 'members', codes: { count: 1, uses: 2, taken: 0 } } };
    for (let n = 0; n < 2; n++) expect(await add(group)).toMatchObject(added);
    const later = { name: 'friends', opensAt: inMinutes(30), codes: [{ code: 'later', uses: 1 }] };
    expect((await add(later)).status).toBe(201);
    const notStarted = { status: 409, problem: 'sale-not-open', body: { reason: 'not-started' } };
    const invalid = (reason: string) => ({ status: 403, problem: 'invalid-code', body: { reason } });
    expect(await buy(a.url, sale.id, 'ann')).toMatchObject(notStarted);
    expect(await buyWith(a.url, sale.id, 'ann', 'guess')).toMatchObject(invalid('unknown'));
    const first = await buyWith(a.url, sale.id, 'ann', 'first', { quantity: 3 });
    expect(first).toMatchObject({ status: 201, body: { quantity: 3 } });
    const same = { status: 200, body: { orderId: first.body.orderId } };
    expect(await buyWith(b.url, sale.id, 'ann', 'first')).toMatchObject(same);
    expect(await buy(b.url, sale.id, 'ann')).toMatchObject(same);
    expect(await buyWith(a.url, sale.id, 'ann', 'guess')).toMatchObject(same);
    for (const url of [a.url, b.url])
      expect(await buyWith(url, sale.id, 'dan', 'later')).toMatchObject(notStarted);
    expect((await buyWith(b.url, sale.id, 'bob', 'first')).status).toBe(201);
    expect(await buyWith(a.url, sale.id, 'cyd', 'first')).toMatchObject(invalid('used-up'));
    const groups = await call(`${a.url}/sales/${sale.id}/groups`);
    expect(groups.body).toMatchObject([
      { name: 'members', codes: { count: 1, uses: 2, taken: 2 } },
      { name: 'friends', codes: { count: 1, uses: 1, taken: 1 } },
    ]);
    await cancel(b.url, first.body.orderId);
    if (store === 'redis') await published(stores);
    expect((await buyWith(a.url, sale.id, 'ann', 'first')).status).toBe(201); // the use is ann's
    await add({ ...group, codes: [{ code: 'more', uses: 1 }] });
    await patch(`${a.url}/sales/${sale.id}`, { paused: true });
    const paused = await buyWith(a.url, sale.id, 'cyd', 'more');
    expect(paused).toMatchObject({ problem: 'sale-not-open', body: { reason: 'paused' } });
    await patch(`${a.url}/sales/${sale.id}`, { paused: false, startsAt: inMinutes(-1) });
    expect((await buy(b.url, sale.id, 'cyd')).status).toBe(201);
    for (const [user, code] of Object.entries({ eve: 'guess', fay: 'first', gus: 'more' }))
      expect((await buyWith(a.url, sale.id, user, code)).status).toBe(201); // it is open for all
    const { rows } = await stores.sql.query(
      'SELECT sum(taken)::int AS taken FROM sale_codes WHERE sale_id = $1',
      [sale.id],
    );
    expect(rows).toEqual([{ taken: 4 }]); // no further one: of cyd, ann and bob, and of dan
    await expectSound(sale.id);
  });

  it('gives ten uses of a code to ten of thirty customers, among others without a code', async () => {
    const sale = await createSale(a.url, 100, { startsAt: inMinutes(60) });
    const codes = [{ code: 'ten', uses: 10 }];
    await post(`${a.url}/sales/${sale.id}/groups`, { name: 'g', opensAt: inMinutes(-1), codes });
    const asked = users(30).flatMap((user) => [
      buyWith(a.url, sale.id, user, 'ten'),
      buyWith(b.url, sale.id, user, 'ten'),
      buy(a.url, sale.id, `${user}-without`),
    ]);
    const answers = await Promise.all(asked);
    const placed = new Set(answers.flatMap(({ status, body }) => (status < 300 ? [body.orderId] : [])));
    expect(placed.size).toBe(10);
    for (const [i, { status, problem }] of answers.entries()) {
      if (i % 3 === 2) expect(problem).toBe('sale-not-open');
      else if (status >= 300) expect(problem).toBe('invalid-code');
    }
    const { rows } = await stores.sql.query('SELECT taken FROM sale_codes WHERE sale_id = $1', [sale.id]);
    const uses = await stores.sql.query('SELECT FROM sale_code_uses WHERE sale_id = $1', [sale.id]);
    expect([rows[0].taken, uses.rowCount]).toEqual([10, 10]);
    await expectSound(sale.id);
  });

  it('keeps the group of a sale with active orders, and takes another one afterwards', async () => {
    const limitGroup = `${name}-kept`;
    const sale = await createSale(a.url, 10);
    const change = (to: object) => patch(`${b.url}/sales/${sale.id}`, to);
    const { body } = await buy(a.url, sale.id, 'ann');
    const limit = { limitGroup, maxPerCustomer: 1 };
    expect(await change(limit)).toMatchObject({ status: 400, problem: 'invalid-request' });
    await cancel(a.url, body.orderId);
    for (const half of [{ limitGroup }, { maxPerCustomer: 1 }])
      expect(await change(half)).toMatchObject({ status: 400, problem: 'invalid-request' });
    expect(await change(limit)).toMatchObject({ status: 200, body: limit });
    const other = await createSale(a.url, 10, limit);
    if (store === 'redis') await published(stores);
    expect((await buy(b.url, sale.id, 'ann')).status).toBe(201);
    expect((await buy(b.url, other.id, 'ann')).problem).toBe('customer-limit');
    const gone = await change({ limitGroup: null, maxPerCustomer: null });
    expect(gone).toMatchObject({ status: 400, problem: 'invalid-request' });
  });
});

it('refuses a group that opens too late, needs tokens, or is another one than before', async () => {
  await using service = await startService({ ...envOf(stores), STRATEGY: 'group-commit', REDIS_URL: 'none' });
  const { id } = await createSale(service.url, 1, { startsAt: inMinutes(60) });
  const codes = [{ code: 'c', uses: 1 }];
  const group = { name: 'g', opensAt: inMinutes(10), codes };
  const add = (more: object, saleId = id) =>
    post(`${service.url}/sales/${saleId}/groups`, { ...group, ...more });
  const invalid = { status: 400, problem: 'invalid-request' };
  expect(await add({ opensAt: inMinutes(61) })).toMatchObject(invalid);
  expect(await add({}, (await createSale(service.url, 1)).id)).toMatchObject(invalid); // it has started
  expect(await add({ codes: undefined })).toMatchObject(invalid);
  expect(await add({ codes: [...codes, ...codes] })).toMatchObject(invalid);
  const shape = {
    path: 'body.codes.0',
    message: expect.stringContaining('{"code":"early-7f3a","uses":100}'),
  };
  expect((await add({ codes: ['c'] })).body.errors).toEqual([shape]);
  expect((await add({}, 2_000_000)).problem).toBe('unknown-sale');
  expect((await add({})).status).toBe(201);
  for (const other of [{ opensAt: inMinutes(11) }, { codes: [{ code: 'c', uses: 2 }] }, { name: 'h' }])
    expect(await add(other)).toMatchObject({ status: 409, problem: 'idempotency-conflict' });
  expect((await call(`${service.url}/sales/${id}/groups`)).body).toHaveLength(1);
});

it('gives an early ticket to a customer with a code, or whose token names a group, and no other', async () => {
  await using issuer = await openIssuer();
  await using service = await startService({
    ...envOf(stores),
    ...issuer.env,
    ...{ STRATEGY: 'lua', CUSTOMER_RATE: '0' },
  });
  const startsAt = inMinutes(60);
  const sale = await createSale(service.url, 10, { startsAt });
  const send = (path: string, token: string, body: object = {}) =>
    post(`${service.url}/sales/${sale.id}/${path}`, body, token);
  const group = { name: 'coders', opensAt: inMinutes(-1), codes: [{ code: 'one', uses: 1 }] };
  const add = (body: object) => post(`${service.url}/sales/${sale.id}/groups`, body);
  expect((await add(group)).status).toBe(201);
  expect(await add({ name: 'members', opensAt: inMinutes(-2) })).toMatchObject({ body: { codes: null } });
  const later = { name: 'friends', opensAt: inMinutes(30) };
  await add(later);

  const ann = await send('tickets', await issuer.token('ann'), { code: 'one' });
  expect((await send('orders', String(ann.body.ticket))).status).toBe(201);
  expect(await send('tickets', await issuer.token('bob'), { code: 'one' })).toMatchObject({
    status: 403,
    body: { reason: 'used-up' },
  });
  const cyd = await send('tickets', await issuer.token('cyd', { groups: ['friends', 'members'] }));
  expect((await send('orders', String(cyd.body.ticket))).status).toBe(201);
  const friend = await send('tickets', await issuer.token('dan', { groups: ['friends'] }));
  expect(friend.body.notBefore).toBe(later.opensAt);
  expect((await send('orders', String(friend.body.ticket))).problem).toBe('too-early');
  for (const groups of [undefined, 'members', ['coders', 7]]) {
    const other = await send('tickets', await issuer.token('eve', { groups }));
    expect(Date.parse(String(other.body.notBefore))).toBeGreaterThanOrEqual(Date.parse(startsAt));
  }
  const withCode = await send('orders', String(ann.body.ticket), { code: 'one' });
  expect(withCode).toMatchObject({ status: 400, problem: 'invalid-request' }); // it belongs to the ticket
  await patch(`${service.url}/sales/${sale.id}`, { startsAt: inMinutes(-1) });
  expect((await send('tickets', await issuer.token('bob'), { code: 'one' })).status).toBe(201);
});

it('refuses a group without its limit', async () => {
  await using service = await startService({ ...envOf(stores), STRATEGY: 'group-commit', REDIS_URL: 'none' });
  const sale = { name: 'sale', stock: 1, priceCents: 1 };
  for (const [half, missing, given] of [
    [{ limitGroup: 'g' }, 'maxPerCustomer', 'limitGroup'],
    [{ maxPerCustomer: 1 }, 'limitGroup', 'maxPerCustomer'],
  ] as const)
    expect(await post(`${service.url}/sales`, { ...sale, ...half })).toMatchObject({
      ...{ status: 400, problem: 'invalid-request' },
      body: { errors: [{ path: `body.${missing}`, message: `is required with ${given}` }] },
    });
});

it('names the one cause for which it refuses a change of a sale, or a place in the waitlist', async () => {
  await using service = await startService({ ...envOf(stores), STRATEGY: 'group-commit', REDIS_URL: 'none' });
  const { id } = await createSale(service.url, 1, { startsAt: inMinutes(60), endsAt: inMinutes(90) });
  const change = async (to: object) => (await patch(`${service.url}/sales/${id}`, to)).body.detail;
  expect(await change({ startsAt: inMinutes(100) })).toMatch(/would end before it starts: [^,]+\.$/);
  expect(await change({ maxPerCustomer: 1 })).toMatch(
    /would have one of limitGroup and maxPerCustomer [^,]+\.$/,
  );
  expect(await change({ priceCents: 100_000_000, maxPerOrder: 100 })).toMatch(
    /would have orders of more than \d+/,
  );
  const join = async () => (await post(`${service.url}/sales/${id}/waitlist`, { userId: 'ann' })).body;
  const refused = (detail: string) => ({
    type: '/problems/not-sold-out',
    detail: expect.stringContaining(detail),
  });
  expect(await join()).toMatchObject(refused('has not started'));
  await patch(`${service.url}/sales/${id}`, { startsAt: null, paused: true });
  expect(await join()).toMatchObject(refused('is paused'));
  await patch(`${service.url}/sales/${id}`, { paused: false });
  expect(await join()).toMatchObject(refused('buy, or join again'));
});

it('has no limit of a customer with CONFIRM=accepted, and does not start while a sale has one', async () => {
  const env = { ...envOf(stores), STRATEGY: 'lua', CONFIRM: 'accepted' };
  await expect(startService(env)).rejects.toThrow(/CONFIRM=accepted: sale \d+ has a limitGroup/);
  await stores.sql.query('UPDATE sales SET ends_at = now() WHERE limit_group IS NOT NULL');
  await using service = await startService(env);
  const limit = { limitGroup: 'g', maxPerCustomer: 1 };
  const refused = { status: 409, problem: 'not-supported' };
  const sale = { name: 'sale', stock: 1, priceCents: 1 };
  expect(await post(`${service.url}/sales`, { ...sale, ...limit })).toMatchObject(refused);
  const { id } = await createSale(service.url, 1);
  expect(await patch(`${service.url}/sales/${id}`, limit)).toMatchObject(refused);
  const { rows } = await stores.sql.query('SELECT id FROM sales WHERE limit_group IS NOT NULL LIMIT 1');
  expect(await patch(`${service.url}/sales/${rows[0].id}`, { endsAt: null })).toMatchObject(refused);
});
