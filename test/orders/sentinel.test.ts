/** Failover of Redis by Sentinel in the middle of a sale: every promise is kept, and each answer is one of the API's. */
import { afterAll, beforeAll, describe, it } from 'vitest';
import { SEEDS, sellThrough, TIMEOUT_MS } from '../support/failover.ts';
import { openSentinels, type Sentinels } from '../support/sentinels.ts';
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
      await sentinels.flush();
      await using world = await World.open({ strategy, services: 2, env: { REDIS_URL: sentinels.url } });
      for (const seed of SEEDS)
        await sellThrough(world, `sentinel ${name}`, seed, fault, () => sentinels.client());
    },
    TIMEOUT_MS,
  );
});
