/** Failover of Redis by Sentinel in the middle of a sale: every promise is kept, and each answer is one of the API's. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { users } from '../support/client.ts';
import { openSentinels, type Sentinels } from '../support/sentinels.ts';
import { assertInvariants, World } from '../support/world.ts';

const STOCK = 120;
let sentinels: Sentinels;

beforeAll(async () => {
  sentinels = await openSentinels();
});
afterAll(async () => {
  await sentinels?.[Symbol.asyncDispose]();
});

describe.each(['lua', 'segmented-lock', 'global-lock'])('%s', (strategy) => {
  it.each(['kill', 'cut', 'switch-over'])(
    'keeps every promise through a %s of the primary',
    async (fault) => {
      await using world = await World.open({ strategy, services: 2, env: { REDIS_URL: sentinels.url } });
      const sale = await world.openSale(STOCK);
      await sale.rush(users(20, 'before'));
      const old = await sentinels.primary();
      const rush = sale.rush(users(60, 'during'), 3_000);
      await sleep(500);
      if (fault === 'kill') {
        await old.kill();
        await sentinels.untilPromoted(old);
        await sentinels.restart(old);
      } else if (fault === 'cut') {
        sentinels.cut(old);
        await sentinels.untilPromoted(old);
        sentinels.heal(old);
      } else await sentinels.switchOver();
      await rush;
      const statuses = new Set(sale.ledger.operations.map(({ status }) => status));
      statuses.delete(null); // the service closed the connection: it was not answered
      expect([...statuses].filter((status) => status! >= 500 && status !== 503)).toEqual([]);
      const redis = await sentinels.client();
      await assertInvariants(sale, redis);
      redis.disconnect();
    },
  );
});
