/**
 * `group-commit`: attempts that arrive together are decided by one statement, which is one commit. It locks the rows of their
 * sales, gives the free units to the first arrivals, inserts their orders and points, and counts them. An order that asks for
 * more units than are left at its turn gets none, and those behind it may still fit: it could not be served later in this sale than now,
 * unless units return, and waiting for it would leave units unsold in front of customers who want them.
 *
 *   attempt ──▶ shared batch ──▶ placed ──▶ accepted, committed with the answer
 *      │                          └─ left: the row is locked, or no unit was given ──▶ batch of the sale
 *      └─ its sale has a batch, or fills a good part of one ──▶ batch of the sale
 *
 *   batch of the sale ──▶ placed ──▶ accepted, committed with the answer
 *                          └─ not placed ──▶ one read for all of these: rejected, or a repeat
 *                                              └─ a unit is free ──▶ retried with the batch's others
 *
 * A shared batch holds attempts on any sales, so that many sales with few attempts each commit together. It skips sales whose rows are
 * locked, and whoever inserts an order has that row: it waits for neither. A batch of a sale waits, and delays no other sale.
 *
 * A customer's second attempt in a batch hits the unique index, and so does an attempt whose first reply was lost with the
 * connection; the read finds their orders. Only the read can conclude "sold out". A batch that is rejected because of a member
 * is split in halves.
 */
import { SHARED, sharedBatches } from '../../concurrency/shared-batches.ts';
import { limits } from '../../config/limits.ts';
import type { StrategyDescription } from '../../domain/guarantees.ts';
import type { Attempt } from '../../domain/order.ts';
import type { Step, Unanswered } from '../../domain/outcome.ts';
import { classifyPostgresError, isRowError } from '../../store/failures/postgres.ts';
import { IS_OPEN, insertUpToStock, type Placed, placeMany } from '../../store/postgres/insert-orders.ts';
import { placeInRounds } from '../../store/postgres/place-in-rounds.ts';
import { sharedConnections } from '../../store/postgres/pool.ts';
import { readSaleAndOrders } from '../../store/postgres/purchases.ts';
import { accepted, outcomeOf, postgresStrategy } from '../kit/postgres-strategy.ts';
import { ALL_GUARANTEES, type Strategy, type StrategyContext } from '../strategy.ts';

export const description: StrategyDescription = {
  name: 'group-commit',
  summary: 'Attempts gathered in the process, one statement and one commit for the batch.',
  store: 'postgres',
  usesLock: false,
  roundTrips: 1,
  guarantees: ALL_GUARANTEES,
};

const OPEN = { condition: `sold < stock AND ${IS_OPEN}`, isLimited: true };
const OF_SALE = insertUpToStock('place-batch-of-sale', { ...OPEN, skipLocked: false });
const UNLOCKED = insertUpToStock('place-batch', { ...OPEN, skipLocked: true });

type Place = (key: number, attempts: readonly Attempt[]) => Promise<Placed | Unanswered>;

export function create(context: StrategyContext): Strategy {
  const connect = sharedConnections(context.postgres.pool);

  const place: Place = (key, attempts) => {
    const batch = { connect: () => connect(key), attempts };
    return placeMany(context.postgres, key === SHARED ? UNLOCKED : OF_SALE, batch, context.paymentWindowS);
  };
  const { submit } = sharedBatches<Attempt, Step>({
    name: 'attempts',
    keyOf: ({ saleId }) => saleId,
    work: (key, batch, answer) =>
      key === SHARED ? decideShared(place, batch, answer) : decideOfSale(context, place, key, batch, answer),
    maxBatch: limits.commitBatchSize,
    leastBatch: limits.leastBatch,
    inFlight: limits.commitInFlight,
    maxQueued: limits.commitQueue,
    waitMs: limits.commitWaitMs,
    onBatch: context.onBatch,
    rejected: (reason) => ({ kind: 'busy', reason }),
    isMemberError,
  });
  const decide = (attempt: Attempt) => submit(attempt, performance.now() + limits.commitWaitMs);
  return { ...postgresStrategy(context, description, decide), maxBatch: limits.commitBatchSize };
}

async function decideShared(
  place: Place,
  batch: readonly Attempt[],
  answer: (attempt: Attempt, result: Step) => void,
): Promise<void> {
  const placed = await place(SHARED, batch);
  for (const attempt of batch)
    if (placed.kind !== 'placed') answer(attempt, placed);
    else if (placed.has(attempt.orderId)) answer(attempt, accepted(attempt));
}

async function decideOfSale(
  { postgres }: StrategyContext,
  place: Place,
  saleId: number,
  batch: readonly Attempt[],
  answer: (attempt: Attempt, result: Step) => void,
): Promise<void> {
  const left = await placeInRounds(batch, {
    async place(attempts) {
      const placed = await place(saleId, attempts);
      if (placed.kind === 'placed') return placed;
      for (const attempt of attempts) answer(attempt, placed);
      return 'over';
    },
    orderIdOf: ({ orderId }) => orderId,
    inserted: (attempt) => answer(attempt, accepted(attempt)),
    async explain(others) {
      const users = others.map(({ userId }) => userId);
      const seen = await readSaleAndOrders(postgres.pool, saleId, users);
      return others.filter((attempt) => {
        const result = outcomeOf(attempt, seen);
        if (result.kind !== 'retry') answer(attempt, result);
        return result.kind === 'retry';
      });
    },
  });
  for (const attempt of left) answer(attempt, { kind: 'busy', reason: 'contended' });
}

/** A constraint or a trigger may reject a single member, and a single member may cause a defect. */
function isMemberError(error: unknown): boolean {
  return classifyPostgresError(error).kind === 'defect' || isRowError(error);
}
