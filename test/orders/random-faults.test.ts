/**
 * Random faults while a sale runs, for the safe strategies: statements delayed, backends and processes frozen for 3 to 8 s,
 * connections cut, Postgres restarted (test/support/faults.ts). No answer may turn out false, and no unit may be lost. What lab/explore plays
 * in one process is met here by processes with real drivers.
 *
 * FAULT_ROUNDS=50 FAULT_SEED=1000 TEST_SIZE=nightly npx vitest run test/orders/random-faults.test.ts plays fifty rounds for each
 * strategy. A finding names its seed: FAULT_ROUNDS=1 FAULT_SEED=<seed> -t <strategy>. With more than one round, each adds a line to
 * bench/results/random-faults.jsonl.
 */
import { appendFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { describeCommit, shortCommit } from '../../lab/kit/machine.ts';
import { seededRandom } from '../../lab/kit/random.ts';
import { eventually } from '../support/client.ts';
import { drawFaults, SAFE_STRATEGIES } from '../support/faults.ts';
import { openOwnStores } from '../support/stores.ts';
import { TRADING_MS, trading } from '../support/workloads.ts';
import { assertInvariants, World } from '../support/world.ts';

const ROUNDS = Number(process.env.FAULT_ROUNDS ?? 1);
const SEED = Number(process.env.FAULT_SEED ?? 1);
const SEEDS = Array.from({ length: ROUNDS }, (_, i) => SEED + i);
const FAULTS_PER_ROUND = 5;
const STOCK = 2;
/** Where customers ask for several units, the most of an order, and the stock. */
const MANY = { most: 4, stock: 7 };
/** No order expires, however many rounds are played. */
const ENV = { SEGMENTS: '4', PAYMENT_WINDOW_S: '86400' };
const LOG = new URL('../../bench/results/random-faults.jsonl', import.meta.url);
const options = { timeout: ROUNDS * 600_000 };

/** Plays a round with each seed: a sale, which is sold out once the stores agree. */
describe.concurrent.each(SAFE_STRATEGIES)('%s', (strategy) => {
  it('gives no false answer', options, async () => {
    const stores = await openOwnStores();
    await using world = await World.open({ strategy, stores, services: 2, processes: true, env: ENV });
    const commit = shortCommit(await describeCommit());
    // What one order of all operations must explain.
    const explained = world.usesRedis ? 'all but sold-out' : 'all';
    for (const seed of SEEDS) {
      // Each strategy meets different faults.
      const faults = drawFaults(seed * 64 + SAFE_STRATEGIES.indexOf(strategy), FAULTS_PER_ROUND);
      const name = `random faults, ${strategy}, seed ${seed}`;
      console.log(`${name}: ${faults.names.join(' ')}`);
      const sale = seed % 2 === 1 ? await world.openSale(MANY.stock, MANY.most) : await world.openSale(STOCK);
      const striking = faults.strike(sale, stores, TRADING_MS - 4_000);
      await Promise.all([trading(sale, seededRandom(seed)), striking]);
      // A connection of before a restart of Postgres fails when it is used.
      const read = () => sale.violations().catch(() => null);
      expect(await eventually(read, (found) => found !== null), name).toEqual([]);
      await sale.untilIdle();
      await assertInvariants(sale);
      const { explains, step } = await sale.linearity();
      expect(['all', explained], `${name}: ${JSON.stringify(step)}`).toContain(explains);
      const operations = sale.ledger.history.length;
      console.log(`${name}: ${operations} operations`);
      const line = { commit, nemesis: 'random faults', strategy, seed, operations, explained: explains };
      if (ROUNDS > 1) appendFileSync(LOG, `${JSON.stringify(line)}\n`);
    }
    expect([...world.logged('Unexpected error'), ...world.logged('"level":60')]).toEqual([]);
  });
});
