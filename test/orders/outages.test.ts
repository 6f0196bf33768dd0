/**
 * Outages in the middle of a sale, on real servers: Postgres killed and started again, the network to a store silent,
 * Redis unreachable, a service with a wrong clock. The servers are this file's own; each test has a
 * new database.
 */
import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { type Answer, attempt, buy, call, cancel, createSale, pay, users } from '../support/client.ts';
import { sellThrough } from '../support/failover.ts';
import { opened } from '../support/opened.ts';
import { openScene } from '../support/scene.ts';
import type { ServiceProcess } from '../support/service.ts';
import { openOwnStores } from '../support/stores.ts';
import { bySize } from '../support/tier.ts';
import { type TestSale, World } from '../support/world.ts';

const DAY_MS = 24 * 3600 * 1000;

const servers = opened(openOwnStores);

const scene = openScene(async () => {
  const stores = await openOwnStores(servers);
  await stores.redis.flushall(); // sale ids start again at 1
  return stores;
});
const { start, sold, ordersOf } = scene;

const expectSettled = (saleId: number, most = 0) =>
  expect
    .poll(() => scene.stores.redis.zcard(`stampede:{sale:${saleId}}:reservations`))
    .toBeLessThanOrEqual(most);

/** How Postgres is lost, and found again. */
const LOSSES = {
  'is killed': [() => scene.stores.postgresServer.kill(), () => scene.stores.postgresServer.start()],
  'goes silent': [
    (world: World) => world.services[0]!.links.postgres.set('black-hole'),
    (world: World) => world.services[0]!.links.postgres.set('pass'),
  ],
} as const;
const inEachWay = (strategies: readonly string[]) =>
  strategies.flatMap((strategy) =>
    Object.keys(LOSSES).map((how) => [strategy, how as keyof typeof LOSSES] as const),
  );

it.each(
  bySize({
    core: [['lua', 'is killed']] as const,
    full: [...inEachWay(['lua']), ['group-commit', 'is killed'], ['for-update', 'goes silent']] as const,
    nightly: inEachWay(['lua', 'for-update', 'group-commit']),
  }),
)(
  '%s keeps every promise when Postgres %s in a rush, and sells on when it is back',
  { timeout: 300_000 },
  async (strategy, how) => {
    await using world = await World.open({ strategy, stores: await openOwnStores(servers) });
    const refused = (sale: TestSale) => sale.ledger.history.filter(({ status }) => status === 503).length;
    await sellThrough(world, how, 1, async (sale) => {
      const [lose, find] = LOSSES[how];
      await lose(world);
      await expect.poll(() => refused(sale)).toBeGreaterThan(5);
      await find(world);
    });
  },
);

it.each(['lua', 'for-update'])(
  '%s answers 503 while Postgres is down, and repeats take effect once',
  { timeout: 300_000 },
  async (STRATEGY) => {
    const { url } = await start({ STRATEGY });
    const sale = await createSale(url, 5);
    const [payer, leaver] = await Promise.all(['payer', 'leaver'].map((user) => buy(url, sale.id, user)));
    await scene.stores.postgresServer.kill();
    const notify = () => pay(url, payer!.body.orderId);
    const leave = () => cancel(url, leaver!.body.orderId);
    const asked = [attempt(url, sale.id, 'new'), attempt(url, sale.id, 'payer'), notify(), leave()];
    const problems = (await Promise.all(asked)).map(({ problem }) => problem);
    for (const problem of problems) expect(['busy', 'unknown-outcome']).toContain(problem);
    await expectSettled(sale.id, problems[0] === 'busy' ? 0 : 1); // busy: nothing has happened
    expect((await call(`${url}/healthz`)).status).toBe(200);
    expect(await call(`${url}/readyz`)).toMatchObject({ status: 503, body: { stores: { redis: 'ok' } } });
    await scene.stores.postgresServer.start();
    for (const { body } of [payer!, leaver!])
      expect((await call(`${url}/orders/${body.orderId}`)).body.status).toBe('pending');
    expect((await notify()).body.status).toBe('paid');
    expect((await leave()).body.status).toBe('cancelled');
    expect((await buy(url, sale.id, 'payer')).body).toMatchObject({ orderId: payer!.body.orderId });
    expect((await buy(url, sale.id, 'new')).status).toBeLessThan(300);
    expect(await ordersOf(sale.id, 'new')).toHaveLength(1);
    expect(await sold(sale.id)).toBe(2);
    expect((await call(`${url}/readyz`)).status).toBe(200);
  },
);

describe('CONFIRM=accepted', { timeout: 300_000 }, () => {
  async function acknowledgedWhilePostgresIsAway(): Promise<{ url: string; saleId: number; ids: unknown[] }> {
    const service = await start({ STRATEGY: 'lua', CONFIRM: 'accepted' });
    const sale = await createSale(service.url, 11);
    expect((await buy(service.url, sale.id, 'first')).status).toBe(202); // the copy in Redis is confirmed
    await expect.poll(() => sold(sale.id)).toBe(1);
    await scene.stores.postgresServer.kill();
    const answers = await Promise.all(users(10).map((user) => attempt(service.url, sale.id, user)));
    expect(answers.map(({ status }) => status)).toEqual(Array(10).fill(202));
    const metrics = async () => (await call(`${service.url}/metrics`)).body.text;
    await expect.poll(metrics).toMatch(/operation="commit-accepted-order"\} 10\n/);
    return { url: service.url, saleId: sale.id, ids: answers.map(({ body }) => body.orderId) };
  }
  const committed = async (ids: readonly unknown[]) =>
    (await scene.stores.sql.query('SELECT FROM orders WHERE id = ANY($1)', [ids])).rowCount;

  it('commits acknowledged orders when Postgres is back', async () => {
    const { saleId, ids } = await acknowledgedWhilePostgresIsAway();
    await scene.stores.postgresServer.start();
    await expect.poll(() => committed(ids)).toBe(10);
    expect(await sold(saleId)).toBe(11);
    await expectSettled(saleId);
  });

  it('loses accepted orders when Redis loses its data before the commit', async () => {
    const { url, saleId, ids } = await acknowledgedWhilePostgresIsAway();
    await scene.stores.redis.flushall();
    await scene.stores.postgresServer.start();
    const answers = await Promise.all(users(10).map((user) => buy(url, saleId, user)));
    expect(answers.map(({ status }) => status)).toEqual(Array(10).fill(202));
    await expect.poll(() => sold(saleId)).toBe(11);
    expect(await committed(ids)).toBe(0);
  });
});

it('for-update keeps selling while Redis is down', async () => {
  const { url } = await start({ STRATEGY: 'for-update' });
  const sale = await createSale(url, 3);
  await scene.stores.redisServer.kill();
  expect((await buy(url, sale.id, 'one')).status).toBeLessThan(300);
  const { body } = await buy(url, sale.id, 'two');
  expect((await cancel(url, body.orderId)).status).toBe(200);
  expect(await call(`${url}/readyz`)).toMatchObject({ status: 503, body: { stores: { postgres: 'ok' } } });
  await scene.stores.redisServer.start();
  await Promise.all(users(5).map((user) => buy(url, sale.id, user)));
  expect(await sold(sale.id)).toBe(3);
});

const CLOCKED = ['lua', 'for-update', 'for-update-prisma'];

describe.each([
  ['ahead', 2 * DAY_MS, bySize({ core: ['lua'], full: ['lua', 'for-update'], nightly: CLOCKED })],
  ['behind', -2 * DAY_MS, bySize({ core: [], full: ['lua', 'for-update-prisma'], nightly: CLOCKED })],
])('a service whose clock is two days %s', { timeout: 300_000 }, (_where, byMs, strategies) => {
  const wrong = `const Real = Date; globalThis.Date = class extends Real {
    constructor(...given) { super(...(given.length === 0 ? [Real.now() + ${byMs}] : given)); }
    static now() { return Real.now() + ${byMs}; }
  };`;
  const NODE_OPTIONS = `--import=data:text/javascript,${encodeURIComponent(wrong)}`;
  const at = (ms: number) => new Date(Date.now() + ms).toISOString();

  async function startWrong(STRATEGY: string): Promise<ServiceProcess> {
    const service = await scene.spawn({ STRATEGY, NODE_OPTIONS });
    const line = service.log.find((text) => text.includes('"msg":"listening"'))!;
    const { time } = JSON.parse(line) as { time: string };
    expect(Math.abs(Date.parse(time) - Date.now() - byMs)).toBeLessThan(DAY_MS);
    return service;
  }

  it.each(strategies)('%s opens, closes and expires by the clocks of the stores', async (STRATEGY) => {
    const { url } = await startWrong(STRATEGY);
    const early = await createSale(url, 5, { startsAt: at(3_600_000) });
    const late = await createSale(url, 5, { startsAt: at(-7_200_000), endsAt: at(-3_600_000) });
    const now = await createSale(url, 5, { startsAt: at(-3_600_000), endsAt: at(3_600_000) });
    expect((await attempt(url, early.id, 'u')).body.reason).toBe('not-started');
    expect((await attempt(url, late.id, 'u')).body.reason).toBe('ended');
    const [due, fresh] = await Promise.all(['due', 'fresh'].map((user) => buy(url, now.id, user)));
    expect([due!.status, fresh!.status]).toEqual([201, 201]);
    const { rowCount } = await scene.stores.sql.query(
      `SELECT FROM orders WHERE sale_id = $1 AND created_at BETWEEN clock_timestamp() - interval '1 h' AND clock_timestamp()`,
      [now.id],
    );
    expect(rowCount).toBe(2); // which a refund of the sale covers
    const past = `UPDATE orders SET expires_at = clock_timestamp() - interval '1 s' WHERE id = $1`;
    await scene.stores.sql.query(past, [due!.body.orderId]);
    const status = async (answer: Answer) => (await call(`${url}/orders/${answer.body.orderId}`)).body.status;
    await expect.poll(() => status(due!)).toBe('expired');
    expect(await status(fresh!)).toBe('pending');
    if (STRATEGY !== 'lua') return;
    const prefix = `stampede:{sale:${now.id}}`; // a process that died an hour ago has left a reservation
    const orderId = randomUUID();
    const reservedAt = Date.now() - 3_600_000;
    await scene.stores.redis.zadd(`${prefix}:reservations`, reservedAt, `left ${orderId} ${reservedAt}`);
    await scene.stores.redis.hset(`${prefix}:buyers`, 'left', `${orderId} ${reservedAt}`);
    await scene.stores.redis.hincrby(`${prefix}:state`, 'remaining', -1);
    await expect.poll(() => ordersOf(now.id, 'left')).toEqual([orderId]);
    await expectSettled(now.id);
  });
});
