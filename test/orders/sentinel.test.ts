/** Failover of Redis by Sentinel in the middle of a sale: every promise is kept, and each answer is one of the API's. */
import { afterAll, beforeAll, describe, it } from 'vitest';
import { openSentinels, type Sentinels } from '../../bench/kit/sentinels.ts';
import { openRedis } from '../../src/store/redis/connection.ts';
import { eventually } from '../support/client.ts';
import { SEEDS, sellThrough, TIMEOUT_MS } from '../support/failover.ts';
import { World } from '../support/world.ts';

let sentinels: Sentinels;
beforeAll(async () => {
  sentinels = await openSentinels();
});
afterAll(async () => {
  await sentinels?.[Symbol.asyncDispose]();
});

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

describe.each(['lua', 'segmented-lock', 'global-lock'])('%s', (strategy) => {
  it.each(Object.entries(faults))(
    'keeps every promise through a %s of the primary',
    async (name, fault) => {
      await using world = await World.open({ strategy, services: 2, env: { REDIS_URL: sentinels.url } });
      for (const seed of SEEDS)
        await sellThrough(world, `Sentinel: ${name}`, seed, fault, () => sentinels.client());
    },
    TIMEOUT_MS,
  );
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
    await eventually(isConnected, (is) => !is);
    await sentinels.switchOver();
    await eventually(isConnected, (is) => is);
  } finally {
    thaw();
    await store.close();
  }
});
