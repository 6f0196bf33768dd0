/** Failover of Redis by Sentinel in the middle of a sale: every promise is kept, and each answer is one of the API's. */
import { Redis } from 'ioredis';
import { describe, expect, it } from 'vitest';
import { openSentinels } from '../../lab/servers/sentinels.ts';
import { openRedis } from '../../src/store/redis/connection.ts';
import { eventually, users } from '../support/client.ts';
import {
  failovers,
  openWorlds,
  SEEDS,
  SERVICES,
  sellAfterTheWayBack,
  sellThrough,
  TIMEOUT_MS,
} from '../support/failover.ts';
import { signal } from '../support/nemesis.ts';
import { opened } from '../support/opened.ts';
import { bySize } from '../support/tier.ts';
import { assertInvariants, World } from '../support/world.ts';

const sentinels = opened(openSentinels);
const SIX_SERVICES = { timeout: 2 * TIMEOUT_MS };

const faults = {
  async kill() {
    const old = await sentinels.primary();
    await old.kill();
    await sentinels.untilPromoted(old);
    await sentinels.restart(old);
  },
  async cut() {
    const old = await sentinels.primary();
    sentinels.cut(old);
    await sentinels.untilPromoted(old);
    sentinels.heal(old);
  },
  'switch-over': () => sentinels.switchOver(),
};

it.each(failovers(['lua', 'segmented-lock', 'global-lock'], ['kill', 'cut', 'switch-over']))(
  '%s keeps every promise through a %s of the primary',
  async (strategy, ending) => {
    await using world = await World.open({
      strategy,
      processes: true,
      services: 2,
      env: { REDIS_URL: sentinels.url },
    });
    for (const seed of SEEDS)
      await sellThrough(world, `Sentinel: ${ending}`, seed, faults[ending], () => sentinels.client());
  },
  TIMEOUT_MS,
);

describe('there and back', () => {
  /** The server that follows the primary. Before, services may be connected to it, and on a slow machine the Sentinels fail over again. */
  async function follower(): Promise<Redis> {
    const all = sentinels.servers.map(({ port }) => new Redis(port));
    for (const one of all) one.on('error', () => {}); // a Sentinel ends its connections
    const follows = async () => {
      const primary = await sentinels.primary();
      const n = sentinels.servers.findIndex((server) => server !== primary);
      const [role] = await all[n]!.role();
      return role === 'slave' ? n : null;
    };
    const n = await eventually(follows, (found) => found !== null);
    for (const [i, one] of all.entries()) if (i !== n) one.disconnect();
    return all[n!]!;
  }
  /** Resolves as soon as the services have returned to the first primary: their first read there counts. */
  async function back(): Promise<void> {
    const first = await follower();
    const clients = async () => {
      const all = String(await first.call('CLIENT', 'LIST', 'TYPE', 'normal')).split('\n');
      return all.filter((line) => !line.includes(' name=sentinel-')).length;
    };
    const before = await clients();
    await sentinels.switchOver();
    await eventually(clients, (count) => count >= before + SERVICES);
    first.disconnect();
  }
  const client = () => sentinels.client();

  const ways = [
    ['a switch-over', faults['switch-over']],
    ['a cut of the primary', faults.cut],
  ] as const;
  it.each(bySize({ core: ways.slice(1), full: ways.slice(1), nightly: [...ways] }))(
    'units that become free after %s are sold after the way back',
    SIX_SERVICES,
    async (_name, away) => {
      await using worlds = await openWorlds(sentinels.url);
      const sales = await Promise.all(worlds.all.map((world) => world.openSale(2)));
      await sellAfterTheWayBack(sales, { away, back, client });
    },
  );

  it('what the replica lacked is neither sold twice nor placed after a refusal', SIX_SERVICES, async () => {
    await using worlds = await openWorlds(sentinels.url);
    const sales = await Promise.all(worlds.all.map((world) => world.openSale(4)));
    const refusing = worlds.all.filter(({ confirm }) => confirm === 'durable');
    const refused = await Promise.all(refusing.map((world) => world.openSale(2)));
    await Promise.all([...sales, ...refused].map((sale) => sale.buy('first')));

    const primary = await sentinels.primary();
    const replica = new Redis(sentinels.servers.find((server) => server !== primary)!.port);
    let isAnswered = false;
    const has = async (field: (saleId: number) => Promise<number>) => {
      for (const { id } of refused)
        await eventually(
          () => field(id),
          (count) => count === 1 || isAnswered,
        );
    };
    await has((id) => replica.hlen(`stampede:{sale:${id}}:buyers`)); // it follows the primary

    // A reservation that the replica has, and a release that it lacks, while Postgres cannot be reached.
    const postgres = refusing.map(({ services }) => services[0]!.links.postgres);
    for (const link of postgres) link.set('black-hole');
    for (const link of postgres) link.cut();
    const attempts = Promise.all(refused.map((sale) => sale.request('purchase', 'refused'))).finally(() => {
      isAnswered = true;
    });
    await has((id) => replica.zcard(`stampede:{sale:${id}}:reservations`));
    const pids = refusing.map(({ services }) => services[0]!.pid);
    signal(pids, 'SIGSTOP');
    await sentinels.setFailoverTimeout(120_000); // else the Sentinels make the replica follow again
    await sentinels.cutReplication().finally(() => signal(pids, 'SIGCONT'));
    for (const answer of await attempts) expect(answer?.status).toBe(503);
    for (const link of postgres) link.set('pass');

    for (const sale of sales) {
      const counts = await sale.rush(users(3, 'lost'));
      expect((counts['201'] ?? 0) + (counts['200'] ?? 0)).toBe(3); // committed before the answer, since no replica confirms
    }
    await sentinels.setFailoverTimeout(3_000);
    await faults.cut();
    await back();
    replica.disconnect();
    const redis = await client();
    for (const sale of refused) {
      await sale.untilIdle(redis);
      expect(await sale.violations()).toEqual([]);
    }
    await Promise.all(sales.map((sale) => sale.rush(users(4, 'again'))));
    await Promise.all(sales.map((sale) => sale.untilIdle(redis)));
    await Promise.all(sales.map((sale) => assertInvariants(sale, redis)));
    redis.disconnect();
  });
});

it('connects again when a failover is announced while it asks a silent Sentinel for the primary', async () => {
  const store = await openRedis(sentinels.url, () => {});
  const isConnected = () =>
    store.ping().then(
      () => true,
      () => false,
    );
  const thaw = sentinels.freezeFirst();
  try {
    const old = await sentinels.client();
    await old.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    old.disconnect();
    await expect.poll(isConnected).toBe(false);
    await sentinels.switchOver();
    await expect.poll(isConnected).toBe(true);
  } finally {
    thaw();
    await store.close();
  }
});
