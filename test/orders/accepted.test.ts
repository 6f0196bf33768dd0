/** CONFIRM=accepted: an order that was answered with 202 and is not committed yet. */
import { expect, it } from 'vitest';
import { type Answer, buy, call, cancel, createSale, eventually, patch, pay } from '../support/client.ts';
import { whileCommitsWait, whileLocked } from '../support/nemesis.ts';
import { openScene } from '../support/scene.ts';

const scene = openScene();
const { start, proxyTo, ordersOf, untilReserved } = scene;

it('an order that is committed between two reads is found', async () => {
  const env = { STRATEGY: 'lua', CONFIRM: 'accepted' };
  const [postgres, toRedis] = [await proxyTo(scene.stores.databaseUrl), await proxyTo(scene.stores.redisUrl)];
  const through = {
    DATABASE_URL: postgres.through(scene.stores.databaseUrl),
    REDIS_URL: toRedis.through(scene.stores.redisUrl),
  };
  const [one, two] = [await start(env), await start({ ...env, ...through })];
  const { id } = await createSale(one.url, 9);
  await buy(one.url, id, 'warm-up');

  /** Asks the second process, and holds its first read until the order is committed. */
  async function around(user: string, read: Promise<string>, ask: (orderId: unknown) => Promise<Answer>) {
    const asked = await whileCommitsWait(scene.stores.sql, id, async () => {
      const { status, body } = await buy(one.url, id, user);
      expect(status).toBeLessThan(300);
      const answer = ask(body.orderId);
      await read;
      return { answer };
    });
    await expect.poll(() => ordersOf(id, user)).toHaveLength(1);
    await untilReserved(id, 0);
    await postgres.release();
    await toRedis.release();
    return asked.answer;
  }

  const cancelled = await around('ann', postgres.holdRequest('FROM orders WHERE id = $1'), (orderId) =>
    cancel(two.url, orderId),
  );
  // 503: the read was held for longer than the process waits.
  if (cancelled.status !== 503)
    expect(cancelled).toMatchObject({ status: 200, body: { status: 'cancelled' } });
  const read = await around('ben', toRedis.holdRequest('\r\n$3\r\nben\r\n'), () =>
    call(`${two.url}/sales/${id}/orders?userId=ben`),
  );
  if (read.status !== 503)
    expect(read).toMatchObject({ status: 200, body: { userId: 'ben', status: 'pending' } });
});

it('an order that was answered with 202 is never unknown', async () => {
  const env = { STRATEGY: 'lua', CONFIRM: 'accepted' };
  const [one, two] = [await start(env), await start(env)];
  const { id } = await createSale(one.url, 2);
  expect((await buy(two.url, id, 'warm-up')).status).toBeLessThan(300);
  const orderId = await whileCommitsWait(scene.stores.sql, id, async () => {
    const { status, body } = await buy(one.url, id, 'ann');
    expect(status).toBeLessThan(300);
    for (const { url } of [one, two]) {
      const early = [
        () => cancel(url, body.orderId),
        () => pay(url, body.orderId),
        () => call(`${url}/orders/${body.orderId}`),
        () => call(`${url}/sales/${id}/orders?userId=ann`),
      ];
      for (const ask of early) {
        const answer = await eventually(ask, ({ problem }) => problem !== 'unknown-outcome');
        expect(answer).toMatchObject({ status: 503, problem: 'busy' });
        expect(answer.headers.get('retry-after')).toBe('1');
      }
    }
    return body.orderId;
  });
  const notify = () => pay(two.url, orderId);
  const paid = await eventually(notify, ({ status }) => status !== 503);
  expect(paid).toMatchObject({ status: 200, body: { status: 'paid' } });
  expect((await cancel(one.url, '01939b2e-7f7c-7000-8000-000000000001')).status).toBe(404);
});

it.each(['lua', 'segmented-lock'])(
  '%s: an order that was answered with 202 keeps the price and the time to pay of that moment',
  async (STRATEGY) => {
    const service = await start({ STRATEGY, CONFIRM: 'accepted' });
    const terms = { priceCents: 100, paymentWindowS: 60, maxPerOrder: 5 };
    const sale = await createSale(service.url, 10, terms);
    const commitsOf = async (saleId: number, userId: string, changes: object) => {
      const { orderId } = await whileLocked(
        scene.stores.sql,
        'LOCK TABLE orders IN SHARE MODE',
        [],
        async () => {
          const { status, body } = await buy(service.url, saleId, userId, 2);
          expect(status).toBe(202);
          expect((await patch(`${service.url}/sales/${saleId}`, changes)).status).toBe(200);
          return body;
        },
      );
      const read = () => call(`${service.url}/orders/${orderId}`);
      await expect.poll(read, { timeout: 30_000 }).toMatchObject({ status: 200 });
      const { body } = await read();
      const windowMs = Date.parse(String(body.expiresAt)) - Date.parse(String(body.createdAt));
      return { orderId, priceCents: body.priceCents, windowS: windowMs / 1_000 };
    };
    const ann = await commitsOf(sale.id, 'ann', { priceCents: 500, paymentWindowS: null });
    expect(ann).toMatchObject({ priceCents: 100, windowS: 60 });
    const paid = { status: 200, body: { status: 'paid', priceCents: 100, amountCents: 200 } };
    expect(await pay(service.url, ann.orderId, 'p-1', 200)).toMatchObject(paid);
    const bob = await commitsOf(sale.id, 'bob', { priceCents: 0, paymentWindowS: 60 });
    expect(bob).toMatchObject({ priceCents: 500, windowS: 900 });
  },
);
