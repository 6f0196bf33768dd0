import { setImmediate } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { limits } from '../../src/config/limits.ts';
import type { Attempt } from '../../src/domain/order.ts';
import * as groupCommit from '../../src/strategies/postgres/group-commit.ts';
import { attemptOf } from '../support/attempts.ts';
import { sellPast, statementsOf, strategyBench, tally } from '../support/postgres-strategy.ts';

const bench = strategyBench({ withCheck: false });

const attempts = (saleId: number, count: number, prefix = 'u') =>
  Array.from({ length: count }, (_, i) => attemptOf(saleId, `${prefix}${i}`));

/** Reserves with as many batches of the sale in flight as may be, the first of which waits for the row, so that all others are gathered. */
async function gathered(saleId: number, first: readonly Attempt[], third: readonly Attempt[]) {
  const strategy = bench.start(groupCommit, bench.patient);
  return bench.during(
    (client) => client.query('SELECT FROM sales WHERE id = $1 FOR UPDATE', [saleId]),
    async (end) => {
      const ahead = [strategy.decide(first[0]!)];
      await bench.waiters(1); // from now on the sale has batches; they share a connection
      for (const attempt of first.slice(1)) {
        ahead.push(strategy.decide(attempt));
        await setImmediate(); // the next is another batch
      }
      const batch = third.map((attempt) =>
        strategy.decide(attempt).catch(() => ({ kind: 'threw' as const })),
      );
      await end('ROLLBACK');
      await Promise.all(ahead);
      return Promise.all(batch);
    },
  );
}

/** As many as batches may be in flight: those behind them are gathered. */
const AHEAD = limits.commitInFlight;

it('rejects one member of fifty, and no other', async () => {
  await bench.sql.query(`
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN IF NEW.user_id = 'refused' THEN RAISE EXCEPTION 'refused for the test'; END IF; RETURN NEW; END $$;
    CREATE TRIGGER refuse BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION refuse();`);
  const saleId = await bench.sale(100);
  const members = attempts(saleId, 50);
  members[23] = attemptOf(saleId, 'refused');
  members[31] = { ...attemptOf(saleId, 'odd'), orderId: 'no uuid' }; // a defect
  const batch = await gathered(saleId, attempts(saleId, AHEAD, 'ahead'), members);
  await bench.sql.query('DROP TRIGGER refuse ON orders');
  const others: Record<number, string> = { 23: 'busy', 31: 'threw' };
  for (const [i, { kind }] of batch.entries()) expect(kind, String(i)).toBe(others[i] ?? 'accepted');
  expect(await bench.sold(saleId)).toBe(48 + AHEAD);
});

it('does not make a sale wait for the row of another one', async () => {
  const strategy = bench.start(groupCommit, bench.patient);
  const [held, free] = [await bench.sale(100), await bench.sale(100)];
  await bench.during(
    (client) => client.query('SELECT FROM sales WHERE id = $1 FOR UPDATE', [held]),
    async (end) => {
      const waiting = attempts(held, 20).map((attempt) => strategy.decide(attempt));
      const sent = await statementsOf(async () => {
        const going = await Promise.all(attempts(free, 20).map((attempt) => strategy.decide(attempt)));
        expect(tally(going)).toEqual({ accepted: 20 });
      });
      expect(sent.length, 'statements').toBeLessThan(20);
      await end('ROLLBACK');
      expect(tally(await Promise.all(waiting))).toEqual({ accepted: 20 });
    },
  );
});

it('has one batch of a sale in progress while another process sells it', async () => {
  const strategy = bench.start(groupCommit, bench.patient);
  const saleId = await bench.sale(100);
  /** The other process has the row, and sells a unit; meanwhile these are decided. */
  const sell = (users: readonly Attempt[]) =>
    bench.during(
      (client) => sellPast(client, attemptOf(saleId, `past-${users[0]!.userId}`)),
      async (end) => {
        const selling = [strategy.decide(users[0]!)];
        await bench.waiters(1);
        for (const attempt of users.slice(1)) {
          selling.push(strategy.decide(attempt));
          await setImmediate(); // the next may be another batch
        }
        await end('COMMIT');
        expect(tally(await Promise.all(selling))).toEqual({ accepted: users.length });
      },
    );
  for (const prefix of ['first', 'second']) await sell(attempts(saleId, 1, prefix));
  await sell(attempts(saleId, 40));
  const { rows } = await bench.sql.query<{ transactions: number }>(
    `SELECT count(DISTINCT xmin::text)::int AS transactions FROM orders WHERE sale_id = $1 AND user_id LIKE 'u%'`,
    [saleId],
  );
  expect(rows[0]!.transactions).toBe(2); // the one that waited, and all others
});
