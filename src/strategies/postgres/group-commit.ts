/**
 * `group-commit`: attempts on one sale that arrive together are decided by one statement, which is one commit. It locks the
 * row of the sale, gives the free units to the first arrivals, inserts their orders and points, and counts them.
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
import type { Unanswered } from '../../store/late-requests.ts';
import { classifyPostgresError, isRowError } from '../../store/postgres/failures.ts';
import { IN_WINDOW, insertUpToStock, type Placed, placeMany } from '../../store/postgres/insert-orders.ts';
import { readSaleAndOrders } from '../../store/postgres/purchases.ts';
import { ALL_GUARANTEES, type CommittingStrategy, type StrategyContext } from '../strategy.ts';
import { accepted, type Decision, outcomeOf, postgresStrategy } from './base.ts';

export const description: StrategyDescription = {
  name: 'group-commit',
  summary: 'Attempts gathered in the process, one statement and one commit for the batch.',
  store: 'postgres',
  usesLock: false,
  roundTrips: 1,
  guarantees: ALL_GUARANTEES,
};

const PLACE = insertUpToStock('place-batch', `sold < stock AND ${IN_WINDOW}`);

export function create(context: StrategyContext): CommittingStrategy {
  const { pool } = context.postgres;

  function place(saleId: number, attempts: readonly Attempt[]): Promise<Placed | Unanswered> {
    const batch = {
      orderIds: attempts.map(({ orderId }) => orderId),
      saleIds: attempts.map(() => saleId),
      userIds: attempts.map(({ userId }) => userId),
    };
    return placeMany(context.postgres, PLACE, batch, context.paymentWindowS);
  }

  /** One round; members that would get a unit by now go into another round, unless this one has decided no member. */
  async function decide(saleId: number, batch: readonly Attempt[], answer: Answer): Promise<void> {
    const placed = await place(saleId, batch);
    if (placed.kind === 'unanswered') {
      for (const attempt of batch) answer(attempt, placed);
      return;
    }
    for (const attempt of batch) if (placed.has(attempt.orderId)) answer(attempt, accepted(attempt));
    const rest = batch.filter(({ orderId }) => !placed.has(orderId));
    if (rest.length === 0) return;
    const users = rest.map(({ userId }) => userId);
    const seen = await readSaleAndOrders(pool, saleId, users);
    const decisions = rest.map((attempt) => [attempt, outcomeOf(attempt, seen)] as const);
    const retried = decisions.flatMap(([attempt, { kind }]) => (kind === 'retry' ? [attempt] : []));
    const isProgress = retried.length < batch.length;
    for (const [attempt, decision] of decisions) {
      if (decision.kind !== 'retry' || !isProgress) answer(attempt, decision);
    }
    if (isProgress && retried.length > 0) await decide(saleId, retried, answer);
  }

  const { submit } = microBatcher<Attempt, Decision>({
    work: decide,
    maxBatch: limits.commitBatchSize,
    inFlight: limits.commitInFlight,
    eagerBelow: limits.batchEagerBelow,
    maxQueued: limits.commitQueue,
    waitMs: limits.commitWaitMs,
    onBatch: context.onBatch,
    rejected: (reason) => ({ kind: 'busy', reason }),
    isMemberError,
  });
  const strategy = postgresStrategy(context, description, (attempt) => submit(attempt.saleId, attempt));
  return { ...strategy, maxBatch: limits.commitBatchSize };
}

type Answer = (attempt: Attempt, decision: Decision) => void;

/** A constraint or a trigger may reject a single member, and a single member may cause a defect. */
function isMemberError(error: unknown): boolean {
  return classifyPostgresError(error).kind === 'defect' || isRowError(error);
}
