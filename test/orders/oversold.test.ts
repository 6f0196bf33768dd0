/** A sale that `unsafe` oversold: how the API reports it, and that its orders close under any strategy. */
import { expect, it } from 'vitest';
import type { Sale } from '../../src/domain/sale.ts';
import { attempt, buy, call, cancel, createSale, eventually, post, users } from '../support/client.ts';
import { openScene } from '../support/scene.ts';
import type { TestService } from '../support/service.ts';
import { bySize } from '../support/tier.ts';

const STOCK = 3;
const CUSTOMERS = 40;

const scene = openScene();
const start = (STRATEGY: string) => scene.start({ STRATEGY });

async function activeOrders(saleId: number): Promise<string[]> {
  const { rows } = await scene.stores.sql.query<{ id: string }>(
    `SELECT id FROM orders WHERE sale_id = $1 AND status IN ('pending', 'paid') ORDER BY id`,
    [saleId],
  );
  return rows.map(({ id }) => id);
}

/** Oversells: concurrent attempts see the same units. @returns the sale, which has more orders than units */
async function oversell(service: TestService): Promise<Sale> {
  for (let tries = 0; tries < 20; tries++) {
    const sale = await createSale(service.url, STOCK);
    await Promise.all(users(CUSTOMERS).map((user) => attempt(service.url, sale.id, user)));
    if ((await activeOrders(sale.id)).length > STOCK + 2) return sale;
  }
  throw new Error('unsafe did not oversell');
}

/** GET must report what the orders say. @returns how many are active */
async function expectCounted(service: TestService, saleId: number): Promise<number> {
  const active = (await activeOrders(saleId)).length;
  const { body } = await call(`${service.url}/sales/${saleId}`);
  expect(body).toMatchObject({ sold: active, remaining: (body.stock as number) - active });
  const { rows } = await scene.stores.sql.query(
    'SELECT sold + oversold AS sum, sold <= stock AS fits FROM sales WHERE id = $1',
    [saleId],
  );
  expect(rows).toEqual([{ sum: active, fits: true }]);
  return active;
}

async function cancelOne(service: TestService, saleId: number): Promise<void> {
  const [orderId] = await activeOrders(saleId);
  const answer = await cancel(service.url, orderId);
  expect([answer.status, answer.body.status]).toEqual([200, 'cancelled']);
  await expectCounted(service, saleId);
}

async function expireAll(service: TestService, saleId: number): Promise<void> {
  await scene.stores.sql.query(
    `UPDATE orders SET expires_at = now() - interval '1 second' WHERE sale_id = $1 AND status = 'pending'`,
    [saleId],
  );
  await expect.poll(() => activeOrders(saleId)).toEqual([]);
  expect(await expectCounted(service, saleId)).toBe(0);
}

it.each(
  bySize({
    core: ['lua'],
    full: ['lua', 'group-commit', 'skip-locked'],
    nightly: ['lua', 'segmented-lock', 'group-commit', 'skip-locked'],
  }),
)(
  '%s reports more sold than its stock, and sells again once added and cancelled units have covered the rest',
  async (strategy) => {
    const unsafe = await start('unsafe');
    const { id } = await oversell(unsafe);
    expect(await expectCounted(unsafe, id)).toBeGreaterThan(STOCK);
    const { body } = await call(`${unsafe.url}/sales/${id}`);
    expect((await call(`${unsafe.url}/sales`)).body).toContainEqual(body);
    await unsafe.stop();
    const service = await start(strategy);
    const restock = (units: number) => post(`${service.url}/sales/${id}/restock`, { units });
    const expectSoldOut = async () => expect((await buy(service.url, id, 'late')).problem).toBe('sold-out');
    // The process may believe for a moment that the sale is sold out: see sold-out-latch.ts.
    const sell = (user: string) =>
      eventually(
        () => buy(service.url, id, user),
        ({ status }) => status < 300,
      );
    await expectSoldOut();
    expect(await restock(-1)).toMatchObject({ status: 409, problem: 'below-sold' });
    await cancelOne(service, id);
    await expectSoldOut();
    const beyond = (await expectCounted(service, id)) - STOCK;
    expect(await restock(beyond - 1)).toMatchObject({ status: 200, body: { remaining: -1 } });
    await expectSoldOut();
    expect(await restock(2)).toMatchObject({ status: 200, body: { remaining: 1 } });
    expect((await sell('first')).body.userId).toBe('first');
    await expectSoldOut();
    await cancelOne(service, id);
    await sell('second');
    await expectSoldOut();
    await expectCounted(service, id);
    await expireAll(service, id);
  },
);
