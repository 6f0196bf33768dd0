/**
 * Random faults while a sale runs, for the safe strategies: statements delayed, backends and processes frozen for 3 to 8 s,
 * connections cut, Postgres restarted; and failovers: of Redis, there and back, and to a standby that lacks commits
 * (test/support/faults.ts). No answer may turn out false, and no unit may be lost.
 *
 * FAULT_ROUNDS=50 FAULT_SEED=1000 TEST_SIZE=nightly npx vitest run test/orders/random-faults.test.ts plays fifty rounds for each
 * strategy. A finding names its seed: FAULT_ROUNDS=1 FAULT_SEED=<seed> -t <strategy>. With more than one round, each adds a line to
 * bench/results/random-faults.jsonl.
 */
import { appendFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { describeCommit, shortCommit } from '../../lab/kit/machine.ts';
import { seededRandom } from '../../lab/kit/random.ts';
import { openPostgresPair } from '../../lab/servers/postgres-pair.ts';
import { openSentinels } from '../../lab/servers/sentinels.ts';
import { commitCancelled, drawFaults, SAFE_STRATEGIES, thereAndBack } from '../support/faults.ts';
import { type Round, Runner } from '../support/runner.ts';
import { openEnsembleStores, openOwnStores } from '../support/stores.ts';
import { bySize } from '../support/tier.ts';
import { TRADING_MS, trading } from '../support/workloads.ts';
import { type TestSale, World, type WorldOptions } from '../support/world.ts';

const ROUNDS = Number(process.env.FAULT_ROUNDS ?? 1);
const SEED = Number(process.env.FAULT_SEED ?? 1);
const SEEDS = Array.from({ length: ROUNDS }, (_, i) => SEED + i);
const FAULTS_PER_ROUND = 5;
const STOCK = 2;
/** Where customers ask for several units, the most of an order, and the stock. */
const MANY = { most: 4, stock: 7 };
const IDLE_MS = 60_000;
/** No order expires, however many rounds are played. */
const ENV = { SEGMENTS: '4', PAYMENT_WINDOW_S: '86400' };
const LOG = new URL('../../bench/results/random-faults.jsonl', import.meta.url);
const options = { timeout: ROUNDS * 600_000 };

interface Play extends Omit<WorldOptions, 'services' | 'processes'> {
  readonly nemesis: string;
  readonly seeds?: readonly number[];
  strike(sale: TestSale, seed: number): Promise<unknown>;
  roundOf?(world: World, seed: number): Partial<Round>;
}

/** Plays a round with each seed. */
async function play({ nemesis, seeds = SEEDS, strike, roundOf, ...options }: Play): Promise<void> {
  const env = { ...ENV, ...options.env };
  await using world = await World.open({ ...options, services: 2, processes: true, env });
  const { strategy } = world;
  const runner = new Runner(world, IDLE_MS);
  for (const seed of seeds) {
    const name = `${nemesis}, ${strategy}, seed ${seed}`;
    const fault = (sale: TestSale, work: Promise<void>) => Promise.all([work, strike(sale, seed)]);
    const round = { name, seed, stock: STOCK, workload: trading, fault, ...roundOf?.(world, seed) };
    const { ledger } = await runner.run(round);
    console.log(`${name}: ${ledger.history.length} operations`);
  }
  const played = await runner.end();
  if (ROUNDS > 1) {
    const commit = shortCommit(await describeCommit());
    const lines = played.map((round) => `${JSON.stringify({ commit, nemesis, strategy, ...round })}\n`);
    appendFileSync(LOG, lines.join(''));
  }
  expect(runner.findings).toEqual([]);
}

describe.concurrent.each(
  bySize({ core: ['lua'], full: ['lua', 'segmented-lock', 'group-commit'], nightly: SAFE_STRATEGIES }),
)('%s', (strategy) => {
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
      roundOf: ({ usesRedis }, seed) => ({
        seed: ownSeed(seed),
        explained: usesRedis ? 'all but sold-out' : 'all',
        ...(seed % 2 === 1 && MANY),
      }),
    });
  });
});

/** One case of each kind; in the nightly size, or with several rounds, all. */
const some = <T>(all: readonly T[]): readonly T[] =>
  ROUNDS > 1 ? all : bySize({ core: all.slice(0, 1), full: [all[SEED % all.length]!], nightly: all });
const IN_REDIS = ['lua', 'segmented-lock', 'global-lock'];
const FAILING_OVER = ['durable', 'accepted'].flatMap((confirm) =>
  IN_REDIS.map((strategy) => [strategy, confirm] as const),
);

// One after the other: each has a group of servers.
describe('Redis fails over and back', () => {
  it.each(some(FAILING_OVER))('%s, CONFIRM=%s', options, async (strategy, CONFIRM) => {
    await using sentinels = await openSentinels();
    const stores = await openEnsembleStores({ sentinels });
    const isAhead = CONFIRM === 'accepted';
    await play({
      ...{ nemesis: 'there and back', strategy, stores, env: isAhead ? { CONFIRM, REDIS_WAIT: '1' } : {} },
      strike: (_, seed) => thereAndBack(sentinels, seededRandom(seed)),
      roundOf: () => ({ isAhead }),
    });
  });
});

describe('a synchronous standby lacks a commit whose wait was ended, and is promoted', () => {
  it.each(some(SAFE_STRATEGIES))('%s', options, async (strategy) => {
    for (const seed of SEEDS) {
      await using pair = await openPostgresPair({ synchronous: true });
      const stores = await openEnsembleStores({ pair });
      const strike = () => commitCancelled(pair, seededRandom(seed));
      await play({ nemesis: 'commit cancelled', strategy, stores, seeds: [seed], strike });
    }
  });
});
