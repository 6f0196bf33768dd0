/** A Redis Cluster in the middle of a sale: failovers, and a slot that moves to another master. */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Cluster, Command } from 'ioredis';
import { describe, expect, it } from 'vitest';
import type { HistoryRecord } from '../../lab/history.ts';
import { type ClusterMember, NODE_TIMEOUT_MS } from '../../lab/servers/cluster.ts';
import { openLinkedCluster } from '../../lab/servers/linked-cluster.ts';
import { limits } from '../../src/config/limits.ts';
import { call, eventually, users } from '../support/client.ts';
import { failovers, SEEDS, sellThrough, TIMEOUT_MS } from '../support/failover.ts';
import { opened } from '../support/opened.ts';
import { openCluster } from '../support/servers.ts';
import { bySize } from '../support/tier.ts';
import { assertInvariants, type TestSale, World } from '../support/world.ts';

const cluster = opened(openLinkedCluster);

async function check(sale: TestSale): Promise<void> {
  const redis = await cluster.client();
  await assertInvariants(sale, redis);
  redis.disconnect();
}

/** Until it is disposed of, no replica takes over, however long the machine holds the members up. */
async function withoutFailover(): Promise<AsyncDisposable> {
  const client = (await cluster.client()) as unknown as Cluster;
  await client.ping(); // now it knows all nodes
  const set = (ms: number) =>
    Promise.all(client.nodes().map((node) => node.config('SET', 'cluster-node-timeout', ms)));
  await set(60_000);
  return { [Symbol.asyncDispose]: () => set(NODE_TIMEOUT_MS).then(() => client.disconnect()) };
}

it.each(failovers(['lua', 'segmented-lock', 'global-lock'], ['kill', 'cut', 'switch-over']))(
  '%s keeps every promise through a %s of a master',
  async (strategy, ending) => {
    await using world = await World.open({
      strategy,
      processes: true,
      services: 2,
      env: { REDIS_URL: cluster.url },
    });
    const fault = ({ id }: TestSale) => cluster[ending](`stampede:{sale:${id}}:state`);
    for (const seed of SEEDS)
      await sellThrough(world, `Cluster: ${ending}`, seed, fault, () => cluster.client());
  },
  TIMEOUT_MS,
);

describe.each(
  bySize({
    core: ['lua'],
    full: ['lua', 'segmented-lock'],
    nightly: ['lua', 'segmented-lock', 'global-lock'],
  }),
)('%s', (strategy) => {
  it('answers no customer with an error while the slot of its sale moves to another master', async () => {
    await using _calm = await withoutFailover();
    // Under one lock for the sale, 20 customers at once may need longer than the default on a busy machine.
    const env = { REDIS_URL: cluster.url, LOCK_WAIT_MS: '20000' };
    await using world = await World.open({ strategy, processes: true, services: 2, env });
    // No sale of another test has keys in this slot: they would move, too.
    await world.stores.sql.query(`ALTER SEQUENCE sales_id_seq RESTART ${strategy.length}0000`);
    const sale = await world.openSale(120);
    await sale.rush(users(20, 'before'));
    const rush = sale.rush(users(60, 'during'), 3_000);
    await sleep(500);
    const beganMs = performance.now();
    await cluster.moveSlot(`stampede:{sale:${sale.id}}:state`, () => sleep(20));
    const isLong = performance.now() - beganMs > 1_000; // a client retries no longer than this
    await rush;
    // The slot has the locks of all segments, two keys each; an attempt whose keys are moving is refused.
    const mayBeBusy = ({ outcome, invokedUs, completedUs }: HistoryRecord) => {
      const waitedMs = (completedUs! - invokedUs) / 1_000;
      const isWaiting = strategy === 'segmented-lock' || waitedMs > limits.commitWaitMs;
      return isLong || (isWaiting && outcome === 'busy');
    };
    const errors = sale.ledger.history.filter(
      (record) => record.status! >= 300 && !(record.status === 503 && mayBeBusy(record)),
    );
    expect(errors).toEqual([]);
    await check(sale);
  });
});

it.each(bySize({ core: ['lua'], full: ['lua'], nightly: ['lua', 'segmented-lock'] }))(
  '%s: is degraded while one master is down, sells what the others have, and is unavailable without any',
  async (strategy) => {
    await using masters = await openCluster();
    for (const { client } of masters.members)
      await client.config('SET', 'cluster-require-full-coverage', 'no', 'maxmemory-policy', 'noeviction');
    await using world = await World.open({ strategy, processes: true, env: { REDIS_URL: masters.url } });
    const ready = async () => call(`${await world.url()}/readyz`);
    const until = async (status: number, word: string) =>
      eventually(ready, (now) => now.status === status && now.body.status === word);
    await until(200, 'ok');

    const [one, ...rest] = masters.members as [ClusterMember, ...ClusterMember[]];
    const slots = (await one.client.cluster('SLOTS')).filter(([, , node]) => node?.[1] === one.port);
    const isOn = ({ id }: TestSale) => {
      const slot = new Command('get', [`stampede:{sale:${id}}:state`]).getSlot()!;
      return slots.some(([from, to]) => from <= slot && slot <= to);
    };
    const sales = await Promise.all(Array.from({ length: 12 }, () => world.openSale(5)));
    await one.kill();
    const shard = new RegExp(
      `shard 127\\.0\\.0\\.1:${one.port}: slots [\\d, -]+, 33 % of the sales, unavailable`,
    );
    const { body } = await eventually(
      ready,
      (now) => now.status === 200 && shard.test(JSON.stringify(now.body)),
    );
    expect(body.status).toBe('degraded');
    for (const sale of sales.filter((sale) => !isOn(sale)))
      expect((await sale.buy('ann')).status).toBeLessThan(300);
    await Promise.all(rest.map((master) => master.kill()));
    await until(503, 'unavailable');
    await Promise.all(masters.members.map((master) => master.restart()));
    await until(200, 'ok');
    for (const sale of sales) expect((await sale.buy('ann')).status).toBeLessThan(300);
  },
);
