/**
 * `for-update`: lock the sale's row with `SELECT … FOR UPDATE`, read, insert the order, count it, commit. The row is locked from the
 * first statement to the commit, so attempts on one sale run one after the other.
 */
import type { StrategyDescription } from '../../domain/guarantees.ts';
import type { PlacedOrderColumns } from '../../domain/order.ts';
import { accepted } from '../../domain/outcome.ts';
import { inTransaction } from '../../store/postgres/pool.ts';
import {
  countSold,
  findActive,
  insertNewOrder,
  readSale,
  type SaleState,
} from '../../store/postgres/purchases.ts';
import { existing, type Tried } from '../kit/placing.ts';
import { postgresStrategy, rejectionOf } from '../kit/postgres-strategy.ts';
import { ALL_GUARANTEES, type Strategy, type StrategyContext } from '../strategy.ts';

export const description: StrategyDescription = {
  name: 'for-update',
  summary: 'SELECT … FOR UPDATE, check, insert, deduct, in one transaction.',
  store: 'postgres',
  usesLock: false,
  roundTrips: 2,
  guarantees: ALL_GUARANTEES,
};

export function create(context: StrategyContext): Strategy {
  return postgresStrategy(context, description, (attempt) =>
    inTransaction<Tried, [SaleState | null, PlacedOrderColumns | null]>(
      context.postgres.pool,
      (client, [sale, order]) => {
        if (sale === null) return { commit: false, value: { kind: 'unknown-sale' } };
        if (order !== null) return { commit: false, value: existing(attempt, order) };
        const rejection = rejectionOf(sale, attempt);
        if (rejection !== null) return { commit: false, value: rejection };
        const sent = [insertNewOrder(client, attempt, context.paymentWindowS), countSold(client, attempt)];
        return { commit: true, value: accepted(attempt), sent };
      },
      (client) => Promise.all([readSale(client, attempt.saleId, true), findActive(client, attempt)]),
    ),
  );
}
