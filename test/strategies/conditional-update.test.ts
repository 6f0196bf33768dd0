import { expect, it } from 'vitest';
import * as conditionalUpdate from '../../src/strategies/postgres/conditional-update.ts';
import {
  attemptOf,
  closePast,
  sellPast,
  statementsOf,
  strategyBench,
  tally,
} from '../support/postgres-strategy.ts';

const bench = strategyBench({ withCheck: false });

it('sells with one statement', async () => {
  const strategy = bench.start(conditionalUpdate);
  const saleId = await bench.sale(3);
  await strategy.reserve(attemptOf(saleId, 'first')); // the pool connects
  const sent = await statementsOf(() => strategy.reserve(attemptOf(saleId, 'second')));
  expect(sent).toHaveLength(conditionalUpdate.description.roundTrips);
});

it('finds the order of an attempt whose answer was lost', async () => {
  const strategy = bench.start(conditionalUpdate);
  const saleId = await bench.sale(3);
  const attempt = attemptOf(saleId, 'u');
  const first = await strategy.reserve(attempt);
  expect(first.kind).toBe('accepted');
  expect(await strategy.reserve(attempt)).toEqual(first);
  expect(await bench.sold(saleId)).toBe(1);
});

it.each(['COMMIT', 'ROLLBACK'] as const)(
  'looks again at the last unit after the %s of who had the row',
  async (how) => {
    const strategy = bench.start(conditionalUpdate);
    const saleId = await bench.sale(1);
    const outcome = await bench.during(
      (client) => sellPast(client, attemptOf(saleId, 'faster')),
      async (end) => {
        const reserving = strategy.reserve(attemptOf(saleId, 'slower'));
        await bench.waiters(1);
        await end(how);
        return reserving;
      },
    );
    expect(outcome.kind).toBe(how === 'COMMIT' ? 'sold-out' : 'accepted');
    expect(await bench.sold(saleId)).toBe(1);
  },
);

it("rolls the count back with a customer's second order", async () => {
  const strategy = bench.start(conditionalUpdate);
  const saleId = await bench.sale(5);
  const faster = attemptOf(saleId, 'same');
  const outcome = await bench.during(
    (client) => sellPast(client, faster),
    async (end) => {
      // Begun before the first order could be seen: only the unique index knows.
      const reserving = strategy.reserve(attemptOf(saleId, 'same'));
      await bench.waiters(1);
      await end('COMMIT');
      return reserving;
    },
  );
  expect(outcome).toMatchObject({ kind: 'replayed', order: { orderId: faster.orderId } });
  expect(await bench.sold(saleId)).toBe(1);
});

it('counts as many units as it inserts orders, while other units are released', async () => {
  const strategy = bench.start(conditionalUpdate);
  const saleId = await bench.sale(30);
  const closing: Promise<void>[] = [];
  const outcomes = await Promise.all(
    Array.from({ length: 200 }, async (_, i) => {
      const attempt = attemptOf(saleId, `u${i % 80}`);
      const outcome = await strategy.reserve(attempt);
      if (outcome.kind === 'accepted' && i % 3 === 0) closing.push(closePast(bench.sql, attempt));
      return outcome;
    }),
  );
  await Promise.all(closing);
  expect(Object.keys(tally(outcomes)).filter((kind) => !/accepted|replayed|sold-out/.test(kind))).toEqual([]);
  const sold = await bench.sold(saleId);
  const rest = await Promise.all(
    Array.from({ length: 40 }, (_, i) => strategy.reserve(attemptOf(saleId, `late${i}`))),
  );
  expect(tally(rest).accepted ?? 0).toBe(30 - sold);
});
