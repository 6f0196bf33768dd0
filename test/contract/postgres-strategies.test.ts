/** Strategies that decide in Postgres, without a service: on one pool, beside connections that lock, sell and close. */
import { describe, expect, it } from 'vitest';
import { strategies } from '../../src/strategies/registry.ts';
import type { Strategy } from '../../src/strategies/strategy.ts';
import { attemptOf } from '../support/attempts.ts';
import { closePast, sellPast, statementsOf, strategyBench, tally } from '../support/postgres-strategy.ts';

const bench = strategyBench({ withCheck: false });
const safe = [...strategies].filter(
  ([, { description }]) => description.store === 'postgres' && description.guarantees.neverOversells,
);
/** Strategies whose attempts wait for the transaction that holds the row of the sale. */
const waits = ['for-update', 'for-update-prisma', 'conditional-update', 'group-commit'];

describe.each(safe)('%s', (name, entry) => {
  type Start = Parameters<typeof bench.start>;
  const start = (store?: Start[1]) => bench.start(entry as unknown as Start[0], store) as Strategy;

  it('sends as many statements as its description says', async () => {
    const strategy = start();
    const saleId = await bench.sale(3);
    await strategy.decide(attemptOf(saleId, 'first')); // the pool connects
    const sent = await statementsOf(() => strategy.decide(attemptOf(saleId, 'second')));
    expect(sent).toHaveLength(entry.description.roundTrips as number);
  });

  it('finds the order of an attempt whose answer was lost', async () => {
    const strategy = start();
    const saleId = await bench.sale(3);
    const attempt = attemptOf(saleId, 'u');
    const first = await strategy.decide(attempt);
    expect(first.kind).toBe('accepted');
    expect(await strategy.decide(attempt)).toMatchObject({ order: { orderId: attempt.orderId } });
    expect(await bench.sold(saleId)).toBe(1);
  });

  it('counts as many units as it inserts orders, in two processes, while other units are released', async () => {
    const processes = [start(), start()];
    const saleId = await bench.sale(30);
    const closing: Promise<void>[] = [];
    const outcomes = await Promise.all(
      Array.from({ length: 200 }, async (_, i) => {
        const attempt = attemptOf(saleId, `u${i % 80}`);
        const outcome = await processes[i % 2]!.decide(attempt);
        if (outcome.kind === 'accepted' && i % 3 === 0) closing.push(closePast(bench.sql, attempt));
        return outcome;
      }),
    );
    await Promise.all(closing);
    expect(
      Object.keys(tally(outcomes)).filter((kind) => !/accepted|replayed|sold-out|busy/.test(kind)),
    ).toEqual([]);
    const left = 30 - (await bench.sold(saleId));
    for (let i = 0; i <= left; i++) {
      const { kind } = await processes[0]!.decide(attemptOf(saleId, `late${i}`));
      expect(kind).toBe(i < left ? 'accepted' : 'sold-out');
    }
  });

  if (!waits.includes(name)) return;

  it.each(['COMMIT', 'ROLLBACK'] as const)('reads the row again after the %s of its holder', async (how) => {
    const strategy = start(bench.patient);
    const saleId = await bench.sale(1);
    const outcome = await bench.during(
      (client) => sellPast(client, attemptOf(saleId, 'faster')),
      async (end) => {
        const reserving = strategy.decide(attemptOf(saleId, 'slower'));
        await bench.waiters(1);
        await end(how);
        return reserving;
      },
    );
    expect(outcome.kind).toBe(how === 'COMMIT' ? 'sold-out' : 'accepted');
    expect(await bench.sold(saleId)).toBe(1);
  });

  it("rolls the count back with a customer's second order", async () => {
    const strategy = start(bench.patient);
    const saleId = await bench.sale(5);
    const faster = attemptOf(saleId, 'same');
    const outcome = await bench.during(
      (client) => sellPast(client, faster),
      async (end) => {
        // Started before the first order is visible: only the unique index has it.
        const reserving = strategy.decide(attemptOf(saleId, 'same'));
        await bench.waiters(1);
        await end('COMMIT');
        return reserving;
      },
    );
    expect(outcome).toMatchObject({ kind: 'replayed', order: { orderId: faster.orderId } });
    expect(await bench.sold(saleId)).toBe(1);
  });
});
