/**
 * `group-commit`: attempts that arrive together are decided by one statement, which is one commit. It locks the rows of their
 * sales, gives the free units to the first arrivals, inserts their orders and points, and counts them; an order that asks for more than are left
 * at its turn gets none (docs/explanation/strategies.md, "group-commit").
 *
 * What was not placed is explained by one read, which alone can conclude "sold out". See kit/placing-batches.ts.
 */
import { limits } from '../../config/limits.ts';
import type { StrategyDescription } from '../../domain/guarantees.ts';
import type { Attempt } from '../../domain/order.ts';
import { insertUpToStock, isOpen } from '../../store/postgres/insert-orders.ts';
import { placingBatches } from '../kit/placing-batches.ts';
import { rejectionOf, strategyOf } from '../kit/postgres-strategy.ts';
import { ALL_GUARANTEES, type Strategy, type StrategyContext } from '../strategy.ts';

export const description: StrategyDescription = {
  name: 'group-commit',
  summary: 'Attempts gathered in the process, one statement and one commit for the batch.',
  store: 'postgres',
  usesLock: false,
  roundTrips: 1,
  guarantees: ALL_GUARANTEES,
};

const OPEN = { condition: `sold < stock AND ${isOpen('$7::boolean[] IS NOT NULL')}`, isLimited: true };
const OF_SALE = insertUpToStock('place-batch-of-sale', { ...OPEN, skipLocked: false });
const UNLOCKED = insertUpToStock('place-batch', { ...OPEN, skipLocked: true });

const isEarly = (attempt: Attempt): boolean => attempt.isEarly === true;

export function create(context: StrategyContext): Strategy {
  const batches = placingBatches<Attempt>(context.postgres, {
    name: 'attempts',
    shared: UNLOCKED,
    first: OF_SALE,
    later: OF_SALE,
    paymentWindowS: context.paymentWindowS,
    valuesOf: (attempts) => [attempts.some(isEarly) ? attempts.map(isEarly) : null],
    rejectionOf,
    reasonOf: (cause) => cause,
    onBatch: context.onBatch,
  });
  const decide = (attempt: Attempt) => batches.submit(attempt, performance.now() + limits.commitWaitMs);
  return { ...strategyOf(context, description, decide), maxBatch: limits.commitBatchSize };
}
