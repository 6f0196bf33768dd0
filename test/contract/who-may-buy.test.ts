/** Who may buy, with every strategy: the limit of a customer over a group of sales. The services of all strategies share the stores. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { strategies } from '../../src/strategies/registry.ts';
import { buy, cancel, createSale, patch, pay, post, users } from '../support/client.ts';
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

it('refuses a group without its limit', async () => {
  await using service = await startService({ ...envOf(stores), STRATEGY: 'group-commit', REDIS_URL: 'none' });
  const sale = { name: 'sale', stock: 1, priceCents: 1 };
  for (const half of [{ limitGroup: 'g' }, { maxPerCustomer: 1 }])
    expect(await post(`${service.url}/sales`, { ...sale, ...half })).toMatchObject({
      status: 400,
      problem: 'invalid-request',
    });
});

it('has no limit of a customer with CONFIRM=accepted, and does not start while a sale has one', async () => {
  const env = { ...envOf(stores), STRATEGY: 'lua', CONFIRM: 'accepted' };
  await expect(startService(env)).rejects.toThrow(/CONFIRM=accepted: sale \d+ has a limitGroup/);
  await stores.sql.query('UPDATE sales SET ends_at = now() WHERE limit_group IS NOT NULL');
  await using service = await startService(env);
  const limit = { limitGroup: 'g', maxPerCustomer: 1 };
  const refused = { status: 400, problem: 'invalid-request' };
  const sale = { name: 'sale', stock: 1, priceCents: 1 };
  expect(await post(`${service.url}/sales`, { ...sale, ...limit })).toMatchObject(refused);
  const { id } = await createSale(service.url, 1);
  expect(await patch(`${service.url}/sales/${id}`, limit)).toMatchObject(refused);
  const { rows } = await stores.sql.query('SELECT id FROM sales WHERE limit_group IS NOT NULL LIMIT 1');
  expect(await patch(`${service.url}/sales/${rows[0].id}`, { endsAt: null })).toMatchObject(refused);
});
