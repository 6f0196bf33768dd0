/**
 * `advisory-lock`: `pg_advisory_xact_lock` on the sale's id, then read, insert the order, count it, commit. Attempts on one sale
 * run one after the other, as with for-update, but the row itself stays free for others until it is counted.
 *
 * The lock is a separate statement: under READ COMMITTED a statement sees what was committed before it began, and a statement
 * that waits for the lock began too early. Postgres releases the lock after the commit is visible. The lock does not exclude a
 * strategy that does not take it; the CHECK and the unique index do.
 */
import type { StrategyDescription } from '../../domain/guarantees.ts';
import type { Attempt } from '../../domain/order.ts';
import { accepted } from '../../domain/outcome.ts';
import { inTransaction } from '../../store/postgres/pool.ts';
import { countSoldIfFree, insertOrder, lockNumber } from '../../store/postgres/purchases.ts';
import { RETRY, type Tried } from '../kit/placing.ts';
import { postgresStrategy, readAnswer } from '../kit/postgres-strategy.ts';
import { ALL_GUARANTEES, type Strategy, type StrategyContext } from '../strategy.ts';

export const description: StrategyDescription = {
  name: 'advisory-lock',
  summary: 'pg_advisory_xact_lock on the sale, check, insert, deduct, in one transaction.',
  store: 'postgres',
  usesLock: false,
  roundTrips: 6,
  guarantees: ALL_GUARANTEES,
};

export function create(context: StrategyContext): Strategy {
  const place = (attempt: Attempt) =>
    inTransaction<Tried>(context.postgres.pool, async (client) => {
      await lockNumber(client, 'attempts', attempt.saleId);
      const { answer } = await readAnswer(client, attempt);
      if (answer !== null) return { commit: false, value: answer };
      if (!(await insertOrder(client, attempt, context.paymentWindowS)))
        return { commit: false, value: RETRY };
      // The sale's row is not locked before: it may have been paused since.
      const sold = await countSoldIfFree(client, attempt);
      return sold ? { commit: true, value: accepted(attempt) } : { commit: false, value: RETRY };
    });
  return postgresStrategy(context, description, place, 'customer');
}
