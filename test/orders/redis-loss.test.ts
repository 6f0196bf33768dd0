/**
 * Redis loses its data, wholly or back to an older snapshot, or is unreachable, while two services sell. All invariants hold, and
 * every unit is sold in the end. The quick tier has one of these.
 */
import { Redis } from 'ioredis';
import { afterEach, expect, it, onTestFinished } from 'vitest';
import { redisNow, unpublishedOf } from '../../lab/audit/reader.ts';
import { TcpProxy } from '../../lab/proxy.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { openRedis } from '../../src/store/redis/connection.ts';
import { redisEpochs } from '../../src/store/redis/epochs.ts';
import { eventually, users } from '../support/client.ts';
import { whileCommitsWait } from '../support/nemesis.ts';
import { OwnRedis } from '../support/servers.ts';
import { openStoresWithRedis, openTestStores } from '../support/stores.ts';
import { bySize, describeInFull, tier } from '../support/tier.ts';
import { assertInvariants, type TestSale, World, type WorldOptions } from '../support/world.ts';

const TIMEOUT_MS = 180_000;
const BOTH = ['lua', 'segmented-lock'];

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

async function open(
  strategy: string,
  stock: number,
  more: Pick<WorldOptions, 'env' | 'processes'> = {},
): Promise<TestSale> {
  const stores = await openStoresWithRedis();
  redis = stores.redisServer;
  return kept(await World.open({ strategy, stores, services: 2, ...more })).openSale(stock);
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

async function expectLeft(sale: TestSale, units: number): Promise<void> {
  const { stock, sold } = await sale.units();
  expect(stock - sold).toBe(units);
  await assertInvariants(sale);
}

it.each(tier === 'quick' ? ['lua'] : ['segmented-lock'])(
  '%s: Redis is empty after a restart in the middle of a rush',
  { timeout: TIMEOUT_MS },
  async (strategy) => {
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
  },
);

describeInFull('snapshots', () => {
  it('lua: Redis goes back to a snapshot from before 15 sales and 3 cancels', {
    timeout: TIMEOUT_MS,
  }, async () => {
    const sale = await open('lua', 50);
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
  });
});

describeInFull('another database', () => {
  it.each([
    ['lua', 'redis'],
    ['global-lock', 'postgres-row'],
  ])(
    '%s with LOCK=%s: what a sale of another database left in Redis is not taken for the sale with the same id',
    { timeout: TIMEOUT_MS },
    async (strategy, LOCK) => {
      const old = await open(strategy, 10, { env: { LOCK }, processes: true });
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

describeInFull('no Redis', () => {
  it.each(
    bySize({
      core: [['lua', 'cut off']],
      full: [
        ['lua', 'cut off'],
        ['segmented-lock', 'dead'],
      ],
      nightly: BOTH.flatMap((strategy) => ['cut off', 'dead'].map((how) => [strategy, how])),
    }),
  )('%s: Redis is %s: orders go on in Postgres', { timeout: TIMEOUT_MS }, async (strategy, how) => {
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

describeInFull('failover', () => {
  it('processes that connected before and after a promotion or the first replica agree', async () => {
    await using primary = await OwnRedis.open();
    await using stores = await openTestStores();
    const postgres = openPostgres(stores.databaseUrl, () => {});
    onTestFinished(() => postgres.close());
    await using link = await TcpProxy.to(primary.url);
    const epochHere = async () => {
      const store = await openRedis(link.through(primary.url), () => {});
      onTestFinished(() => store.close());
      const epochs = redisEpochs(store, postgres);
      return async () => {
        await epochs.check();
        return (await epochs.current('stampede:{sale:1}:state')).epoch;
      };
    };
    const early = await epochHere();
    await using replica = await OwnRedis.open(['--replicaof', '127.0.0.1', new URL(primary.url).port]);
    const client = new Redis(replica.url);
    onTestFinished(() => client.disconnect());
    await eventually(
      () => client.info('replication'),
      (info) => info.includes('master_link_status:up'),
    );
    const between = await early();
    expect(await (await epochHere())()).toBe(between);
    await primary.kill();
    link.lead(replica.port);
    await client.replicaof('NO', 'ONE');
    const after = await eventually(
      () => early().catch(() => between),
      (epoch) => epoch !== between,
    );
    expect(await (await epochHere())()).toBe(after);
  });

  it('looks for the primary again at a server that became a replica, although nothing is written there', async () => {
    await using primary = await OwnRedis.open();
    await using stores = await openTestStores();
    const postgres = openPostgres(stores.databaseUrl, () => {});
    onTestFinished(() => postgres.close());
    const store = await openRedis(primary.url, () => {});
    onTestFinished(() => store.close());
    const epochs = redisEpochs(store, postgres);
    const key = 'stampede:{sale:1}:state';
    await epochs.current(key);
    const client = new Redis(primary.url);
    onTestFinished(() => client.disconnect());
    await client.replicaof('127.0.0.1', 1);
    const connections = async () => {
      await epochs.check();
      await epochs.current(key).catch(() => {});
      return store.serverOf(key).connections;
    };
    await expect.poll(connections).toBeGreaterThan(0);
  });
});
