/** The contract of a transfer: an order passes to another customer, whatever else happens to it and to both customers. */
import { expect, it } from 'vitest';
import { type Answer, buy, call, cancel, createSale, eventually, pay, post } from '../support/client.ts';
import { published } from '../support/stores.ts';
import type { LifeBench } from './order-life.ts';

/** A repeat of what was answered 503: it changed nothing, or is settled by the repeat. */
const answered = (request: () => Promise<Answer>) => eventually(request, ({ status }) => status !== 503);

export function transfers({ stores, urls, expectSold }: Omit<LifeBench, 'isWhole' | 'expectSound'>): void {
  const transfer = (url: string, orderId: unknown, toUserId: string) =>
    post(`${url}/orders/${orderId}/transfer`, { toUserId });
  const orderOf = async (url: string, saleId: number, user: string) =>
    (await call(`${url}/sales/${saleId}/orders?userId=${user}`)).body.orderId;
  const pointsOf = async (orderId: unknown) => {
    const { rows } = await stores.sql.query<{ user: string; points: number }>(
      `SELECT user_id AS user, sum(points)::int AS points FROM points_entries WHERE source_id = $1 GROUP BY 1 ORDER BY 1`,
      [orderId],
    );
    return Object.fromEntries(rows.map(({ user, points }) => [user, points]));
  };

  it('passes an order to another customer, once: its first customer may buy again', async () => {
    const [a, b] = urls();
    const sale = await createSale(a, 4, { maxPerOrder: 2 });
    const [given, kept] = [await buy(a, sale.id, 'giver', 2), await buy(b, sale.id, 'keeper')];
    const { orderId } = given.body;
    expect(await transfer(a, orderId, 'giver')).toMatchObject({ status: 400, problem: 'invalid-request' });
    expect(await transfer(b, orderId, 'keeper')).toMatchObject({ status: 409, problem: 'has-order' });
    const done = { status: 200, body: { orderId, userId: 'taker', quantity: 2, status: 'pending' } };
    for (const url of [a, b]) expect(await transfer(url, orderId, 'taker')).toMatchObject(done);
    for (const user of ['giver', 'other'])
      expect(await transfer(a, orderId, user)).toMatchObject({
        status: 409,
        problem: 'already-transferred',
      });
    expect(await transfer(a, crypto.randomUUID(), 'x')).toMatchObject({ problem: 'unknown-order' });
    expect(await pointsOf(orderId)).toEqual({ giver: 0, taker: 10 });
    await published(stores);
    await expectSold(sale.id, 3, [given, kept]);
    // The unit that is left is for the first customer; the other one has the order.
    const again = await answered(() => buy(b, sale.id, 'giver'));
    expect(again.body).toMatchObject({ userId: 'giver', quantity: 1, replayed: false });
    expect((await buy(a, sale.id, 'none')).problem).toBe('sold-out');
    for (const url of [a, b])
      expect(await answered(() => buy(url, sale.id, 'taker'))).toMatchObject({
        status: 200,
        body: { orderId, replayed: true },
      });
    expect((await pay(b, orderId, undefined, 1_000)).body).toMatchObject({ userId: 'taker', status: 'paid' });
    expect(await transfer(a, orderId, 'taker')).toMatchObject({ status: 200, body: { status: 'paid' } });
    expect((await cancel(a, again.body.orderId)).body).toMatchObject({ status: 'cancelled' });
    const closed = { status: 409, problem: 'invalid-transition', body: { orderStatus: 'cancelled' } };
    expect(await transfer(b, again.body.orderId, 'late')).toMatchObject(closed);
    expect((await post(`${b}/orders/${orderId}/refund`, {})).body).toMatchObject({ status: 'refund-due' });
    expect(await pointsOf(orderId)).toEqual({ giver: 0, taker: 0 });
    expect(await orderOf(a, sale.id, 'giver')).toBe(again.body.orderId);
    expect(await orderOf(a, sale.id, 'taker')).toBe(orderId);
    const events = await stores.sql.query(
      `SELECT details::json->>'toUserId' AS to FROM (SELECT subject, action, details FROM audit_pending UNION SELECT subject, action, details FROM audit_log) AS e
       WHERE subject = $1 AND action = 'order.transferred'`,
      [`order ${orderId}`],
    );
    expect(events.rows).toEqual([{ to: 'taker' }]);
    await published(stores);
    await expectSold(sale.id, 1, [given, again, kept]);
  });

  it('ends in one of two ways beside a purchase of the other customer, a cancellation, a payment and an expiry', async () => {
    const [a, b] = urls();
    const sale = await createSale(a, 60);
    const others = ['purchase', 'cancellation', 'payment', 'expiry', 'second transfer'] as const;
    const races = Array.from({ length: 25 }, (_, i) => ({
      other: others[i % 5]!,
      from: `from-${i}`,
      to: `to-${i}`,
    }));
    const answers: Answer[] = [];
    for (const { other, from, to } of races) {
      const placed = await answered(() => buy(a, sale.id, from));
      const { orderId } = placed.body;
      answers.push(placed);
      const beside = {
        purchase: () => buy(b, sale.id, to),
        cancellation: () => cancel(b, orderId),
        payment: () => pay(b, orderId, `n-${orderId}`),
        expiry: () =>
          stores.sql
            .query(`UPDATE orders SET expires_at = clock_timestamp() WHERE id = $1 AND status = 'pending'`, [
              orderId,
            ])
            .then(() => call(`${b}/orders/${orderId}`)),
        'second transfer': () => transfer(b, orderId, `${to}-too`),
      };
      const [moved, done] = await Promise.all([
        answered(() => transfer(a, orderId, to)),
        answered(beside[other]),
      ]);
      const order = (await call(`${a}/orders/${orderId}`)).body;
      const isMoved = moved.status === 200;
      const owner = isMoved ? to : other === 'second transfer' ? `${to}-too` : from;
      expect({ other, moved: moved.problem, userId: order.userId }).toMatchObject({ userId: owner });
      if (other === 'purchase') {
        if (!isMoved) expect(moved.problem).toBe('has-order');
        expect(done.status).toBeLessThan(300);
        expect(done.body.orderId === orderId).toBe(isMoved);
        answers.push(done);
        const again = await answered(() => buy(b, sale.id, from));
        expect(again.body).toMatchObject({ userId: from, replayed: !isMoved });
        answers.push(again);
      }
      if (other === 'cancellation') {
        expect(done.body.status).toBe('cancelled');
        if (!isMoved) expect(moved.problem).toBe('invalid-transition');
      }
      if (other === 'payment') expect([moved.status, done.body.status]).toEqual([200, 'paid']);
      if (other === 'expiry' && !isMoved) expect(moved.problem).toBe('invalid-transition');
      if (other === 'second transfer') {
        expect([moved.status, done.status].sort()).toEqual([200, 409]);
        expect([moved.problem, done.problem]).toContain('already-transferred');
      }
    }
    const stale = `SELECT count(*)::int AS n FROM orders WHERE sale_id = $1 AND status = 'pending' AND expires_at <= clock_timestamp()`;
    await expect.poll(async () => (await stores.sql.query(stale, [sale.id])).rows[0]).toEqual({ n: 0 });
    await published(stores);
    const { rows } = await stores.sql.query<{ n: number }>(
      `SELECT coalesce(sum(quantity), 0)::int AS n FROM orders WHERE sale_id = $1 AND status IN ('pending', 'paid')`,
      [sale.id],
    );
    await expectSold(sale.id, rows[0]!.n, answers);
  });
}
