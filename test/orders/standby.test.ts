/** Promotion of a standby of Postgres in the middle of a sale. */
import { expect, it } from 'vitest';
import { type Ending, openPostgresPair, type PostgresPair } from '../../bench/kit/postgres-pair.ts';
import { users } from '../support/client.ts';
import { SEEDS, sellThrough, TIMEOUT_MS } from '../support/failover.ts';
import { SAFE_STRATEGIES } from '../support/faults.ts';
import { openTestStores, type TestStores } from '../support/stores.ts';
import { World } from '../support/world.ts';

const STOCK = 120;

async function openWorld(pair: PostgresPair, strategy: string): Promise<World> {
  const shared = await openTestStores();
  const stores: TestStores = {
    ...shared,
    databaseUrl: pair.url,
    get sql() {
      return pair.sql();
    },
  };
  return World.open({ strategy, services: 2, stores });
}

const endings: readonly (readonly [Ending, readonly string[]])[] = [
  ['kill', ['lua', 'group-commit', 'for-update', 'skip-locked', 'global-lock']],
  ['cut', ['lua', 'group-commit']],
  ['stop', ['lua', 'group-commit']],
];

/** With seeds, every safe strategy. */
const cases = endings.flatMap(([ending, some]) =>
  (SEEDS.length > 1 ? SAFE_STRATEGIES : some).map((strategy) => [strategy, ending] as const),
);

it.each(cases)(
  '%s keeps every promise when the synchronous standby is promoted after a %s of the primary',
  async (strategy, ending) => {
    for (const seed of SEEDS) {
      await using pair = await openPostgresPair({ synchronous: true });
      await using world = await openWorld(pair, strategy);
      await sellThrough(world, `Postgres: ${ending}`, seed, () => pair.failOver(ending));
    }
  },
  TIMEOUT_MS,
);

it.each(['lua', 'segmented-lock', 'group-commit'])(
  '%s: an asynchronous standby lacks the last orders, and their customers buy again',
  async (strategy) => {
    await using pair = await openPostgresPair({ synchronous: false });
    await using world = await openWorld(pair, strategy);
    const sale = await world.openSale(STOCK);
    await sale.rush(users(20, 'before'));
    await pair.cutReplication();
    const lost = users(30, 'lost');
    expect(await sale.rush(lost)).toEqual({ 201: lost.length });
    await pair.failOver('kill');
    const again = await sale.rush(lost);
    expect((again['201'] ?? 0) + (again['200'] ?? 0)).toBe(lost.length); // 200: an attempt before got no answer
    expect(await sale.sellOut()).toEqual([]);
    await sale.untilIdle();
    const violations = await sale.violations();
    const ofLost = violations.filter((one) => /^P[23]: \d+-lost-/.test(one));
    expect(violations.filter((one) => !ofLost.includes(one))).toEqual([]);
    // Fewer when Redis still had some of the reservations: those are committed again.
    const isLost = (one: string) => one.startsWith('P2');
    expect(ofLost.filter(isLost).length).toBeLessThanOrEqual(lost.length);
  },
);
