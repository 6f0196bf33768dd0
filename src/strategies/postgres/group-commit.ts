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
import { microBatcher, type NotProcessed } from '../../concurrency/micro-batcher.ts';
import { limits } from '../../config/limits.ts';
import type { StrategyDescription } from '../../domain/guarantees.ts';
import type { Attempt } from '../../domain/order.ts';
import { classifyPostgresError, isRowError } from '../../store/failures/postgres.ts';
import type { Unanswered } from '../../store/late-requests.ts';
import { IS_OPEN, insertUpToStock, type Placed, placeMany } from '../../store/postgres/insert-orders.ts';
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

/** Attempts on one sale in a shared batch, from which on they go to a batch of the sale: other sales do not queue behind them. */
const OWN_BATCH = limits.commitBatchSize / 4;
/** The key of the shared batches; ids of sales begin at 1. */
const SHARED = 0;
/** A shared batch gave the attempt no unit. */
const LEFT = { kind: 'left' } as const;

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
  const batches = {
    maxBatch: limits.commitBatchSize,
    leastBatch: limits.leastBatch,
    inFlight: limits.commitInFlight,
    maxQueued: limits.commitQueue,
    waitMs: limits.commitWaitMs,
    onBatch: context.onBatch,
    rejected: (reason: NotProcessed) => ({ kind: 'busy', reason }) as const,
    isMemberError,
  };
  const ofSale = microBatcher<Attempt, TryResult>({
    ...batches,
    name: 'attempts-of-sale',
    work: (saleId, batch, answer) => decideOfSale(context, place, saleId, batch, answer),
  });
  const shared = microBatcher<Attempt, TryResult | typeof LEFT>({
    ...batches,
    name: 'attempts',
    work: (_, batch, answer) => decideShared(place, ofSale.has, batch, answer),
  });

  async function decide(attempt: Attempt): Promise<TryResult> {
    const { saleId } = attempt;
    const untilMs = performance.now() + limits.commitWaitMs;
    if (!ofSale.has(saleId)) {
      const result = await shared.submit(SHARED, attempt, untilMs);
      if (result.kind !== 'left') return result;
    }
    return ofSale.submit(saleId, attempt, untilMs);
  }

  return { ...postgresStrategy(context, description, decide), maxBatch: limits.commitBatchSize };
}

async function decideShared(
  place: Place,
  hasBatch: (saleId: number) => boolean,
  batch: readonly Attempt[],
  answer: (attempt: Attempt, result: TryResult | typeof LEFT) => void,
): Promise<void> {
  const perSale = new Map<number, number>();
  for (const { saleId } of batch) perSale.set(saleId, (perSale.get(saleId) ?? 0) + 1);
  const attempts: Attempt[] = [];
  for (const attempt of batch)
    if (hasBatch(attempt.saleId) || perSale.get(attempt.saleId)! >= OWN_BATCH) answer(attempt, LEFT);
    else attempts.push(attempt);
  if (attempts.length === 0) return;
  const placed = await place(SHARED, attempts);
  for (const attempt of attempts)
    if (placed.kind !== 'placed') answer(attempt, placed);
    else answer(attempt, placed.has(attempt.orderId) ? accepted(attempt) : LEFT);
}

async function decideOfSale(
  { postgres }: StrategyContext,
  place: Place,
  saleId: number,
  batch: readonly Attempt[],
  answer: (attempt: Attempt, result: TryResult) => void,
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
