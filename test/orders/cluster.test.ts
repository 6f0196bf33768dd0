/** A Redis Cluster in the middle of a sale: failovers, and a slot that moves to another master. */
import { setTimeout as sleep } from 'node:timers/promises';
import { Command } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type LinkedCluster, openLinkedCluster } from '../../bench/kit/linked-cluster.ts';
import { eventually, users } from '../support/client.ts';
import { openWorlds, SEEDS, sellAfterTheWayBack, sellThrough, TIMEOUT_MS } from '../support/failover.ts';
import { assertInvariants, type TestSale, World } from '../support/world.ts';

let cluster: LinkedCluster;

beforeAll(async () => {
  cluster = await openLinkedCluster();
});
afterAll(async () => {
  await cluster?.[Symbol.asyncDispose]();
});

async function check(sale: TestSale): Promise<void> {
  const redis = await cluster.client();
  await assertInvariants(sale, redis);
  redis.disconnect();
}

describe.each(['lua', 'segmented-lock', 'global-lock'])('%s', (strategy) => {
  it('sells several sales, which are on different masters', async () => {
    await using world = await World.open({ strategy, services: 2, env: { REDIS_URL: cluster.url } });
    const sales = await Promise.all(Array.from({ length: 6 }, () => world.openSale(20)));
    await sales[0]!.buy('first');
    await Promise.all(sales.map((sale) => sale.rush(users(30))));
    await sales[0]!.pay('first');
    for (const sale of sales) await check(sale);
    const { sql } = world.stores;
    const open = `SELECT count(*)::int AS open FROM tasks WHERE state <> 'done'`;
    await eventually(
      async () => (await sql.query<{ open: number }>(open)).rows[0]!.open,
      (left) => left === 0,
    );
  });

  it.each(['kill', 'cut', 'switch-over'] as const)(
    'keeps every promise through a %s of a master',
    async (name) => {
      await using world = await World.open({ strategy, services: 2, env: { REDIS_URL: cluster.url } });
      const fault = ({ id }: TestSale) => cluster[name](`stampede:{sale:${id}}:state`);
      for (const seed of SEEDS)
        await sellThrough(world, `Cluster: ${name}`, seed, fault, () => cluster.client());
    },
    TIMEOUT_MS,
  );

  it('answers no customer with an error while the slot of its sale moves to another master', async () => {
    // Under one lock for the sale, 20 customers at once may need longer than the default on a busy machine.
    const env = { REDIS_URL: cluster.url, LOCK_WAIT_MS: '20000' };
    await using world = await World.open({ strategy, services: 2, env });
    const sale = await world.openSale(120);
    await sale.rush(users(20, 'before'));
    const rush = sale.rush(users(60, 'during'), 3_000);
    await sleep(500);
    await cluster.moveSlot(`stampede:{sale:${sale.id}}:state`, () => sleep(100));
    await rush;
    expect(sale.ledger.operations.filter(({ status }) => status !== 201 && status !== 200)).toEqual([]);
    await check(sale);
  });
});

it.each(['switch-over', 'cut'] as const)(
  'units that become free after a %s of their master are sold after the way back',
  async (name) => {
    await using worlds = await openWorlds(cluster.url);
    const keyOf = ({ id }: TestSale) => `stampede:{sale:${id}}:state`;
    /** On the master with the first slots. */
    async function openSale(world: World): Promise<TestSale> {
      for (;;) {
        const sale = await world.openSale(2);
        if (new Command('get', [keyOf(sale)]).getSlot()! < 5_000) return sale;
      }
    }
    const sales = await Promise.all(worlds.all.map(openSale));
    const key = keyOf(sales[0]!);
    await sellAfterTheWayBack(sales, {
      away: () => cluster[name](key),
      back: () => cluster['switch-over'](key),
      client: () => cluster.client(),
    });
  },
);
