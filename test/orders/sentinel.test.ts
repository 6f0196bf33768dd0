/** Failover of Redis by Sentinel in the middle of a sale: every promise is kept, and each answer is one of the API's. */
import { Redis } from 'ioredis';
import { expect, it } from 'vitest';
import { openSentinels } from '../../lab/servers/sentinels.ts';
import { openRedis } from '../../src/store/redis/connection.ts';
import { eventually } from '../support/client.ts';
import {
  failovers,
  openWorlds,
  SEEDS,
  SERVICES,
  sellAfterTheWayBack,
  sellThrough,
  TIMEOUT_MS,
} from '../support/failover.ts';
import { opened } from '../support/opened.ts';
import { World } from '../support/world.ts';

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

it(
  'units that become free after a cut of the primary are sold after the way back',
  SIX_SERVICES,
  async () => {
    await using worlds = await openWorlds(sentinels.url);
    const sales = await Promise.all(worlds.all.map((world) => world.openSale(2)));
    await sellAfterTheWayBack(sales, { away: faults.cut, back, client: () => sentinels.client() });
  },
);

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
