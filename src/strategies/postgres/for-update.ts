/**
 * `for-update`: lock the sale's row with `SELECT … FOR UPDATE`, read, insert the order, count it, commit. The row is locked from the
 * first statement to the commit, so attempts on one sale run one after the other.
 */
import type { StrategyDescription } from '../../domain/guarantees.ts';
import { inTransaction } from '../../store/postgres/pool.ts';
import { countSold, findActive, insertOrder, readSale } from '../../store/postgres/purchases.ts';
import {
  accepted,
  existing,
  postgresStrategy,
  RETRY,
  rejectionOf,
  type TryResult,
} from '../kit/postgres-strategy.ts';
import { ALL_GUARANTEES, type Strategy, type StrategyContext } from '../strategy.ts';

export const description: StrategyDescription = {
  name: 'for-update',
  summary: 'SELECT … FOR UPDATE, check, insert, deduct, in one transaction.',
  store: 'postgres',
  usesLock: false,
  roundTrips: 6,
  guarantees: ALL_GUARANTEES,
};

export function create(context: StrategyContext): Strategy {
  return postgresStrategy(context, description, (attempt) =>
    inTransaction<TryResult>(context.postgres.pool, async (client) => {
      const sale = await readSale(client, attempt.saleId, true);
      if (sale === null) return { commit: false, value: { kind: 'unknown-sale' } };
      const order = await findActive(client, attempt);
      if (order !== null) return { commit: false, value: existing(attempt, order) };
      const rejection = rejectionOf(sale, attempt.quantity);
      if (rejection !== null) return { commit: false, value: rejection };
      if (!(await insertOrder(client, attempt, context.paymentWindowS)))
        return { commit: false, value: RETRY };
      await countSold(client, attempt);
      return { commit: true, value: accepted(attempt) };
    }),
  );
}
