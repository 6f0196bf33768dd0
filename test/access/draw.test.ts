/**
 * The draw of the lottery, for 10,000 customers: the order of arrival does not decide the outcome. The seed is fixed. With another
 * seed, each statistic exceeds its bound once in a million.
 */
import { expect, it } from 'vitest';
import { createWaitingRoom } from '../../src/access/waiting-room.ts';
import type { Sale } from '../../src/domain/sale.ts';

const SEED = 'b51d3a4e-6f0c-4c52-9d6f-0c1f3a7be2d4';
const CUSTOMERS = 10_000;
const START_MS = 1_000_000_000;
const SPREAD_MS = 240_000;
/** A standard normal value is further from 0 once in a million. */
const FAR = 4.9;
/** A chi-squared value with 19 degrees of freedom is higher once in a million. */
const [BINS, UNEVEN] = [20, 65];

/** Spearman's rank correlation of a list of ranks with its order, as a standard normal value. */
function spearman(values: readonly number[]): number {
  const n = values.length;
  const rankOf = new Map([...values].sort((a, b) => a - b).map((value, rank) => [value, rank]));
  const squares = values.reduce((sum, value, at) => sum + (rankOf.get(value)! - at) ** 2, 0);
  return (1 - (6 * squares) / (n * (n * n - 1))) * Math.sqrt(n - 1);
}

it('is even, and independent of the order of arrival', async () => {
  const keep = { take: async ({ drawnMs }: { drawnMs: number | null }) => drawnMs! };
  const room = createWaitingRoom(
    keep,
    () => 1,
    () => 600_000,
  );
  const sale = { id: 1, startsAt: new Date(START_MS).toISOString(), spreadS: SPREAD_MS / 1_000 } as Sale;
  const arrivals = await Promise.all(
    Array.from({ length: CUSTOMERS }, async (_, rank) => ({
      rank,
      turnMs: await room.turn(sale, SEED, `customer-${rank}`, START_MS - 60_000 + 5 * rank),
    })),
  );
  const byTurn = arrivals.toSorted((a, b) => a.turnMs - b.turnMs).map(({ rank }) => rank);
  for (const some of [byTurn, byTurn.slice(0, CUSTOMERS / 10)])
    expect(Math.abs(spearman(some))).toBeLessThan(FAR);
  const bins = Array<number>(BINS).fill(0);
  for (const { turnMs } of arrivals) bins[Math.floor(((turnMs - START_MS) / SPREAD_MS) * BINS)]!++;
  const each = CUSTOMERS / BINS;
  expect(bins.reduce((sum, count) => sum + (count - each) ** 2 / each, 0)).toBeLessThan(UNEVEN);
});
