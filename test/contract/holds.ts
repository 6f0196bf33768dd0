/** The contract of a waitlist that holds: a unit that returns is an order of the next customer at once, and no other customer gets it. */
import { expect, it } from 'vitest';
import {
  type Answer,
  attempt,
  buy,
  call,
  cancel,
  createSale,
  eventually,
  patch,
  pay,
  post,
} from '../support/client.ts';
import type { LifeBench } from './order-life.ts';

/** A repeat of what was answered 503: it changed nothing, or is settled by the repeat. */
const answered = (request: () => Promise<Answer>) => eventually(request, ({ status }) => status !== 503);

export function holds({ stores, urls, expectSold }: Omit<LifeBench, 'isWhole' | 'expectSound'>): void {
  const HOLD = { waitlist: 'hold', waitlistHoldS: 60, maxPerOrder: 2 };
  const wait = (url: string, saleId: number, userId: string, quantity = 1) =>
    post(`${url}/sales/${saleId}/waitlist`, { userId, quantity });
  const place = async (url: string, saleId: number, userId: string) =>
    (await call(`${url}/sales/${saleId}/waitlist/${userId}`)).body;
  const orderOf = async (url: string, saleId: number, userId: string) =>
    (await call(`${url}/sales/${saleId}/orders?userId=${userId}`)).body;
  const expire = (orderId: unknown) =>
    stores.sql.query(
      `UPDATE orders SET expires_at = clock_timestamp() - interval '1 second' WHERE id = $1 AND status = 'pending'`,
      [orderId],
    );

  it('places the order of the first waiting customer whom a returned unit suits: a cancellation, an expiry, a refund, a restock', async () => {
    const [a, b] = urls();
    const sale = await createSale(a, 1, HOLD);
    expect(sale).toMatchObject({ waitlist: 'hold', waitlistHoldS: 60 });
    const first = await buy(a, sale.id, 'first');
    expect((await buy(b, sale.id, 'late')).problem).toBe('sold-out');
    expect((await wait(a, sale.id, 'pair', 2)).body).toMatchObject({ place: 1, orderId: null });
    for (const user of ['second', 'third', 'fourth', 'fifth'])
      expect((await wait(b, sale.id, user)).status).toBe(201);
    expect((await cancel(a, first.body.orderId)).status).toBe(200);
    const order = await orderOf(b, sale.id, 'second');
    expect(order).toMatchObject({ status: 'pending', quantity: 1, amountCents: 500 });
    expect(order.orderId).toMatch(/^[\da-f]{8}-[\da-f]{4}-7[\da-f]{3}-[89ab]/);
    const holdMs = Date.parse(String(order.expiresAt)) - Date.parse(String(order.createdAt));
    expect(Math.abs(holdMs - 60_000)).toBeLessThan(1_000);
    expect(await place(a, sale.id, 'second')).toMatchObject({
      place: null,
      namedAt: expect.any(String),
      orderId: order.orderId,
    });
    expect(await place(a, sale.id, 'pair')).toMatchObject({ place: 1 }); // waits for two
    expect((await attempt(b, sale.id, 'late')).problem).toBe('sold-out');
    expect(await buy(a, sale.id, 'second')).toMatchObject({ status: 200, body: { orderId: order.orderId } });
    await expectSold(sale.id, 1, [first]);

    // An offer that is not paid passes to the next one; a late payment then buys nothing.
    await expire(order.orderId);
    await expect.poll(() => orderOf(a, sale.id, 'third')).toMatchObject({ status: 'pending' });
    expect((await pay(b, order.orderId)).body).toMatchObject({ status: 'refund-due' });
    const third = await orderOf(b, sale.id, 'third');
    expect((await pay(a, third.orderId)).body).toMatchObject({ status: 'paid', userId: 'third' });
    await expectSold(sale.id, 1, [first]);
    expect((await post(`${b}/orders/${third.orderId}/refund`, {})).status).toBe(200);
    expect(await orderOf(a, sale.id, 'fourth')).toMatchObject({ status: 'pending' });
    expect((await post(`${a}/sales/${sale.id}/restock`, { units: 4 })).body).toMatchObject({ remaining: 1 });
    expect(await orderOf(b, sale.id, 'pair')).toMatchObject({ status: 'pending', quantity: 2 });
    expect(await orderOf(b, sale.id, 'fifth')).toMatchObject({ status: 'pending' });
    await expectSold(sale.id, 4, [first]);
    const late = await eventually(
      () => buy(b, sale.id, 'late'),
      ({ status }) => status < 300,
    );
    await expectSold(sale.id, 5, [first, late]);

    // While the sale is paused no unit is held; then for the first one.
    const paused = (is: boolean) => patch(`${a}/sales/${sale.id}`, { paused: is });
    await wait(b, sale.id, 'sixth');
    await paused(true);
    expect((await cancel(b, late.body.orderId)).status).toBe(200);
    expect(await place(a, sale.id, 'sixth')).toMatchObject({ place: 1, orderId: null });
    expect((await paused(false)).body).toMatchObject({ sold: 5, remaining: 0 });
    expect(await orderOf(b, sale.id, 'sixth')).toMatchObject({ status: 'pending' });
    await expectSold(sale.id, 5, [first, late]);
  });

  it('beside purchases of waiting customers, cancellations and payments, no unit is sold twice, and none is left while one waits', async () => {
    const [a, b] = urls();
    const sale = await createSale(a, 4, HOLD);
    const answers: Answer[] = [];
    let held = await Promise.all(
      ['h-0', 'h-1', 'h-2', 'h-3'].map((user, i) => answered(() => buy(i % 2 ? a : b, sale.id, user))),
    );
    answers.push(...held);
    for (let round = 0; round < 8; round++) {
      const waiting = Array.from({ length: 4 }, (_, i) => `w-${round}-${i}`);
      for (const user of waiting) await wait(a, sale.id, user);
      // They ask for the units at the moment at which these return to them.
      const [bought] = await Promise.all([
        Promise.all(waiting.map((user, i) => attempt(i % 2 ? a : b, sale.id, user))),
        ...held.map(({ body }, i) => answered(() => cancel(i % 2 ? b : a, body.orderId))),
      ]);
      for (const { status } of bought) expect([200, 201, 409, 503]).toContain(status);
      answers.push(...bought);
      // A customer whose purchase was in progress kept the place, and is next.
      await expect
        .poll(async () => (await call(`${a}/sales/${sale.id}`)).body.remaining, { timeout: 30_000 })
        .toBe(0);
      held = await Promise.all(
        waiting.map(async (user) => {
          const order = await orderOf(b, sale.id, user);
          expect(order).toMatchObject({ status: 'pending' });
          return { body: order } as Answer;
        }),
      );
    }
    await expectSold(sale.id, 4, answers);
  });
}
