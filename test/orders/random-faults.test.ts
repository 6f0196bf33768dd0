/**
 * Random faults while a sale runs, for the safe strategies: statements delayed, backends and processes frozen for 3 to 8 s,
 * connections cut, Postgres restarted; and failovers of Redis, there and back (test/support/faults.ts). No answer may turn out false, and
 * no unit may be lost. What lab/explore plays in one process is met here by processes with real drivers.
 *
 * FAULT_ROUNDS=50 FAULT_SEED=1000 TEST_SIZE=nightly npx vitest run test/orders/random-faults.test.ts plays fifty rounds for each
 * strategy. A finding names its seed: FAULT_ROUNDS=1 FAULT_SEED=<seed> -t <strategy>. With more than one round, each adds a line to
 * bench/results/random-faults.jsonl.
 */
import { appendFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { describeCommit, shortCommit } from '../../lab/kit/machine.ts';
import { seededRandom } from '../../lab/kit/random.ts';
import { openSentinels } from '../../lab/servers/sentinels.ts';
import { eventually } from '../support/client.ts';
import { drawFaults, SAFE_STRATEGIES, thereAndBack } from '../support/faults.ts';
import { openEnsembleStores, openOwnStores } from '../support/stores.ts';
import { TRADING_MS, trading } from '../support/workloads.ts';
import { assertInvariants, type TestSale, World, type WorldOptions } from '../support/world.ts';

const ROUNDS = Number(process.env.FAULT_ROUNDS ?? 1);
const SEED = Number(process.env.FAULT_SEED ?? 1);
const SEEDS = Array.from({ length: ROUNDS }, (_, i) => SEED + i);
const FAULTS_PER_ROUND = 5;
const STOCK = 2;
/** Where customers ask for several units, the most of an order, and the stock. */
const MANY = { most: 4, stock: 7 };
/** No order expires, however many rounds are played. */
const ENV = { SEGMENTS: '4', PAYMENT_WINDOW_S: '86400' };
const USES_REDIS = ['lua', 'segmented-lock', 'global-lock'];
const LOG = new URL('../../bench/results/random-faults.jsonl', import.meta.url);
const options = { timeout: ROUNDS * 600_000 };

interface Play extends Omit<WorldOptions, 'services' | 'processes'> {
  readonly nemesis: string;
  strike(sale: TestSale, seed: number): Promise<unknown>;
  roundOf?(seed: number): { readonly stock?: number; readonly most?: number };
  /** What one order of all operations must explain. */
  readonly explained?: 'all' | 'all but sold-out';
  /** Whether answers precede the commit: they are compared once nothing is left between the stores. */
  readonly isAhead?: boolean;
}

/** Plays a round with each seed: a sale, which is sold out once the stores agree. */
async function play({ nemesis, strike, roundOf, explained, isAhead, ...options }: Play): Promise<void> {
  const env = { ...ENV, ...options.env };
  await using world = await World.open({ ...options, services: 2, processes: true, env });
  const { strategy } = world;
  const commit = shortCommit(await describeCommit());
  for (const seed of SEEDS) {
    const name = `${nemesis}, ${strategy}, seed ${seed}`;
    const { stock = STOCK, most } = roundOf?.(seed) ?? {};
    const sale = await world.openSale(stock, most);
    await Promise.all([trading(sale, seededRandom(seed)), strike(sale, seed)]);
    // A connection of before a restart of Postgres fails when it is used.
    const read = () => sale.violations().catch(() => null);
    if (!isAhead) expect(await eventually(read, (found) => found !== null), name).toEqual([]);
    await sale.untilIdle();
    await assertInvariants(sale);
    const found = explained && (await sale.linearity());
    if (found) expect(['all', explained], `${name}: ${JSON.stringify(found.step)}`).toContain(found.explains);
    const operations = sale.ledger.history.length;
    console.log(`${name}: ${operations} operations`);
    const line = { commit, nemesis, strategy, seed, operations, ...(found && { explained: found.explains }) };
    if (ROUNDS > 1) appendFileSync(LOG, `${JSON.stringify(line)}\n`);
  }
  expect([...world.logged('Unexpected error'), ...world.logged('"level":60')]).toEqual([]);
}

describe.concurrent.each(SAFE_STRATEGIES)('%s', (strategy) => {
  it('gives no false answer', options, async () => {
    const stores = await openOwnStores();
    // Each strategy meets different faults.
    const ownSeed = (seed: number) => seed * 64 + SAFE_STRATEGIES.indexOf(strategy);
    await play({
      ...{ nemesis: 'random faults', strategy, stores },
      strike(sale, seed) {
        const faults = drawFaults(ownSeed(seed), FAULTS_PER_ROUND);
        console.log(`${strategy}, seed ${seed}: ${faults.names.join(' ')}`);
        return faults.strike(sale, stores, TRADING_MS - 4_000);
      },
      roundOf: (seed) => (seed % 2 === 1 ? MANY : {}),
      explained: USES_REDIS.includes(strategy) ? 'all but sold-out' : 'all',
    });
  });
});

const FAILING_OVER = ['durable', 'accepted'].flatMap((confirm) =>
  USES_REDIS.map((strategy) => [strategy, confirm] as const),
);

// One after the other: each has a group of servers.
describe('Redis fails over and back', () => {
  it.each(FAILING_OVER)('%s, CONFIRM=%s', options, async (strategy, CONFIRM) => {
    await using sentinels = await openSentinels();
    const stores = await openEnsembleStores({ sentinels });
    const isAhead = CONFIRM === 'accepted';
    await play({
      ...{ nemesis: 'there and back', strategy, stores, env: isAhead ? { CONFIRM, REDIS_WAIT: '1' } : {} },
      strike: (_, seed) => thereAndBack(sentinels, seededRandom(seed)),
      isAhead,
    });
  });
});
