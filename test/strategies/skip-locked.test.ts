import type pg from 'pg';
import { expect, it } from 'vitest';
import type { Attempt } from '../../src/domain/order.ts';
import type { Decision } from '../../src/domain/outcome.ts';
import { inTransaction } from '../../src/store/postgres/pool.ts';
import { saleTable } from '../../src/store/postgres/sales.ts';
import { stockUnits } from '../../src/store/postgres/stock-units.ts';
import * as skipLocked from '../../src/strategies/postgres/skip-locked.ts';
import type { Strategy } from '../../src/strategies/strategy.ts';
import { attemptOf } from '../support/attempts.ts';
import { sellPast, strategyBench, tally } from '../support/postgres-strategy.ts';

const bench = strategyBench();

const lockRows = (saleId: number) => (client: Pick<pg.PoolClient, 'query'>) =>
  client.query('SELECT FROM stock_units WHERE sale_id = $1 AND order_id IS NULL FOR UPDATE', [saleId]);

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

it('does not wait for the holder of the first row', async () => {
  const { strategy, saleId } = await opened(2);
  const first = 'SELECT FROM stock_units WHERE sale_id = $1 ORDER BY unit LIMIT 1 FOR UPDATE';
  const outcome = await bench.during(
    (client) => client.query(first, [saleId]),
    () => strategy.decide(attemptOf(saleId, 'u')),
  );
  expect(outcome.kind).toBe('accepted');
});

it('answers busy, not sold out, while every row stays locked', async () => {
  const { strategy, saleId } = await opened(2);
  const outcome = await bench.during(lockRows(saleId), () => strategy.decide(attemptOf(saleId, 'u')));
  expect(outcome).toEqual({ kind: 'busy', reason: 'lock-timeout' });
  expect(await rowsOf(saleId)).toEqual({ free: 2, taken: 0 }); // no rows were added
});

it("missing rows may take longer than an attempt's statement timeout; attempts are answered busy meanwhile", async () => {
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

it('inserts bounded batches of rows, and sells all units', async () => {
  const saleId = await bench.sale(25);
  const units = stockUnits(bench.postgres, 10);
  await units.complete(saleId);
  expect(await rowsOf(saleId)).toEqual({ free: 10, taken: 0 });
  await inTransaction(bench.postgres.pool, async (client) => ({
    commit: await units.prepare(client, saleId, 5),
    value: await saleTable(bench.postgres, 'USD').restock(saleId, 5, false, client),
  }));
  expect(await rowsOf(saleId)).toEqual({ free: 20, taken: 0 });
  const strategy = bench.start(skipLocked);
  const outcomes = await Promise.all(
    Array.from({ length: 35 }, (_, i) => untilFinal(strategy, attemptOf(saleId, `u${i}`))),
  );
  expect(tally(outcomes)).toEqual({ accepted: 30, 'sold-out': 5 });
});

it('rows in excess sell no unit that another strategy has sold', async () => {
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

it('a restock skips rows that an attempt has locked', async () => {
  const { strategy, saleId } = await opened(3);
  await bench.during(lockRows(saleId), async () => {
    expect(await strategy.restock(saleId, -2)).toMatchObject({ stock: 1 });
  });
  const outcomes = await Promise.all([...'abc'].map((user) => strategy.decide(attemptOf(saleId, user))));
  expect(tally(outcomes)).toEqual({ accepted: 1, 'sold-out': 2 });
});
