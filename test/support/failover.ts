/**
 * A sale through failovers of a store. Each customer repeats until the answer is final, so the longest time without an accepted
 * attempt is what the failover costs.
 *
 * FAILOVERS=20 npx vitest run test/orders/sentinel.test.ts repeats each failover with twenty seeds, which choose its moment, and
 * adds a line for each to bench/results/failovers.jsonl. FAILOVER_SEED is the first seed.
 */
import { appendFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { expect } from 'vitest';
import { describeCommit, shortCommit } from '../../bench/kit/machine.ts';
import { users } from './client.ts';
import type { Ledger } from './ledger.ts';
import { randomOf } from './workloads.ts';
import { assertInvariants, type TestSale, type World } from './world.ts';

const FIRST = Number(process.env.FAILOVER_SEED ?? 1);
export const SEEDS = Array.from({ length: Number(process.env.FAILOVERS ?? 1) }, (_, i) => FIRST + i);
/** Of a test that runs all seeds. */
export const TIMEOUT_MS = SEEDS.length * 180_000;
const LOG = new URL('../../bench/results/failovers.jsonl', import.meta.url);
const STOCK = 120;
const RUSH_MS = 3_000;

/** Sells one sale, and fails over in the middle of it. @param client of Redis, where it is after the failover; it is disconnected */
export async function sellThrough(
  world: World,
  name: string,
  seed: number,
  fault: (sale: TestSale) => Promise<unknown>,
  client?: () => Promise<Redis>,
): Promise<void> {
  const sale = await world.openSale(STOCK);
  await sale.rush(users(20, 'before'));
  const rush = sale.rush(users(60, 'during'), RUSH_MS);
  await sleep(randomOf(seed)() * RUSH_MS * 0.5);
  await fault(sale);
  await rush;
  expect(errors(sale.ledger), `seed ${seed}`).toEqual([]);
  const redis = await client?.();
  await assertInvariants(sale, redis);
  redis?.disconnect();
  if (SEEDS.length > 1) {
    const { strategy } = world;
    const commit = shortCommit(await describeCommit());
    const line = { commit, fault: name, strategy, seed, pauseMs: Math.round(longestPauseMs(sale.ledger)) };
    appendFileSync(LOG, `${JSON.stringify(line)}\n`);
  }
}

/** Answers that customers must not see; null: the connection was closed. */
function errors({ operations }: Ledger): unknown[] {
  return operations.filter(({ status }) => status !== null && status >= 500 && status !== 503);
}

/** The longest time between two accepted attempts. */
function longestPauseMs({ operations }: Ledger): number {
  const accepted = operations
    .filter(({ action, status }) => action === 'purchase' && (status ?? 500) < 300)
    .map(({ completedMs }) => completedMs)
    .sort((a, b) => a - b);
  return Math.max(...accepted.slice(1).map((ms, i) => ms - accepted[i]!));
}
