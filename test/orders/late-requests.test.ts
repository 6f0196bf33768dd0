/**
 * Requests that reach a store long after their client has given up. An answer given meanwhile stays true: no order appears
 * after a 409 or a `busy`.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
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
} from '../support/client.ts';
import { whileCommitsWait, whileLocked } from '../support/nemesis.ts';
import { openScene } from '../support/scene.ts';
import { openOwnStores } from '../support/stores.ts';

const scene = openScene();
const { start, proxyTo, ordersOf, untilReserved } = scene;

const untilCancelled = (url: string, orderId: unknown) =>
  eventually(
    () => cancel(url, orderId),
    ({ body }) => body.status === 'cancelled' || body.orderStatus === 'cancelled',
  );

describe.each([
  ['conditional-update', 'sell-if-free'],
  ['group-commit', 'place-batch'],
  ['skip-locked', 'take-unit'],
  ['optimistic', 'sell-if-unchanged'],
  ['for-update', 'COMMIT'],
  ['unique-key', 'COMMIT'],
])('%s', (STRATEGY, marker) => {
  it('a 409 stays true when a delayed statement of the attempt arrives', async () => {
    const proxy = await proxyTo(scene.stores.databaseUrl);
    const delayed = await start({ STRATEGY, DATABASE_URL: proxy.through(scene.stores.databaseUrl) });
    const direct = await start({ STRATEGY });
    const { id } = await createSale(direct.url, 2);
    expect((await buy(delayed.url, id, 'warm-up')).status).toBeLessThan(300); // the statement is prepared
    const held = proxy.holdRequest(marker);
    const asked = attempt(delayed.url, id, 'ann');
    await held;
    const bought = buy(direct.url, id, 'ben'); // waits where the delayed transaction holds the row
    const answer = await asked;
    const ben = await bought;
    if (ben.status < 300) await untilCancelled(direct.url, ben.body.orderId);
    await proxy.release();
    const orders = await ordersOf(id, 'ann');
    if (answer.status === 201 || answer.problem === 'unknown-outcome') {
      for (const order of orders) expect(order).toBe(answer.body.orderId);
    } else {
      expect(['sold-out', 'busy']).toContain(answer.problem);
      expect(orders).toEqual([]);
    }
    // A repeat gets a final answer.
    const again = await buy(delayed.url, id, 'ann');
    expect([200, 201]).toContain(again.status);
    expect(await ordersOf(id, 'ann')).toEqual([again.body.orderId]);
  });
});

describe.each(['lua', 'global-lock', 'segmented-lock'])('%s', (STRATEGY) => {
  it('a 409 stays true when a delayed command of the attempt arrives', async () => {
    const proxy = await proxyTo(scene.stores.redisUrl);
    const delayed = await start({ STRATEGY, SEGMENTS: '2', REDIS_URL: proxy.through(scene.stores.redisUrl) });
    const direct = await start({ STRATEGY, SEGMENTS: '2' });
    const { id } = await createSale(direct.url, 2);
    expect((await buy(delayed.url, id, 'warm-up')).status).toBeLessThan(300);
    // Only the script that takes a unit names a customer and an order.
    const held = proxy.holdRequest(STRATEGY === 'lua' ? '\r\n$3\r\nann\r\n' : '\r\n$3\r\nann\r\n$36\r\n');
    const asked = attempt(delayed.url, id, 'ann');
    await held;
    const ben = await buy(direct.url, id, 'ben');
    expect(ben.status).toBeLessThan(300);
    proxy.cutClients();
    const answer = await asked;
    await untilCancelled(direct.url, ben.body.orderId);
    await proxy.release();
    // The reaper commits an abandoned reservation.
    await untilReserved(id, 0);
    const orders = await ordersOf(id, 'ann');
    if (answer.problem === 'sold-out' || answer.problem === 'busy') expect(orders).toEqual([]);
    else expect(answer.problem).toBe('unknown-outcome');
  });

  it('busy stays true when the customer tries a second process meanwhile', async () => {
    const [one, two] = [await start({ STRATEGY }), await start({ STRATEGY })];
    const { id } = await createSale(one.url, 2);
    expect((await buy(two.url, id, 'warm-up')).status).toBeLessThan(300);
    const [answer, second] = await whileCommitsWait(scene.stores.sql, id, async () => {
      const first = attempt(one.url, id, 'ann');
      await untilReserved(id, 1);
      await sleep(1_000); // the second gives up later than the first
      const second = attempt(two.url, id, 'ann');
      return [await first, { answer: second }] as const;
    });
    const answers = [answer, await second.answer];
    const third = await attempt(one.url, id, 'ann');
    const [order] = await ordersOf(id, 'ann');
    expect(answers.map(({ status }) => status)).not.toContain(409);
    // Only an answer of 201 or an unknown outcome can have placed a replayed order.
    const isPlaced = answers.some(({ status, problem }) => status === 201 || problem === 'unknown-outcome');
    for (const { status, body } of [...answers, third])
      if (status < 300) expect(body.orderId).toBe(order);
      else expect(status).toBe(503);
    if (answers.some(({ status }) => status === 200)) expect(isPlaced).toBe(true);
    // Both stores agree, without the drift repair.
    await buy(one.url, id, 'ann');
    await untilReserved(id, 0);
    const log = [...one.log, ...two.log].filter((line) => line.includes('repaired drift in Redis'));
    expect(log).toEqual([]);
  });
});

describe('a Postgres whose commits wait for a standby', () => {
  const own = openScene(openOwnStores); // the setting is one of the whole server

  it('a repeat does not release what a commit in progress is about to place', async () => {
    const { sql } = own.stores;
    const service = await own.start({ STRATEGY: 'lua' });
    const { id } = await createSale(service.url, 100);
    expect((await buy(service.url, id, 'warm-up')).status).toBeLessThan(300);
    // As with a frozen synchronous standby: commits hang, and hold their locks.
    const standby = async (names: string) => {
      await sql.query(`ALTER SYSTEM SET synchronous_standby_names = '${names}'`);
      await sql.query('SELECT pg_reload_conf()');
    };
    const answers: Answer[] = [];
    let customers = 0;
    try {
      await standby('none');
      // Commits go on until Postgres has read the setting.
      const next = () => attempt(service.url, id, `ann-${++customers}`);
      answers.push(await eventually(next, ({ status }) => status !== 201));
      const untilMs = Date.now() + 8_000; // the claim ends meanwhile
      while (Date.now() < untilMs) answers.push(await attempt(service.url, id, `ann-${customers}`));
    } finally {
      await standby('');
    }
    for (const { problem } of answers) expect(problem).toBe('unknown-outcome');
    const last = await buy(service.url, id, `ann-${customers}`, 1, 30_000);
    expect(await own.ordersOf(id, `ann-${customers}`)).toEqual([last.body.orderId]);
    expect(service.log.filter((line) => line.includes('repaired drift in Redis'))).toEqual([]);
  });
});

describe('CONFIRM=accepted', () => {
  it('an order that is committed between two reads is found', async () => {
    const env = { STRATEGY: 'lua', CONFIRM: 'accepted' };
    const [postgres, toRedis] = [
      await proxyTo(scene.stores.databaseUrl),
      await proxyTo(scene.stores.redisUrl),
    ];
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

  it('a late payment takes no unit that is reserved for a 202 while Redis is unreachable', async () => {
    const env = { STRATEGY: 'lua', CONFIRM: 'accepted' };
    const toRedis = await proxyTo(scene.stores.redisUrl);
    const [one, two] = [
      await start(env),
      await start({ ...env, REDIS_URL: toRedis.through(scene.stores.redisUrl) }),
    ];
    const { id } = await createSale(one.url, 1);
    const late = await buy(one.url, id, 'late');
    await expect.poll(() => ordersOf(id, 'late')).toHaveLength(1);
    await scene.stores.sql.query(
      `UPDATE orders SET expires_at = now() - interval '1 second' WHERE sale_id = $1`,
      [id],
    );
    await expect.poll(() => scene.stores.redis.hget(`stampede:{sale:${id}}:state`, 'remaining')).toBe('1');
    const paying = await whileCommitsWait(scene.stores.sql, id, async () => {
      expect((await buy(one.url, id, 'carl')).status).toBeLessThan(300);
      toRedis.hold();
      return { answer: pay(two.url, late.body.orderId) };
    });
    expect(['busy', 'unknown-outcome']).toContain((await paying.answer).problem);
    await toRedis.release();
    await expect.poll(() => ordersOf(id, 'carl')).toHaveLength(1);
    const notify = () => pay(two.url, late.body.orderId);
    const paid = await eventually(notify, ({ status }) => status === 200);
    expect(paid.body.status).toBe('refund-due');
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

  it('does not answer with a closed order', async () => {
    const { sql } = scene.stores;
    const service = await start({ STRATEGY: 'lua', CONFIRM: 'accepted' });
    const { id } = await createSale(service.url, 10);
    const { orderId } = (await buy(service.url, id, 'ann')).body;
    const placed = () => sql.query('SELECT FROM orders WHERE id = $1', [orderId]);
    await expect.poll(placed).toMatchObject({ rowCount: 1 });
    expect((await buy(service.url, id, 'ann')).body).toMatchObject({ orderId, replayed: true });
    // The state until the change is published to Redis: the relay waits for a lock, which is granted with the commit.
    const closing = await sql.connect();
    await closing.query('BEGIN');
    await closing.query(
      `WITH closed AS (UPDATE orders SET status = 'expired', closed_at = now() WHERE id = $1 RETURNING id, sale_id, user_id),
       counted AS (UPDATE sales SET sold = sold - 1 FROM closed WHERE sales.id = sale_id)
     INSERT INTO mirror_outbox (sale_id, change, order_id, user_id) SELECT sale_id, 'release', id, user_id FROM closed`,
      [orderId],
    );
    const again = whileLocked(sql, 'LOCK TABLE mirror_outbox IN EXCLUSIVE MODE', [], () =>
      eventually(
        () => attempt(service.url, id, 'ann'),
        ({ status, body }) => status !== 503 || body.reason === 'order-just-closed',
      ),
    );
    const waiting = `SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND query LIKE 'LOCK TABLE%' AND wait_event_type = 'Lock'`;
    await expect.poll(() => sql.query(waiting)).toMatchObject({ rowCount: 1 });
    await closing.query('COMMIT');
    closing.release();
    expect(await again).toMatchObject({ status: 503, body: { reason: 'order-just-closed' } });
  });

  it.each(['lua', 'segmented-lock', 'global-lock'])(
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
});
