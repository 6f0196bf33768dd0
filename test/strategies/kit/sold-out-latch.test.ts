/**
 * What a process knows about a sold-out sale. Each test has its own two processes: a latch is forgotten 10 s after its
 * last use, so a count over the sales of several tests can fall at any moment.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { TcpProxy } from '../../../lab/proxy.ts';
import { limits } from '../../../src/config/limits.ts';
import { attempt, buy, call, cancel, createSale, eventually, users } from '../../support/client.ts';
import { openScene } from '../../support/scene.ts';
import { openStoresWithRedis } from '../../support/stores.ts';

const scene = openScene(openStoresWithRedis);
let a: string;
let b: string;

/** Whether the process answers for the test's one sale from memory. */
async function isLatched(url: string): Promise<boolean> {
  const { body } = await call(`${url}/metrics`);
  return /^stampede_sold_out_latches 1$/m.test(String(body.text));
}

/** Sells a sale out, and waits until both processes latch it. */
async function soldOut(stock: number): Promise<{ saleId: number; orders: Map<string, string> }> {
  const { id } = await createSale(a, stock);
  const buyers = users(stock, `owner-${id}`);
  const placed = await Promise.all(buyers.map((user, i) => buy(i % 2 ? a : b, id, user)));
  for (const { status } of placed) expect(status).toBeLessThan(300);
  for (const url of [a, b]) {
    await eventually(async () => {
      expect((await buy(url, id, `late-${Math.random()}`)).problem).toBe('sold-out');
      return isLatched(url);
    }, Boolean);
  }
  return { saleId: id, orders: new Map(buyers.map((user, i) => [user, String(placed[i]!.body.orderId)])) };
}

/** How many scripts Redis has run. */
async function scripts(): Promise<number> {
  const stats = await scene.stores.redis.info('commandstats');
  const calls = (name: string) => Number(new RegExp(`cmdstat_${name}:calls=(\\d+)`).exec(stats)?.[1] ?? 0);
  return calls('evalsha') + calls('eval');
}

describe.each(['lua', 'group-commit'])('a process with a sold-out latch of %s', (strategy) => {
  beforeEach(async () => {
    const services = await Promise.all([
      scene.start({ STRATEGY: strategy }),
      scene.start({ STRATEGY: strategy }),
    ]);
    [a, b] = services.map(({ url }) => url) as [string, string];
  });

  it('answers without a store, except for customers with an order', async () => {
    const { saleId, orders } = await soldOut(30);
    const before = await scripts();
    const startedMs = performance.now();
    // An attempt that reaches Postgres waits for this row, and is answered "busy".
    const holder = await scene.stores.sql.connect();
    await holder.query('BEGIN');
    await holder.query('SELECT FROM sales WHERE id = $1 FOR UPDATE', [saleId]);
    const answers = await Promise.all(users(2_000, 'stranger').map((user) => buy(a, saleId, user)));
    await holder.query('ROLLBACK');
    holder.release();
    const periods = (performance.now() - startedMs) / 40;
    // Two processes confirm their latch; the reaper scans each sale once a second; the filter mistakes a few customers for others.
    expect(await scripts()).toBeLessThan(before + 2 * periods + 300);
    expect(answers.filter(({ problem }) => problem === 'sold-out').length).toBeGreaterThan(1_950);
    for (const [user, orderId] of orders) {
      const again = await buy(a, saleId, user);
      expect(again).toMatchObject({ status: 200, body: { orderId, replayed: true } });
    }
  });

  // With lua another process may be publishing the unit to Redis when the cancellation is answered.
  it.runIf(strategy !== 'lua')('sells a unit again at once where it was returned', async () => {
    const { latchCheckMs, latchTtlMs } = limits;
    onTestFinished(() => void Object.assign(limits, { latchCheckMs, latchTtlMs }));
    Object.assign(limits, { latchCheckMs: 120_000, latchTtlMs: 120_000 }); // no confirmation helps
    const { saleId, orders } = await soldOut(1);
    await cancel(a, [...orders.values()][0]!);
    expect((await buy(a, saleId, 'here')).status).toBe(201);
  });

  it('sells a unit again soon after it was returned at another process', async () => {
    const { saleId, orders } = await soldOut(1);
    await cancel(a, [...orders.values()][0]!);
    await expect.poll(() => buy(b, saleId, 'elsewhere')).toMatchObject({ status: 201 });
  });

  it('refuses no customer once its store does not confirm that the sale is sold out', async () => {
    const name = strategy === 'lua' ? 'REDIS_URL' : 'DATABASE_URL';
    const url = strategy === 'lua' ? scene.stores.redisUrl : scene.stores.databaseUrl;
    await using link = await TcpProxy.to(url);
    a = (await scene.start({ STRATEGY: strategy, [name]: link.through(url) })).url;
    const { saleId } = await soldOut(1);
    link.set('refuse');
    await expect.poll(() => attempt(a, saleId, 'late')).toMatchObject({ status: 503 });
    link.set('pass'); // the service ends
  });

  it('does not delay the sale of a released unit, under full load', async () => {
    const { saleId, orders } = await soldOut(20);
    let going = true;
    const sold: string[] = [];
    const crowd = Array.from({ length: 32 }, async (_, i) => {
      for (let n = 0; going; n++) {
        const user = `crowd-${i}-${n}`;
        const { status, problem } = await buy(i % 2 ? a : b, saleId, user);
        if (status < 300) sold.push(user);
        else expect(problem).toBe('sold-out');
      }
    });
    for (const [i, orderId] of [...orders.values()].entries()) {
      await eventually(
        () => cancel(i % 2 ? a : b, orderId),
        ({ body }) => body.status === 'cancelled' || body.orderStatus === 'cancelled',
      );
      await expect.poll(() => sold.length).toBe(i + 1);
    }
    await sleep(300);
    going = false;
    await Promise.all(crowd);
    expect(sold).toHaveLength(20);
    const { rows } = await scene.stores.sql.query('SELECT sold, stock FROM sales WHERE id = $1', [saleId]);
    expect(rows).toEqual([{ sold: 20, stock: 20 }]);
    // Both processes have latched the sale again, with the later buyers in the filter.
    await expect.poll(() => buy(a, saleId, 'x')).toMatchObject({ problem: 'sold-out' });
    await sleep(500);
    for (const user of sold) {
      for (const url of [a, b]) expect((await buy(url, saleId, user)).status).toBe(200);
    }
  });
});
