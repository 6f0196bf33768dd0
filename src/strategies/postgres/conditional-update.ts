/**
 * `conditional-update`: one statement. It counts a unit if one is free (`UPDATE … WHERE sold < stock`) and inserts the order and
 * its points from what that UPDATE returns: no unit without an order, and no order without a unit.
 *
 *   the statement ──▶ sold: committed with its answer
 *     ├─ nothing counted ──▶ a read of the sale and the customer says why: rejected, or a repeat
 *     └─ another attempt of the customer was faster: the unique index fails the whole statement ──▶ a read finds its order
 *
 * A repeat fails the condition before it touches the row, unless its first order is younger than the statement.
 */
import type { StrategyDescription } from '../../domain/guarantees.ts';
import { accepted } from '../../domain/outcome.ts';
import { insertIf, isOpen, placeOne } from '../../store/postgres/insert-orders.ts';
import { ACTIVE } from '../../store/postgres/orders.ts';
import { postgresStrategy } from '../kit/postgres-strategy.ts';
import { ALL_GUARANTEES, type Strategy, type StrategyContext } from '../strategy.ts';

export const description: StrategyDescription = {
  name: 'conditional-update',
  summary: 'One statement: UPDATE … WHERE sold < stock RETURNING, with the order and its points.',
  store: 'postgres',
  usesLock: false,
  roundTrips: 1,
  guarantees: ALL_GUARANTEES,
};

const SELL_IF_FREE = insertIf(
  'sell-if-free',
  `sold + $4::int <= stock AND $4 <= max_per_order AND ${isOpen('$7::boolean')}
    AND NOT EXISTS (SELECT FROM orders WHERE sale_id = $2 AND user_id = $3 AND ${ACTIVE})`,
);

export function create(context: StrategyContext): Strategy {
  const { postgres } = context;
  return postgresStrategy(context, description, async (attempt) => {
    const placed = await placeOne(postgres, SELL_IF_FREE, attempt, context.paymentWindowS, [
      attempt.isEarly ?? false,
    ]);
    return placed === true ? accepted(attempt) : placed || null;
  });
}
