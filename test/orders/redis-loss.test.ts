/**
 * Redis loses its data, wholly or back to an older snapshot, is unreachable, or is replaced by a replica that missed the last
 * writes, while two processes sell. All invariants hold, and every unit is sold in the end. The quick tier has one of these.
 */
import { Redis } from 'ioredis';
import { afterEach, describe, expect, it } from 'vitest';
import { redisNow, unpublishedOf } from '../../lab/audit/reader.ts';
import { TcpProxy } from '../../lab/proxy.ts';
import { scriptText } from '../../src/locks/adapters/scripts.ts';
import { eventually, users } from '../support/client.ts';
import { whileCommitsWait } from '../support/nemesis.ts';
import { OwnRedis } from '../support/servers.ts';
import { openStoresWithRedis, openTestStores } from '../support/stores.ts';
import { describeInFull, tier } from '../support/tier.ts';
import { assertInvariants, type TestSale, World } from '../support/world.ts';

/** The first line of apply-change.lua: a script's first call on a connection sends its text. */
const APPLY_CHANGE = scriptText('sale/apply-change').split('\n')[0]!;
const TIMEOUT_MS = 180_000;

let redis: OwnRedis;
/** Each ends a part that was started; they are called in reverse. */
const endings: (() => unknown)[] = [];

function kept<T extends AsyncDisposable>(part: T): T {
  endings.push(() => part[Symbol.asyncDispose]());
  return part;
}

afterEach(async () => {
  for (const end of endings.splice(0).reverse()) await end();
});

async function open(strategy: string, stock: number, env: Record<string, string> = {}): Promise<TestSale> {
  const stores = await openStoresWithRedis();
  redis = stores.redisServer;
  return kept(await World.open({ strategy, stores, services: 2, env })).openSale(stock);
}

/** Disturbs Redis when some customers of a rush have bought. */
async function inTheMiddle(sale: TestSale, disturb: () => Promise<void>): Promise<void> {
  const sold = async () => (await sale.units()).sold;
  const before = await sold();
  await expect.poll(sold).toBeGreaterThan(before + 2);
  await disturb();
}

/** The answers of a rush: 201 or, where the answer to an earlier request was lost or unknown, 200. */
const placed = ({ 200: again = 0, 201: first = 0, ...others }: Record<string, number>) => ({
  placed: again + first,
  ...others,
});

/** 409: the answer to an earlier request was unknown. */
const cancelAll = async (sale: TestSale, customers: readonly string[]) => {
  for (const user of customers) {
    const { body } = await sale.cancel(user);
    expect([body.status, body.orderStatus]).toContain('cancelled');
  }
};

async function expectLeft(sale: TestSale, units: number, store?: Redis): Promise<void> {
  const { stock, sold } = await sale.units();
  expect(stock - sold).toBe(units);
  await assertInvariants(sale, store);
}

function restartsEmpty(strategy: string): void {
  it('Redis is empty after a restart in the middle of a rush', { timeout: TIMEOUT_MS }, async () => {
    const sale = await open(strategy, 40);
    const early = users(10, 'early');
    await sale.rush(early);
    await cancelAll(sale, early.slice(0, 3));
    const [bought, repeated] = await Promise.all([
      sale.rush([...users(20, 'late'), ...early.slice(0, 3)], 1_500),
      sale.rush(early.slice(3), 1_500),
      inTheMiddle(sale, async () => {
        await redis.kill();
        await redis.start('empty');
      }),
    ]);
    expect(placed(bought)).toEqual({ placed: 23 });
    expect(repeated).toEqual({ '200': 7 });
    await expectLeft(sale, 10);
  });
}

if (tier === 'quick') describe('lua, with two processes', () => restartsEmpty('lua'));

describeInFull('segmented-lock, with two processes', () => restartsEmpty('segmented-lock'));

describeInFull('snapshots', () => {
  it.each(['lua', 'segmented-lock'])(
    '%s: Redis goes back to a snapshot from before 15 sales and 3 cancels',
    { timeout: TIMEOUT_MS },
    async (strategy) => {
      const sale = await open(strategy, 50);
      const [early, middle, late] = [users(10, 'early'), users(15, 'middle'), users(20, 'late')];
      expect(placed(await sale.rush(early))).toEqual({ placed: 10 });
      await sale.untilIdle();
      await redis.snapshot();
      expect(placed(await sale.rush(middle))).toEqual({ placed: 15 });
      const returning = early.slice(0, 3);
      await cancelAll(sale, returning);
      await sale.untilIdle();
      // 28 units are free. The snapshot has 40, and the three cancelled orders.
      const [bought, repeated] = await Promise.all([
        sale.rush([...late, ...returning], 1_500),
        sale.rush([...middle, ...early.slice(3)], 1_500),
        inTheMiddle(sale, async () => {
          await redis.kill();
          await redis.start('snapshot');
        }),
      ]);
      expect(placed(bought)).toEqual({ placed: 23 });
      expect(repeated).toEqual({ '200': 22 });
      await expectLeft(sale, 5);
    },
  );

  it.each(['lua', 'segmented-lock'])(
    '%s: Redis goes back to a snapshot from when all was sold',
    { timeout: TIMEOUT_MS },
    async (strategy) => {
      const sale = await open(strategy, 30);
      const early = users(30, 'early');
      expect(placed(await sale.rush(early))).toEqual({ placed: 30 });
      await sale.untilIdle();
      await redis.snapshot();
      await cancelAll(sale, early.slice(0, 20));
      await sale.untilIdle();
      const [bought] = await Promise.all([
        sale.rush(users(18, 'late'), 1_500),
        inTheMiddle(sale, async () => {
          await redis.kill();
          await redis.start('snapshot');
        }),
      ]);
      expect(placed(bought)).toEqual({ placed: 18 });
      await expectLeft(sale, 2);
    },
  );

  it.each(['lua', 'segmented-lock'])(
    '%s: Redis goes back to a snapshot from before a reservation was released',
    { timeout: TIMEOUT_MS },
    async (strategy) => {
      const sale = await open(strategy, 10);
      const { sql, redis: client } = sale.world.stores;
      await sale.buy('first');
      const answer = await whileCommitsWait(sql, sale.id, async () => {
        const denied = sale.request('purchase', 'denied');
        await expect.poll(() => redisNow(client, sale.id)).toMatchObject({ unsettled: 1 });
        await redis.snapshot();
        return denied;
      });
      expect(answer).toMatchObject({ status: 503, problem: 'busy' });
      await redis.kill();
      await redis.start('snapshot');
      await sale.buy('next');
      await expectLeft(sale, 8); // the order that was answered "busy" is not placed
    },
  );
});

describeInFull('another database', () => {
  it.each([
    ['lua', 'redis'],
    ['global-lock', 'postgres-row'],
  ])(
    '%s with LOCK=%s: what a sale of another database left in Redis is not taken for the sale with the same id',
    { timeout: TIMEOUT_MS },
    async (strategy, LOCK) => {
      const old = await open(strategy, 10, { LOCK });
      const { services, stores } = old.world;
      await old.buy('user-0');
      await stores.sql.query('UPDATE lock_rows SET fence = fence + 1000000');
      expect(placed(await old.rush(users(5)))).toEqual({ placed: 5 });
      await whileCommitsWait(stores.sql, old.id, async () => {
        void old.request('purchase', 'reserved');
        await expect.poll(() => redisNow(stores.redis, old.id)).toMatchObject({ unsettled: 1 });
        await Promise.all(services.map((service) => service.kill()));
      });
      const { redisUrl, redis: client } = stores;
      const another = { ...(await openTestStores()), redisUrl, redis: client };
      const sale = await kept(await World.open({ strategy, stores: another, env: { LOCK } })).openSale(10);
      expect(sale.id).toBe(old.id);
      expect(placed(await sale.rush(users(5)))).toEqual({ placed: 5 });
      await expectLeft(sale, 5);
    },
  );
});

describeInFull('a unit on its way back', () => {
  it.each([
    ['lua', 'before'],
    ['lua', 'after'],
    ['segmented-lock', 'before'],
    ['segmented-lock', 'after'],
  ])(
    '%s: FLUSHALL before Redis applies a cancel, which comes %s the sale is loaded again',
    { timeout: TIMEOUT_MS },
    async (strategy, when) => {
      const sale = await open(strategy, 10);
      const { world } = sale;
      expect(placed(await sale.rush(users(10)))).toEqual({ placed: 10 });
      await sale.untilIdle();
      const urls = await Promise.all(world.services.map(({ url }) => url));
      const links = world.services.map(({ links: { redis: link } }) => link);
      // The cancelling process publishes the change, unless the other one's relay finds it first.
      const held = links.map((link, i) => link.holdRequest(APPLY_CHANGE).then(() => i));
      const cancelled = sale.request('cancel', 'user-0', { url: urls[0]! });
      const publisher = await Promise.race(held);
      const [link, otherLink] = publisher === 0 ? links : [...links].reverse();
      await otherLink!.release();
      await world.stores.redis.flushall();
      const next = async () =>
        expect((await sale.retry('purchase', 'next', { url: urls[1 - publisher]! })).status).toBeLessThan(
          300,
        );
      if (when === 'after') await next();
      void link!.release();
      expect((await cancelled)?.status).toBe(200);
      if (when === 'before') await next();
      await expect.poll(() => unpublishedOf(world.stores.sql, sale.id)).toBe(0);
      expect((await redisNow(world.stores.redis, sale.id)).remaining).toBe(0);
      await expectLeft(sale, 0);
      expect(world.logged('repaired drift in Redis')).toEqual([]);
    },
  );
});

describeInFull('no Redis', () => {
  it.each([
    ['lua', 'cut off'],
    ['lua', 'dead'],
    ['segmented-lock', 'cut off'],
    ['segmented-lock', 'dead'],
  ])('%s: Redis is %s: orders go on in Postgres', { timeout: TIMEOUT_MS }, async (strategy, how) => {
    const sale = await open(strategy, 20);
    const { services, stores } = sale.world;
    expect(placed(await sale.rush(users(15)))).toEqual({ placed: 15 });
    await sale.untilIdle();
    if (how === 'dead') await redis.kill();
    for (const { links } of services) links.redis.set('refuse');
    for (const service of services) {
      const url = await service.url;
      // Until the service sees that the connection is gone, the outcome of what it sent is unknown.
      const ask = () => sale.request('purchase', 'refused', { url });
      const answer = await eventually(ask, (one) => one?.problem !== 'unknown-outcome');
      expect(answer).toMatchObject({ status: 503, problem: 'busy' });
      expect(answer?.headers.get('retry-after')).toBe('1');
    }
    await cancelAll(sale, ['user-0', 'user-1', 'user-2']);
    await Promise.all(['user-3', 'user-4', 'user-5', 'user-6'].map((user) => sale.expire(user)));
    const paid = async (user: string) => (await sale.pay(user)).body.status;
    expect(await paid('user-3')).toBe('paid');
    expect(await paid('user-7')).toBe('paid');
    expect(await paid('user-0')).toBe('refund-due');
    // The revival of user-3's order has replaced its release.
    expect([(await sale.units()).sold, await unpublishedOf(stores.sql, sale.id)]).toEqual([9, 7]);
    expect(await sale.violations()).toEqual([]);

    if (how === 'dead') await redis.start('empty');
    for (const { links } of services) links.redis.set('pass');
    // Changes are published to a Redis that was cut off; an empty one is loaded from Postgres at the next attempt.
    if (how === 'cut off') await sale.untilIdle();
    expect(placed(await sale.rush(['user-0', 'user-1', 'user-3', 'user-4']))).toEqual({ placed: 4 });
    await expectLeft(sale, 8);
    expect(await unpublishedOf(stores.sql, sale.id)).toBe(0);
    expect(sale.world.logged('repaired drift in Redis')).toEqual([]);
  });
});

/** A replica of the test's Redis, and the link between the two. */
interface Replica {
  readonly server: OwnRedis;
  readonly client: Redis;
  readonly replication: TcpProxy;
}

async function attachReplica(): Promise<Replica> {
  const replication = kept(await TcpProxy.to(redis.url));
  const from = ['--replicaof', '127.0.0.1', String(replication.port)];
  const server = kept(await OwnRedis.open(['--repl-ping-replica-period', '1', ...from]));
  const client = new Redis(server.url);
  endings.push(() => client.disconnect());
  await inStep();
  return { server, client, replication };
}

/** Waits until the replica has all that was written. */
async function inStep(): Promise<void> {
  const primary = new Redis(redis.url);
  await primary.config('SET', 'repl-diskless-sync-delay', '0');
  await eventually(
    async () => {
      await primary.set('in-step', 1);
      return primary.wait(1, 500);
    },
    (replicas) => replicas === 1,
  ).finally(() => primary.disconnect());
}

const leadTo = (world: World, { server }: Replica) => {
  for (const { links } of world.services) links.redis.lead(server.port);
};
const promote = ({ client }: Replica) => client.call('REPLICAOF', 'NO', 'ONE');

/** Buys at the processes in turn. @returns how often the sale was loaded again from Postgres meanwhile */
async function reloads(sale: TestSale, store: Redis): Promise<number> {
  const loaded = new Set<string | null>();
  for (const user of users(12, 'turn')) {
    loaded.add(await store.hget(`stampede:{sale:${sale.id}}:state`, 'loadedMs'));
    await sale.buy(user);
  }
  return loaded.size - 1;
}

describeInFull('failover', () => {
  it.each(['lua', 'segmented-lock'])(
    '%s: a replica takes over that missed the last sales and cancels',
    { timeout: TIMEOUT_MS },
    async (strategy) => {
      const sale = await open(strategy, 50);
      const replica = await attachReplica();
      const [early, middle] = [users(10, 'early'), users(15, 'middle')];
      await sale.rush(early);
      await inStep();
      replica.replication.set('lose-replies');
      expect(placed(await sale.rush(middle))).toEqual({ placed: 15 });
      await cancelAll(sale, early.slice(0, 3));
      const [bought, repeated] = await Promise.all([
        sale.rush([...users(20, 'late'), ...early.slice(0, 3)], 1_500),
        sale.rush([...middle, ...early.slice(3)], 1_500),
        inTheMiddle(sale, async () => {
          await redis.kill();
          await promote(replica);
          leadTo(sale.world, replica);
        }),
      ]);
      expect(placed(bought)).toEqual({ placed: 23 });
      expect(repeated).toEqual({ '200': 22 });
      await expectLeft(sale, 5, replica.client);
    },
  );

  it('processes started before and after a promotion agree', { timeout: TIMEOUT_MS }, async () => {
    const sale = await open('lua', 50);
    const { world } = sale;
    const replica = await attachReplica();
    await sale.rush(users(10));
    await inStep();
    await redis.kill();
    leadTo(world, replica);
    // It is still a replica: nothing can be sold.
    const ask = () => sale.request('purchase', 'refused');
    const refused = await eventually(ask, (one) => one?.body.reason === 'redis-readonly');
    expect(refused?.problem).toBe('busy');
    await promote(replica);
    const late = await world.add();
    leadTo(world, replica);
    await late.start();
    await sale.rush(users(3, 'first'));
    expect(await reloads(sale, replica.client)).toBeLessThanOrEqual(1);
    await expectLeft(sale, 25, replica.client);
  });

  it('processes started before and after the first replica agree', { timeout: TIMEOUT_MS }, async () => {
    const sale = await open('lua', 50);
    await sale.rush(users(10));
    await attachReplica();
    await sale.world.start();
    expect(await reloads(sale, sale.world.stores.redis)).toBeLessThanOrEqual(1);
    await expectLeft(sale, 28);
  });
});
