/**
 * `group-commit`: attempts on one sale that arrive together are decided by one statement, which is one commit. It locks the
 * row of the sale, gives the free units to the first arrivals, inserts their orders and points, and counts them. An order that asks for
 * more units than are left at its turn gets none, and those behind it may still fit: it could not be served later in this sale than now,
 * unless units return, and waiting for it would leave units unsold in front of customers who want them.
 *
 *   attempt ──▶ batch (see micro-batcher.ts) ──▶ placed ──▶ accepted, committed with the answer
 *                                                  └─ not placed ──▶ one read for all of these: rejected, or a repeat
 *                                                                      └─ a unit is free ──▶ retried with the batch's others
 *
 * A customer's second attempt in a batch hits the unique index, and so does an attempt whose first reply was lost with the
 * connection; the read finds their orders. Only the read can conclude "sold out". A batch that is rejected because of a member
 * is split in halves.
 *
 * A batch holds attempts on one sale, because only the row of the sale makes them wait: batches never deadlock, and a sale
 * whose row is locked does not delay the others. The price: with many sales and few attempts each, attempts commit one by one,
 * but they have nothing to wait for either.
 */
import { microBatcher } from '../../concurrency/micro-batcher.ts';
import { limits } from '../../config/limits.ts';
import type { StrategyDescription } from '../../domain/guarantees.ts';
import type { Attempt } from '../../domain/order.ts';
import { classifyPostgresError, isRowError } from '../../store/failures/postgres.ts';
import { IS_OPEN, insertUpToStock, placeMany } from '../../store/postgres/insert-orders.ts';
import { placeInRounds } from '../../store/postgres/place-in-rounds.ts';
import { sharedConnections } from '../../store/postgres/pool.ts';
import { readSaleAndOrders } from '../../store/postgres/purchases.ts';
import { accepted, outcomeOf, postgresStrategy, type TryResult } from '../kit/postgres-strategy.ts';
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
/** For one unit each, and for any quantities. */
const PLACE = insertUpToStock('place-batch', { ...OPEN, isMixed: false });
const PLACE_MIXED = insertUpToStock('place-mixed-batch', { ...OPEN, isMixed: true });

export function create(context: StrategyContext): Strategy {
  const connect = sharedConnections(context.postgres.pool);

  async function decide(saleId: number, batch: readonly Attempt[], answer: Answer): Promise<void> {
    const left = await placeInRounds(batch, {
      async place(attempts) {
        const members = {
          connect: () => connect(saleId),
          orderIds: attempts.map(({ orderId }) => orderId),
          saleIds: attempts.map(() => saleId),
          userIds: attempts.map(({ userId }) => userId),
          quantities: attempts.map(({ quantity }) => quantity),
        };
        const statement = members.quantities.every((quantity) => quantity === 1) ? PLACE : PLACE_MIXED;
        const placed = await placeMany(context.postgres, statement, members, context.paymentWindowS);
        if (placed.kind === 'placed') return placed;
        for (const attempt of attempts) answer(attempt, placed);
        return 'over';
      },
      orderIdOf: ({ orderId }) => orderId,
      inserted: (attempt) => answer(attempt, accepted(attempt)),
      async explain(others) {
        const users = others.map(({ userId }) => userId);
        const seen = await readSaleAndOrders(context.postgres.pool, saleId, users);
        return others.filter((attempt) => {
          const result = outcomeOf(attempt, seen);
          if (result.kind !== 'retry') answer(attempt, result);
          return result.kind === 'retry';
        });
      },
    });
    for (const attempt of left) answer(attempt, { kind: 'busy', reason: 'contended' });
  }

  const { submit } = microBatcher<Attempt, TryResult>({
    name: 'attempts',
    work: decide,
    maxBatch: limits.commitBatchSize,
    leastBatch: limits.leastBatch,
    inFlight: limits.commitInFlight,
    maxQueued: limits.commitQueue,
    waitMs: limits.commitWaitMs,
    onBatch: context.onBatch,
    rejected: (reason) => ({ kind: 'busy', reason }),
    isMemberError,
  });
  const strategy = postgresStrategy(context, description, (attempt) => submit(attempt.saleId, attempt));
  return { ...strategy, maxBatch: limits.commitBatchSize };
}

type Answer = (attempt: Attempt, result: TryResult) => void;

/** A constraint or a trigger may reject a single member, and a single member may cause a defect. */
function isMemberError(error: unknown): boolean {
  return classifyPostgresError(error).kind === 'defect' || isRowError(error);
}
