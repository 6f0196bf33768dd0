import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Attempt } from '../../src/domain/order.ts';
import type { Decision } from '../../src/domain/outcome.ts';
import { inTransaction } from '../../src/store/postgres/pool.ts';
import { saleTable } from '../../src/store/postgres/sales.ts';
import { stockUnits } from '../../src/store/postgres/stock-units.ts';
import * as skipLocked from '../../src/strategies/postgres/skip-locked.ts';
import type { Strategy } from '../../src/strategies/strategy.ts';
import { attemptOf } from '../support/attempts.ts';
import { closePast, sellPast, statementsOf, strategyBench, tally } from '../support/postgres-strategy.ts';

const bench = strategyBench();

const lockRows = (saleId: number) => ({
  query: (client: { query(text: string, values: unknown[]): Promise<unknown> }) =>
    client.query('SELECT FROM stock_units WHERE sale_id = $1 AND order_id IS NULL FOR UPDATE', [saleId]),
});

async function rowsOf(saleId: number): Promise<{ free: number; taken: number }> {
  const { rows } = await bench.sql.query<{ free: number; taken: number }>(
    `SELECT count(*) FILTER (WHERE order_id IS NULL)::int AS free,
            count(*) FILTER (WHERE order_id IS NOT NULL)::int AS taken FROM stock_units WHERE sale_id = $1`,
    [saleId],
  );
  return rows[0]!;
}

async function opened(stock: number, store?: typeof bench.postgres) {
  const strategy = bench.start(skipLocked, store);
  const saleId = await bench.sale(stock);
  await stockUnits(bench.postgres).complete(saleId);
  return { strategy, saleId };
}

/** A customer who is answered busy asks again. */
async function untilFinal(strategy: Strategy, attempt: Attempt): Promise<Decision> {
  for (;;) {
    const outcome = await strategy.decide(attempt);
    if (outcome.kind !== 'busy') return outcome;
  }
}

describe('a sale with its rows', () => {
  it('sells with one statement, and assigns a row to the order', async () => {
    const { strategy, saleId } = await opened(5);
    await strategy.decide(attemptOf(saleId, 'first'));
    const sent = await statementsOf(() => strategy.decide(attemptOf(saleId, 'second')));
    expect(sent).toHaveLength(skipLocked.description.roundTrips);
    expect(await rowsOf(saleId)).toEqual({ free: 3, taken: 2 });
    expect(await bench.sold(saleId)).toBe(2);
  });

  it('does not wait for the holder of the first row', async () => {
    const { strategy, saleId } = await opened(2);
    const first = 'SELECT FROM stock_units WHERE sale_id = $1 ORDER BY unit LIMIT 1 FOR UPDATE';
    const outcome = await bench.during(
      (client) => client.query(first, [saleId]),
      () => strategy.decide(attemptOf(saleId, 'u')),
    );
    expect(outcome.kind).toBe('accepted');
  });

  it('sells a locked unit when its holder releases it', async () => {
    const { strategy, saleId } = await opened(2, bench.patient);
    const outcomes = await bench.during(lockRows(saleId).query, async (end) => {
      const reserving = ['a', 'b', 'c'].map((user) => strategy.decide(attemptOf(saleId, user)));
      await bench.waiters(3);
      await end('ROLLBACK');
      return Promise.all(reserving);
    });
    expect(tally(outcomes)).toEqual({ accepted: 2, 'sold-out': 1 });
    expect(await bench.sold(saleId)).toBe(2);
  });

  it('answers busy, not sold out, while every row stays locked', async () => {
    const { strategy, saleId } = await opened(2);
    const outcome = await bench.during(lockRows(saleId).query, () => strategy.decide(attemptOf(saleId, 'u')));
    expect(outcome).toEqual({ kind: 'busy', reason: 'lock-timeout' });
    expect(await rowsOf(saleId)).toEqual({ free: 2, taken: 0 }); // no rows were added
  });

  it('does not count a unit for the second order of one customer', async () => {
    const { strategy, saleId } = await opened(5, bench.patient);
    const faster = attemptOf(saleId, 'same');
    const outcome = await bench.during(
      (client) => sellPast(client, faster),
      async (end) => {
        const reserving = strategy.decide(attemptOf(saleId, 'same'));
        await bench.waiters(1);
        await end('COMMIT');
        return reserving;
      },
    );
    expect(outcome).toMatchObject({ kind: 'replayed', order: { orderId: faster.orderId } });
    expect(await bench.sold(saleId)).toBe(1);
    expect((await rowsOf(saleId)).taken).toBe(0);
  });
});

describe('missing rows', () => {
  it('are inserted once by the attempts that find none', async () => {
    const saleId = await bench.sale(40);
    const processes = [bench.start(skipLocked), bench.start(skipLocked)];
    const outcomes = await Promise.all(
      Array.from({ length: 60 }, (_, i) => untilFinal(processes[i % 2]!, attemptOf(saleId, `u${i}`))),
    );
    expect(tally(outcomes)).toEqual({ accepted: 40, 'sold-out': 20 });
    expect(await rowsOf(saleId)).toEqual({ free: 0, taken: 40 });
  });

  it('are inserted once by two concurrent processes', async () => {
    const saleId = await bench.sale(500);
    const units = stockUnits(bench.postgres);
    await Promise.all([units.complete(saleId), units.complete(saleId), units.complete(saleId)]);
    expect(await rowsOf(saleId)).toEqual({ free: 500, taken: 0 });
  });

  it('are detected when all other rows are taken', async () => {
    const { strategy, saleId } = await opened(2);
    await bench.sql.query('UPDATE sales SET stock = 5 WHERE id = $1', [saleId]);
    const outcomes = [];
    for (const user of 'abcdef') outcomes.push(await strategy.decide(attemptOf(saleId, user)));
    expect(outcomes.map(({ kind }) => kind)).toEqual([...Array(5).fill('accepted'), 'sold-out']);
  });

  it('are inserted when orders of another strategy are closed', async () => {
    const strategy = bench.start(skipLocked);
    const saleId = await bench.sale(3);
    const past = ['x', 'y'].map((user) => attemptOf(saleId, user));
    for (const attempt of past) await sellPast(bench.sql, attempt);
    expect((await strategy.decide(attemptOf(saleId, 'a'))).kind).toBe('accepted');
    expect(await rowsOf(saleId)).toEqual({ free: 0, taken: 1 });
    expect((await strategy.decide(attemptOf(saleId, 'b'))).kind).toBe('sold-out');
    for (const attempt of past) await closePast(bench.sql, attempt);
    for (const user of 'bc') expect((await strategy.decide(attemptOf(saleId, user))).kind).toBe('accepted');
    expect((await strategy.decide(attemptOf(saleId, 'd'))).kind).toBe('sold-out');
  });

  it("may take longer than an attempt's statement timeout; attempts are answered busy meanwhile", async () => {
    const strategy = bench.start(skipLocked);
    const saleId = await bench.sale(3);
    await bench.sql.query(`
      CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN IF NEW.sale_id = ${saleId} THEN PERFORM pg_sleep(1.4); END IF; RETURN NEW; END $$;
      CREATE TRIGGER slow BEFORE INSERT ON stock_units FOR EACH ROW EXECUTE FUNCTION slow();`);
    expect(await strategy.decide(attemptOf(saleId, 'u'))).toEqual({
      kind: 'busy',
      reason: 'units-are-being-made',
    });
    expect((await untilFinal(strategy, attemptOf(saleId, 'u'))).kind).toBe('accepted');
    await bench.sql.query('DROP TRIGGER slow ON stock_units');
  });

  it('are inserted with one statement, however many', async () => {
    const saleId = await bench.sale(20_000);
    const sent = await statementsOf(() => stockUnits(bench.postgres).complete(saleId));
    expect(sent.filter((text) => /insert into/i.test(text))).toHaveLength(1);
    expect(await rowsOf(saleId)).toEqual({ free: 20_000, taken: 0 });
  });
});

it('inserts bounded batches of rows, and sells all units', async () => {
  const saleId = await bench.sale(25);
  const units = stockUnits(bench.postgres, 10);
  await units.complete(saleId);
  expect(await rowsOf(saleId)).toEqual({ free: 10, taken: 0 });
  await inTransaction(bench.postgres.pool, async (client) => ({
    commit: await units.prepare(client, saleId, 5),
    value: await saleTable(bench.postgres).restock(saleId, 5, false, client),
  }));
  expect(await rowsOf(saleId)).toEqual({ free: 20, taken: 0 });
  const strategy = bench.start(skipLocked);
  const outcomes = await Promise.all(
    Array.from({ length: 35 }, (_, i) => untilFinal(strategy, attemptOf(saleId, `u${i}`))),
  );
  expect(tally(outcomes)).toEqual({ accepted: 30, 'sold-out': 5 });
});

describe('rows in excess', () => {
  it('sell no unit that another strategy has sold', async () => {
    const { strategy, saleId } = await opened(4);
    for (const user of 'xyz') await sellPast(bench.sql, attemptOf(saleId, user));
    const outcomes = await Promise.all([...'abcdef'].map((user) => strategy.decide(attemptOf(saleId, user))));
    expect(tally(outcomes)).toEqual({ accepted: 1, 'sold-out': 5 });
    expect(await bench.sold(saleId)).toBe(4);
    // A rejected attempt is answered before it gives back the row that it had locked.
    const inTransactions = `SELECT FROM pg_stat_activity WHERE datname = current_database() AND backend_xid IS NOT NULL`;
    await expect.poll(() => bench.sql.query(inTransactions)).toMatchObject({ rowCount: 0 });
    await stockUnits(bench.postgres).complete(saleId);
    expect(await rowsOf(saleId)).toEqual({ free: 0, taken: 1 });
  });

  it('cost an attempt on a sold-out sale no write', async () => {
    const { strategy, saleId } = await opened(1);
    await sellPast(bench.sql, attemptOf(saleId, 'x'));
    const sent = await statementsOf(() => strategy.decide(attemptOf(saleId, 'u')));
    expect(sent).toEqual(['take-unit', 'read-sale-and-orders']);
  });
});

describe('restock', () => {
  it('adds and cuts free rows with the stock, and rejects a cut below sold', async () => {
    const { strategy, saleId } = await opened(3);
    await strategy.decide(attemptOf(saleId, 'a'));
    expect(await strategy.restock(saleId, 4)).toMatchObject({ stock: 7, sold: 1, remaining: 6 });
    expect(await rowsOf(saleId)).toEqual({ free: 6, taken: 1 });
    expect(await strategy.restock(saleId, -5)).toMatchObject({ stock: 2, remaining: 1 });
    expect(await rowsOf(saleId)).toEqual({ free: 1, taken: 1 });
    expect(await strategy.restock(saleId, -2)).toBe('below-sold');
    expect(await strategy.restock(saleId, 2_147_483_647)).toBe('below-sold');
    expect(await strategy.restock(999_999, 1)).toBeNull();
    expect(await rowsOf(saleId)).toEqual({ free: 1, taken: 1 });
  });

  it('skips rows that an attempt has locked', async () => {
    const { strategy, saleId } = await opened(3);
    await bench.during(lockRows(saleId).query, async () => {
      expect(await strategy.restock(saleId, -2)).toMatchObject({ stock: 1 });
    });
    const outcomes = await Promise.all([...'abc'].map((user) => strategy.decide(attemptOf(saleId, user))));
    expect(tally(outcomes)).toEqual({ accepted: 1, 'sold-out': 2 });
  });

  it('rolls back when the last unit is sold meanwhile', async () => {
    const { strategy, saleId } = await opened(2, bench.patient);
    const result = await bench.during(
      (client) => sellPast(client, attemptOf(saleId, 'faster')),
      async (end) => {
        const cutting = strategy.restock(saleId, -2);
        await bench.waiters(1);
        await end('COMMIT');
        return cutting;
      },
    );
    expect(result).toBe('below-sold');
    expect(await rowsOf(saleId)).toEqual({ free: 2, taken: 0 });
    expect((await strategy.decide(attemptOf(saleId, 'b'))).kind).toBe('accepted');
  });
});

const step = fc.oneof(
  { weight: 5, arbitrary: fc.record({ kind: fc.constant('buy' as const), user: fc.nat(12) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('past' as const), user: fc.nat(12) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('close' as const), which: fc.nat() }) },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('restock' as const), units: fc.integer({ min: -4, max: 4 }) }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('stock' as const), units: fc.integer({ min: 0, max: 4 }) }),
  },
);

it('sells what a single counter would sell, beside concurrent sales, cancellations and restocks', async () => {
  const strategy = bench.start(skipLocked);
  await fc.assert(
    fc.asyncProperty(fc.nat(8), fc.array(step, { maxLength: 30 }), async (stock, steps) => {
      const saleId = await bench.sale(stock);
      let free = stock;
      const held = new Map<string, Attempt>();
      for (const { kind, ...by } of steps) {
        const { user = 0, which = 0, units = 0 } = by as { user?: number; which?: number; units?: number };
        const attempt = attemptOf(saleId, `u${user}`);
        if (kind === 'buy') {
          const expected = held.has(attempt.userId) ? 'replayed' : free > 0 ? 'accepted' : 'sold-out';
          expect((await strategy.decide(attempt)).kind).toBe(expected);
          if (expected !== 'accepted') continue;
          held.set(attempt.userId, attempt);
          free--;
        } else if (kind === 'past' && free > 0 && !held.has(attempt.userId)) {
          await sellPast(bench.sql, attempt);
          held.set(attempt.userId, attempt);
          free--;
        } else if (kind === 'close' && held.size > 0) {
          const [userId, order] = [...held][which % held.size]!;
          await closePast(bench.sql, order);
          held.delete(userId);
          free++;
        } else if (kind === 'restock' && units !== 0) {
          const possible = free + units >= 0;
          expect((await strategy.restock(saleId, units)) === 'below-sold').toBe(!possible);
          if (possible) free += units;
        } else if (kind === 'stock') {
          await bench.sql.query('UPDATE sales SET stock = stock + $2 WHERE id = $1', [saleId, units]);
          free += units;
        }
      }
      // Nothing is stranded: strangers take every unit that is left, and not one more.
      for (let i = 0; i <= free; i++) {
        const { kind } = await strategy.decide(attemptOf(saleId, `last${i}`));
        expect(kind).toBe(i < free ? 'accepted' : 'sold-out');
      }
    }),
    { numRuns: 40 },
  );
});
