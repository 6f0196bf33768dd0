/**
 * A sale through failovers of a store. Each customer repeats until the answer is final, so the longest time without an accepted
 * attempt is the cost of the failover.
 *
 * FAILOVERS=20 npx vitest run test/orders/sentinel.test.ts repeats each failover with twenty seeds, which choose its moment, and
 * adds a line for each to bench/results/failovers.jsonl. FAILOVER_SEED is the first seed.
 */
import { appendFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { expect } from 'vitest';
import type { HistoryRecord } from '../../lab/history.ts';
import { describeCommit, shortCommit } from '../../lab/kit/machine.ts';
import { seededRandom } from '../../lab/kit/random.ts';
import { eventually, post, users } from './client.ts';
import type { Ledger } from './ledger.ts';
import { bySize } from './tier.ts';
import { assertInvariants, type TestSale, World } from './world.ts';

const FIRST = Number(process.env.FAILOVER_SEED ?? 1);
export const SEEDS = Array.from({ length: Number(process.env.FAILOVERS ?? 1) }, (_, i) => FIRST + i);
/** How long a test of all seeds may take. */
export const TIMEOUT_MS = SEEDS.length * 180_000;
const LOG = new URL('../../bench/results/failovers.jsonl', import.meta.url);
/** The pairs of a strategy and an ending that fail over; with several seeds, all. */
export function failovers<E extends string>(
  all: readonly string[],
  endings: readonly [E, E, ...E[]],
): (readonly [string, E])[] {
  const every = endings.flatMap((ending) => all.map((strategy) => [strategy, ending] as const));
  const [one, two] = all as [string, string];
  const few = [
    [one, endings[0]],
    [two, endings[1]],
  ] as const;
  return SEEDS.length > 1 ? every : bySize({ core: few.slice(0, 1), full: [...few], nightly: every });
}

const STOCK = 120;
const RUSH_MS = 3_000;

/** Sells one sale, and fails over in the middle of it. @param client connects to Redis after the failover; it is disconnected */
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
  await sleep(seededRandom(seed)() * RUSH_MS * 0.5);
  await fault(sale);
  await rush;
  expect(errors(sale.ledger), `seed ${seed}`).toEqual([]);
  const redis = await client?.();
  await assertInvariants(sale, redis);
  redis?.disconnect();
  if (SEEDS.length > 1) {
    const { strategy } = world;
    const commit = shortCommit(await describeCommit());
    const line = {
      commit,
      fault: name,
      strategy,
      seed,
      pauseMs: Math.round(longestPauseMs(sale.ledger.ended('accepted', 'replayed'))),
    };
    appendFileSync(LOG, `${JSON.stringify(line)}\n`);
  }
}

/** Answers that customers must not see; null: the connection was closed. */
function errors({ history }: Ledger): unknown[] {
  return history.filter(({ status }) => status !== null && status >= 500 && status !== 503);
}

/** The longest time between two of them, by when they were answered. */
export function longestPauseMs(answered: readonly HistoryRecord[]): number {
  const ms = answered.map(({ completedUs }) => completedUs! / 1_000).sort((a, b) => a - b);
  return Math.max(...ms.slice(1).map((at, i) => at - ms[i]!));
}

const IN_REDIS = bySize({
  core: ['lua'],
  full: ['lua', 'segmented-lock'],
  nightly: ['lua', 'segmented-lock', 'global-lock'],
});
/** One for each strategy that decides in Redis and each mode of CONFIRM. */
export const SERVICES = 2 * IN_REDIS.length;

export async function openWorlds(redisUrl: string) {
  const kinds = IN_REDIS.flatMap((strategy) => [
    { strategy, confirm: 'durable', env: { REDIS_URL: redisUrl } },
    { strategy, confirm: 'accepted', env: { REDIS_URL: redisUrl, CONFIRM: 'accepted', REDIS_WAIT: '1' } },
  ]);
  const all = await Promise.all(
    kinds.map(async ({ confirm, ...options }, i) => {
      const world = await World.open({ ...options, processes: true });
      // The worlds share one Redis but not a database, so their sale ids must differ.
      await world.stores.sql.query(`ALTER SEQUENCE sales_id_seq RESTART ${i + 1}000`);
      return Object.assign(world, { confirm });
    }),
  );
  const close = () => Promise.all(all.map((world) => world[Symbol.asyncDispose]()));
  return { all, [Symbol.asyncDispose]: async () => void (await close()) };
}

const changesOf = async (sale: TestSale): Promise<number> => {
  const { rowCount } = await sale.world.stores.sql.query('SELECT FROM mirror_outbox WHERE sale_id = $1', [
    sale.id,
  ]);
  return rowCount!;
};

/**
 * Each sale is sold out when its Redis fails over. While another server is the primary, units become free, and no attempt
 * comes until the outbox has dropped their changes. After the way back these units are free at once.
 */
export async function sellAfterTheWayBack(
  sales: readonly TestSale[],
  fault: Record<'away' | 'back', () => Promise<unknown>> & { client(): Promise<Redis> },
): Promise<void> {
  const each = (work: (sale: TestSale) => Promise<unknown>) => Promise.all(sales.map(work));
  await each((sale) => sale.rush(users(sale.stock, 'early')));
  await each(async (sale) => expect((await sale.buy('late')).problem).toBe('sold-out'));
  const redis = await fault.client();
  await each((sale) => sale.untilIdle(redis));
  redis.disconnect();
  await fault.away();
  await each(async (sale) => {
    await sale.cancel('early-1');
    const url = `${await sale.world.url()}/sales/${sale.id}/restock`;
    await eventually(
      () => post(url, { units: 2 }),
      ({ status }) => status !== 503,
    );
  });
  await each((sale) => expect.poll(() => changesOf(sale), { timeout: 120_000 }).toBe(0));
  await fault.back();
  const free = users(3, 'again');
  await each(async (sale) => {
    for (const user of free) {
      const { status, problem } = await sale.buy(user);
      expect([sale.world.strategy, status < 300, problem]).toEqual([sale.world.strategy, true, '']);
    }
  });
  const now = await fault.client();
  await each((sale) => sale.untilIdle(now)); // a 202 is not counted in Postgres yet
  await each((sale) => assertInvariants(sale, now));
  now.disconnect();
}
