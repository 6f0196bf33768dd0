/**
 * `unique-key`: no lock, and no read before the insert. Unique keys make the order and its points idempotent. The conditional
 * deduction comes last, so the hot row is locked only from there to the commit. When it finds no unit, the whole transaction is
 * rolled back. The price: even a rejected attempt writes.
 */
import type { StrategyDescription } from '../../domain/guarantees.ts';
import type { Attempt } from '../../domain/order.ts';
import { accepted } from '../../domain/outcome.ts';
import { inTransaction } from '../../store/postgres/pool.ts';
import { countSoldIfFree, insertOrder } from '../../store/postgres/purchases.ts';
import type { Tried } from '../kit/placing.ts';
import { postgresStrategy } from '../kit/postgres-strategy.ts';
import { ALL_GUARANTEES, type Strategy, type StrategyContext } from '../strategy.ts';

export const description: StrategyDescription = {
  name: 'unique-key',
  summary: 'No lock: unique keys make order and points idempotent; the conditional deduction comes last.',
  store: 'postgres',
  usesLock: false,
  roundTrips: 4,
  guarantees: ALL_GUARANTEES,
};

export function create(context: StrategyContext): Strategy {
  const place = (attempt: Attempt) =>
    inTransaction<Tried>(context.postgres.pool, async (client) => {
      const inserted = await insertOrder(client, attempt, context.paymentWindowS);
      const sold = inserted && (await countSoldIfFree(client, attempt));
      return { commit: sold, value: sold ? accepted(attempt) : null };
    });
  return postgresStrategy(context, description, place, 'customer');
}
