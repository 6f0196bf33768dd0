/**
 * Random faults while a sale runs, for every safe strategy: statements delayed, backends and processes frozen for 3 to 8 s,
 * connections cut, Postgres restarted; and failovers: of Redis, there and back, and to a standby that lacks commits
 * (test/support/faults.ts). No answer may turn out false, and no unit may be lost.
 *
 * FAULT_ROUNDS=50 FAULT_SEED=1000 npx vitest run test/orders/random-faults.test.ts plays fifty rounds for each strategy;
 * FAULT_LANES is the number of strategies at once. A finding names its seed: FAULT_ROUNDS=1 FAULT_SEED=<seed> -t <strategy>. With
 * more than one round, each adds a line to bench/results/random-faults.jsonl.
 */
import { appendFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { describeCommit, shortCommit } from '../../lab/kit/machine.ts';
import { seededRandom } from '../../lab/kit/random.ts';
import { openPostgresPair } from '../../lab/servers/postgres-pair.ts';
import { openSentinels } from '../../lab/servers/sentinels.ts';
import { commitCancelled, drawFaults, SAFE_STRATEGIES, thereAndBack } from '../support/faults.ts';
import { Runner } from '../support/runner.ts';
import { openEnsembleStores, openOwnStores } from '../support/stores.ts';
import { TRADING_MS, trading } from '../support/workloads.ts';
import { World } from '../support/world.ts';

const ROUNDS = Number(process.env.FAULT_ROUNDS ?? 1);
const SEED = Number(process.env.FAULT_SEED ?? 1);
const LANES = Number(process.env.FAULT_LANES ?? 3);
/** With the wait for a lane, which is as long as a round. */
const ROUND_TIMEOUT_MS = 600_000;
const FAULTS_PER_ROUND = 5;
const STOCK = 2;
/** Where customers ask for several units, the most of an order, and the stock. */
const MANY = { most: 4, stock: 7 };
const IDLE_MS = 60_000;
/** No order expires, however many rounds are played. */
const ENV = { SEGMENTS: '4', PAYMENT_WINDOW_S: '86400' };

describe.concurrent.each(SAFE_STRATEGIES.map((name, i) => [name, i] as const))('%s', (strategy, i) => {
  it('gives no false answer', { timeout: ROUNDS * ROUND_TIMEOUT_MS }, async () => {
    const findings = await inLane(async () => {
      const stores = await openOwnStores();
      await using world = await World.open({ strategy, services: 2, env: ENV, stores });
      const runner = new Runner(world, IDLE_MS);
      for (let seed = SEED; seed < SEED + ROUNDS; seed++) {
        const own = seed * 64 + i; // each strategy meets different faults
        const faults = drawFaults(own, FAULTS_PER_ROUND);
        const fault = (sale: Parameters<typeof faults.strike>[0], work: Promise<void>) =>
          Promise.all([work, faults.strike(sale, stores, TRADING_MS - 4_000)]);
        const name = `${strategy}, seed ${seed}`;
        const units = seed % 2 === 1 ? MANY : { stock: STOCK };
        const round = { name, seed: own, ...units, workload: trading, fault };
        const explained = world.usesRedis ? 'all but sold-out' : 'all';
        const { ledger } = await runner.run({ ...round, explained });
        console.log(`${name}: ${ledger.history.length} operations, ${faults.names.join(' ')}`);
      }
      return await ended('random faults', strategy, runner);
    });
    expect(findings).toEqual([]);
  });
});

/** One case of each kind; with several rounds, all. */
const some = <T>(all: readonly T[]): readonly T[] => (ROUNDS > 1 ? all : [all[SEED % all.length]!]);
const IN_REDIS = ['lua', 'segmented-lock', 'global-lock'];
const FAILING_OVER = ['durable', 'accepted'].flatMap((confirm) =>
  IN_REDIS.map((strategy) => [strategy, confirm] as const),
);

describe.concurrent('Redis fails over and back', () => {
  it.each(some(FAILING_OVER))(
    '%s, CONFIRM=%s',
    { timeout: ROUNDS * ROUND_TIMEOUT_MS },
    async (strategy, CONFIRM) => {
      const findings = await inLane(async () => {
        await using sentinels = await openSentinels();
        const stores = await openEnsembleStores({ sentinels });
        const env = { ...ENV, ...(CONFIRM === 'accepted' && { CONFIRM, REDIS_WAIT: '1' }) };
        await using world = await World.open({ strategy, services: 2, env, stores });
        const runner = new Runner(world, IDLE_MS);
        for (let seed = SEED; seed < SEED + ROUNDS; seed++) {
          const fault = (_: unknown, work: Promise<void>) =>
            Promise.all([work, thereAndBack(sentinels, seededRandom(seed))]);
          const name = `there and back, ${strategy}, ${CONFIRM}, seed ${seed}`;
          const round = { name, seed, stock: STOCK, workload: trading, fault };
          const { ledger } = await runner.run({ ...round, isAhead: CONFIRM === 'accepted' });
          console.log(`${name}: ${ledger.history.length} operations`);
        }
        return await ended('there and back', `${strategy}, ${CONFIRM}`, runner);
      });
      expect(findings).toEqual([]);
    },
  );
});

describe.concurrent('a synchronous standby lacks a commit whose wait was ended, and is promoted', () => {
  it.each(some(SAFE_STRATEGIES))('%s', { timeout: ROUNDS * ROUND_TIMEOUT_MS }, async (strategy) => {
    for (let seed = SEED; seed < SEED + ROUNDS; seed++) {
      const findings = await inLane(async () => {
        await using pair = await openPostgresPair({ synchronous: true });
        const stores = await openEnsembleStores({ pair });
        await using world = await World.open({ strategy, services: 2, env: ENV, stores });
        const runner = new Runner(world, IDLE_MS);
        const fault = (_: unknown, work: Promise<void>) =>
          Promise.all([work, commitCancelled(pair, seededRandom(seed))]);
        const name = `commit cancelled, ${strategy}, seed ${seed}`;
        const { ledger } = await runner.run({ name, seed, stock: STOCK, workload: trading, fault });
        console.log(`${name}: ${ledger.history.length} operations`);
        return await ended('commit cancelled', strategy, runner);
      });
      expect(findings).toEqual([]);
    }
  });
});

const LOG = new URL('../../bench/results/random-faults.jsonl', import.meta.url);

/** Ends a run, and logs its rounds. @returns the findings */
async function ended(nemesis: string, strategy: string, runner: Runner): Promise<readonly string[]> {
  const played = await runner.end();
  if (ROUNDS > 1) {
    const commit = shortCommit(await describeCommit());
    const lines = played.map((round) => `${JSON.stringify({ commit, nemesis, strategy, ...round })}\n`);
    appendFileSync(LOG, lines.join(''));
  }
  return runner.findings;
}

let free = LANES;
const waiting: (() => void)[] = [];
async function inLane<T>(work: () => Promise<T>): Promise<T> {
  if (free === 0) await new Promise<void>((resolve) => waiting.push(resolve));
  else free--;
  try {
    return await work();
  } finally {
    const next = waiting.shift();
    if (next === undefined) free++;
    else next();
  }
}
