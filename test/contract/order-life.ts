/** The contract of a placed order, for a strategy of each kind: paid, cancelled or expired, and its unit released. */
import { expect, it } from 'vitest';
import { type Answer, buy, cancel, createSale, eventually, pay, post, users } from '../support/client.ts';
import { published, type TestStores } from '../support/stores.ts';

/** What the strategy suite provides. */
export interface LifeBench {
  /** False: only the first block. */
  readonly isWhole: boolean;
  readonly stores: TestStores;
  urls(): readonly [string, string];
  /** Asserts that `units` are sold and the audit finds nothing wrong. @param answers that must agree with the orders */
  expectSold(saleId: number, units: number, answers?: readonly Answer[]): Promise<void>;
  expectSound(saleId: number): Promise<void>;
}

/** Sends a request again while its answer is 503: of twenty that wait for the row of one order, the last may wait too long for it. */
const answered = (request: () => Promise<Answer>) => eventually(request, ({ status }) => status !== 503);

export function orderLife(bench: LifeBench): void {
  const count = async (sql: string, values: unknown[]): Promise<number> =>
    Number((await bench.stores.sql.query<{ n: string }>(sql, values)).rows[0]!.n);
  const balance = (orderId: unknown) =>
    count(`SELECT coalesce(sum(points), 0) AS n FROM points_entries WHERE source_id = $1`, [orderId]);
  const deadlineOf = (orderId: unknown) =>
    count('SELECT extract(epoch FROM expires_at) * 1000 AS n FROM orders WHERE id = $1', [orderId]);
  const expire = (saleId: number) =>
    bench.stores.sql.query(
      `UPDATE orders SET expires_at = clock_timestamp() - interval '1 second' WHERE sale_id = $1 AND status = 'pending'`,
      [saleId],
    );
  const refund = (url: string, orderId: unknown, returnUnits = true) =>
    post(`${url}/orders/${orderId}/refund`, returnUnits ? {} : { returnUnits });
  const statuses = async (saleId: number) => {
    const { rows } = await bench.stores.sql.query<{ status: string; n: number }>(
      'SELECT status, count(*)::int AS n FROM orders WHERE sale_id = $1 GROUP BY status ORDER BY status',
      [saleId],
    );
    return Object.fromEntries(rows.map(({ status, n }) => [status, n]));
  };
  cancellingAndPaying();
  if (!bench.isWhole) return;
  expiring();
  nothingToPay();
  refunding();

  function cancellingAndPaying(): void {
    it('releases the unit of a cancelled order, and lets its customer buy again', async () => {
      const [a, b] = bench.urls();
      const sale = await createSale(a, 1);
      const first = await buy(a, sale.id, 'one');
      expect((await buy(b, sale.id, 'two')).problem).toBe('sold-out');
      expect(await cancel(b, first.body.orderId)).toMatchObject({
        status: 200,
        body: { status: 'cancelled' },
      });
      expect(await balance(first.body.orderId)).toBe(0);
      const deadline = `UPDATE orders SET expires_at = expires_at - interval '5 minutes' WHERE id = $1`;
      await bench.stores.sql.query(deadline, [first.body.orderId]);
      await published(bench.stores);
      const again = await buy(a, sale.id, 'one');
      expect(again.status).toBeLessThan(300);
      expect(again.body.orderId).not.toBe(first.body.orderId);
      // Cancelling and buying again gains no time.
      expect(await deadlineOf(again.body.orderId)).toBe(await deadlineOf(first.body.orderId));
      expect(await cancel(a, first.body.orderId)).toMatchObject({
        status: 409,
        problem: 'invalid-transition',
      });
      await bench.expectSold(sale.id, 1);
    });

    it('cancels once for twenty concurrent requests', async () => {
      const [a, b] = bench.urls();
      const sale = await createSale(a, 3);
      const { body } = await buy(a, sale.id, 'one');
      const answers = await Promise.all(
        Array.from({ length: 20 }, (_, i) => answered(() => cancel(i % 2 ? a : b, body.orderId))),
      );
      expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
      expect(answers.filter(({ problem }) => problem === 'invalid-transition')).toHaveLength(19);
      await bench.expectSold(sale.id, 0);
    });

    it('has one effect for repeated notifications, concurrent or late', async () => {
      const [a, b] = bench.urls();
      const sale = await createSale(a, 2);
      const { body } = await buy(a, sale.id, 'payer');
      const together = await Promise.all(
        Array.from({ length: 20 }, (_, i) =>
          answered(() => pay(i % 2 ? a : b, body.orderId, `n-${i % 4}-${body.orderId}`)),
        ),
      );
      for (const answer of together) expect(answer).toMatchObject({ status: 200, body: { status: 'paid' } });
      expect(
        await count(`SELECT count(*) AS n FROM tasks WHERE payload->>'orderId' = $1`, [body.orderId]),
      ).toBe(2 + 3); // the three other notifications' payments are to be refunded
      expect(await cancel(b, body.orderId)).toMatchObject({
        status: 409,
        body: { status: 409, orderStatus: 'paid' },
      });
      expect((await pay(a, body.orderId, `n-0-${body.orderId}`)).status).toBe(200);
      await bench.expectSold(sale.id, 1);
    });
  }

  function nothingToPay(): void {
    it('sells for nothing: a notification of 0 pays such an order, also when it has expired and its sale has ended', async () => {
      const [a, b] = bench.urls();
      const sale = await createSale(a, 1, { priceCents: 0 });
      const { body } = await buy(a, sale.id, 'ann');
      expect((await pay(b, body.orderId, 'one cent', 1)).body).toMatchObject({ reason: 'amount-mismatch' });
      await expire(sale.id);
      await expect.poll(() => statuses(sale.id)).toEqual({ expired: 1 });
      await bench.stores.sql.query('UPDATE sales SET ends_at = clock_timestamp() WHERE id = $1', [sale.id]);
      expect((await pay(b, body.orderId, undefined, 0)).body).toMatchObject({
        status: 'paid',
        priceCents: 0,
      });
      expect(await balance(body.orderId)).toBe(1);
      await bench.expectSound(sale.id);
    });
  }

  function expiring(): void {
    it('expires unpaid orders, and sells their units again', async () => {
      const [a, b] = bench.urls();
      const sale = await createSale(a, 12);
      const held = await Promise.all(users(12).map((user, i) => buy(i % 2 ? a : b, sale.id, user)));
      for (const { body } of held.slice(0, 5)) expect((await pay(a, body.orderId)).status).toBe(200);
      await expire(sale.id);
      await expect.poll(() => statuses(sale.id)).toMatchObject({ expired: 7 });
      expect(await statuses(sale.id)).toEqual({ paid: 5, expired: 7 });
      await bench.expectSold(sale.id, 5);
      const next = await Promise.all(users(20, 'next').map((user, i) => buy(i % 2 ? a : b, sale.id, user)));
      expect(next.filter(({ status }) => status < 300)).toHaveLength(7);
      await bench.expectSold(sale.id, 12);
    });

    it('holds an order whose deadline is extended, and only such a one, and only so long', async () => {
      const [a, b] = bench.urls();
      const sale = await createSale(a, 2);
      const [held, other] = await Promise.all(['held', 'other'].map((user) => buy(a, sale.id, user)));
      const extend = (url: string, seconds: number) =>
        post(`${url}/orders/${held!.body.orderId}/extend`, { seconds });
      await bench.stores.sql.query(
        `UPDATE orders SET expires_at = clock_timestamp() + interval '1 minute' WHERE sale_id = $1`,
        [sale.id],
      );
      const before = await deadlineOf(held!.body.orderId);
      const { status, body } = await extend(b, 600);
      expect({ status, orderId: body.orderId }).toEqual({ status: 200, orderId: held!.body.orderId });
      const deadline = Date.parse(String(body.expiresAt));
      expect(deadline).toBeGreaterThan(before + 500_000);
      expect((await extend(a, 1)).body.expiresAt).toBe(body.expiresAt); // never earlier
      const far = await extend(a, 3_601);
      expect(far).toMatchObject({ status: 409, problem: 'beyond-limit' });
      const created = Date.parse(String((await extend(a, 1)).body.createdAt));
      expect(Date.parse(String(far.body.latest))).toBe(created + 3_600_000);
      // Ten minutes pass for both.
      await bench.stores.sql.query(
        `UPDATE orders SET expires_at = expires_at - interval '9 minutes' WHERE sale_id = $1`,
        [sale.id],
      );
      await expect.poll(() => statuses(sale.id)).toEqual({ expired: 1, pending: 1 });
      expect((await pay(a, held!.body.orderId)).body.status).toBe('paid');
      const late = (orderId: unknown) => post(`${b}/orders/${orderId}/extend`, { seconds: 60 });
      const refused = { status: 409, problem: 'invalid-transition' };
      expect(await late(held!.body.orderId)).toMatchObject({ ...refused, body: { orderStatus: 'paid' } });
      expect(await late(other!.body.orderId)).toMatchObject({ ...refused, body: { orderStatus: 'expired' } });
      await bench.expectSold(sale.id, 1);
    });

    it('revives the order of a late payment if its units are free, and refunds it otherwise', async () => {
      const [a, b] = bench.urls();
      const sale = await createSale(a, 4, { maxPerOrder: 2 });
      const [lucky, late] = await Promise.all(['lucky', 'late'].map((user) => buy(a, sale.id, user, 2)));
      await expire(sale.id);
      await expect.poll(() => statuses(sale.id)).toMatchObject({ expired: 2 });
      await bench.expectSound(sale.id);
      const payFor = (url: string, orderId: unknown) => pay(url, orderId, undefined, 1_000);
      expect((await buy(b, sale.id, 'other')).status).toBeLessThan(300);
      expect(await payFor(b, lucky!.body.orderId)).toMatchObject({ status: 200, body: { status: 'paid' } });
      // One unit is free, and the order needs two.
      for (const url of [a, b])
        expect(await payFor(url, late!.body.orderId)).toMatchObject({
          status: 200,
          body: { status: 'refund-due' },
        });
      expect(
        await count(`SELECT count(*) AS n FROM tasks WHERE key = $1`, [`refund:${late!.body.orderId}`]),
      ).toBe(1);
      expect((await buy(a, sale.id, 'last')).status).toBeLessThan(300);
      expect((await buy(a, sale.id, 'none')).problem).toBe('sold-out');
      expect(await statuses(sale.id)).toEqual({ paid: 1, pending: 2, 'refund-due': 1 });
      expect((await buy(a, sale.id, 'lucky')).body).toMatchObject({
        orderId: lucky!.body.orderId,
        replayed: true,
      });
      await bench.expectSold(sale.id, 4);
      expect(await refund(b, lucky!.body.orderId)).toMatchObject({ body: { status: 'refund-due' } });
      expect(await balance(lucky!.body.orderId)).toBe(0);
      await bench.expectSold(sale.id, 2);
    });
  }

  function refunding(): void {
    it('refunds a paid order and cancels a pending one, once: units return, or leave the stock', async () => {
      const [a, b] = bench.urls();
      const sale = await createSale(a, 6, { maxPerOrder: 2 });
      const [paid, gone, pending] = await Promise.all(
        ['paid', 'gone', 'pending'].map((user) => buy(a, sale.id, user, user === 'pending' ? 1 : 2)),
      );
      for (const one of [paid, gone])
        expect((await pay(b, one!.body.orderId, undefined, 1_000)).body.status).toBe('paid');
      // A refund that waited too long for the order changed nothing, and is asked for again.
      const ask = (url: string) =>
        eventually(
          () => refund(url, paid!.body.orderId),
          ({ problem }) => problem !== 'busy',
        );
      const answers = await Promise.all(Array.from({ length: 20 }, (_, i) => ask(i % 2 ? a : b)));
      expect(answers.filter(({ body }) => body.status === 'refund-due')).toHaveLength(1);
      expect(answers.filter(({ problem }) => problem === 'invalid-transition')).toHaveLength(19);
      expect(await refund(b, gone!.body.orderId, false)).toMatchObject({ body: { status: 'refund-due' } });
      expect(await refund(a, pending!.body.orderId)).toMatchObject({ body: { status: 'cancelled' } });
      for (const { body } of [paid!, gone!, pending!]) expect(await balance(body.orderId)).toBe(0);
      const { rows } = await bench.stores.sql.query(
        `SELECT payload->>'userId' AS user, (payload->>'amountCents')::int AS cents FROM tasks
         WHERE kind = 'refund' AND payload->>'orderId' = ANY($1) ORDER BY 1`,
        [[paid, gone, pending].map((one) => one!.body.orderId)],
      );
      expect(rows).toEqual([
        { user: 'gone', cents: 1_000 },
        { user: 'paid', cents: 1_000 },
      ]);
      await bench.expectSold(sale.id, 0);
      const again = await Promise.all(
        ['paid', 'gone', 'pending', 'new'].map((user) => buy(b, sale.id, user)),
      );
      for (const { status } of again) expect(status).toBeLessThan(300);
      expect((await buy(a, sale.id, 'none')).problem).toBe('sold-out'); // four units are left of six
      await bench.expectSold(sale.id, 4);
    });
  }
}
