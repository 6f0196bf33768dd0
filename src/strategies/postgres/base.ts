/**
 * What the strategies that decide in Postgres have in common: they commit order, count and points in their own
 * transaction, so a sale needs no opening, nothing is reserved, and a restock is one statement.
 *
 *   ask ──deadlock or serialization failure──▶ ask again, a bounded number of times
 *    ├──no answer──▶ look for the order ──found──▶ accepted
 *    │                 └──not found──▶ fence the statement (store/late-requests.ts), look again ──found──▶ accepted
 *    │                                   │                                     └──not found──▶ ask again
 *    │                                   └──Postgres cannot be asked──▶ unknown
 *    └──could not begin, or waited too long──▶ busy: nothing was written
 *
 * After the fence an earlier statement has no effect any more, so that the answer of a later try, whichever it is, stays
 * true.
 */
import type { StrategyDescription } from '../../domain/guarantees.ts';
import type { Attempt, PlacedOrderColumns } from '../../domain/order.ts';
import type { ReserveOutcome } from '../../domain/outcome.ts';
import {
  classifyPostgresError,
  type PostgresFailure,
  type PostgresStore,
} from '../../store/postgres/pool.ts';
import { fenceSales, type SaleAndOrders, type SaleState } from '../../store/postgres/purchases.ts';
import type { Strategy, StrategyContext } from '../strategy.ts';

/** How often an attempt begins anew after a conflict with another one. */
const TRIES = 5;

/** A decision that the state of the sale, read afterwards, does not explain: something changed in between. */
export const AGAIN = { kind: 'again' } as const;
export type Decision = ReserveOutcome | typeof AGAIN;

/** No answer came to a statement. It may have been carried out, and may still be until `lateUntilMs`. */
interface Unanswered {
  readonly kind: 'unanswered';
  readonly reason: string;
  readonly lateUntilMs: number;
}

/**
 * Builds a strategy from the one thing that is its own.
 * @param decide asks Postgres once; it may throw what Postgres throws
 */
export function postgresStrategy(
  context: StrategyContext,
  description: StrategyDescription,
  decide: (attempt: Attempt) => Promise<Decision>,
): Strategy {
  const fence = sharedFence(context.postgres);

  /** What became of a statement that was not answered; AGAIN: nothing, and nothing will. */
  async function resolve(attempt: Attempt, { reason, lateUntilMs }: Unanswered): Promise<Decision> {
    const unknown = { kind: 'unknown', orderId: attempt.orderId, reason } as const;
    // When Postgres cannot be asked now, it may be after the wait for the deadline.
    const own = await ownOrder(context, attempt).catch(() => null);
    if (own !== null) return own;
    try {
      if (!(await fence(attempt.saleId, lateUntilMs))) return unknown;
      return (await ownOrder(context, attempt)) ?? AGAIN;
    } catch (error) {
      classifyPostgresError(error); // throws a defect
      return unknown;
    }
  }

  return {
    description,
    mirror: null,
    latch: null,
    maxBatch: 1,
    async load() {},
    async reserve(attempt) {
      for (let tries = 0; tries < TRIES; tries++) {
        const first = await tryOnce(attempt, decide);
        const decision = first.kind === 'unanswered' ? await resolve(attempt, first) : first;
        if (decision.kind !== 'again') return decision;
      }
      return { kind: 'busy', reason: 'contended' };
    },
    release: async () => false,
    restock: (saleId, units) => context.sales.restock(saleId, units),
    async remaining(saleId) {
      return (await context.sales.get(saleId))?.remaining ?? null;
    },
  };
}

/** Attempts of one batch share its fate, and its fence. */
function sharedFence(postgres: PostgresStore): (saleId: number, lateUntilMs: number) => Promise<boolean> {
  const inProgress = new Map<string, Promise<boolean>>();
  return (saleId, lateUntilMs) => {
    const key = `${saleId} ${lateUntilMs}`;
    let fencing = inProgress.get(key);
    if (fencing === undefined) {
      fencing = fenceSales(postgres, [saleId], lateUntilMs).finally(() => inProgress.delete(key));
      inProgress.set(key, fencing);
    }
    return fencing;
  };
}

/** The answer to an attempt whose order is there, whatever became of the order since; or null. */
async function ownOrder({ orders }: StrategyContext, attempt: Attempt): Promise<ReserveOutcome | null> {
  const order = await orders.get(attempt.orderId);
  return order === null ? null : existing(attempt, { id: order.orderId, status: order.status });
}

async function tryOnce(
  attempt: Attempt,
  decide: (attempt: Attempt) => Promise<Decision>,
): Promise<Decision | Unanswered> {
  try {
    return await decide(attempt);
  } catch (error) {
    return decisionOfFailure(classifyPostgresError(error));
  }
}

/** Reasons for which the same attempt may succeed at once. */
const CONFLICTS = ['deadlock', 'serialization-failure', 'write-conflict', 'deadline-passed'];

function decisionOfFailure(failure: PostgresFailure): Decision | Unanswered {
  if (failure.kind === 'unknown') {
    const { reason, lateUntilMs = 0 } = failure;
    return { kind: 'unanswered', reason, lateUntilMs };
  }
  if (failure.kind === 'busy') return CONFLICTS.includes(failure.reason) ? AGAIN : failure;
  switch (failure.constraint) {
    case 'sales_sold_within_stock':
      return { kind: 'sold-out' };
    case 'orders_one_active_per_customer':
    case 'orders_pkey':
    case 'stock_units_order_id_key':
      return AGAIN; // the same customer was faster; the next look finds that order
    default:
      return { kind: 'busy', reason: `refused-by-postgres:${failure.constraint || failure.code}` };
  }
}

/** The answer to a customer who has an order: a replay, or this attempt's own when its first answer was lost. */
export function existing(attempt: Attempt, order: PlacedOrderColumns): ReserveOutcome {
  const { saleId, userId } = attempt;
  const kind = order.id === attempt.orderId ? 'accepted' : 'replayed';
  return { kind, order: { orderId: order.id, saleId, userId, status: order.status } };
}

/** The answer to a customer who got a unit. */
export function accepted({ orderId, saleId, userId }: Attempt): ReserveOutcome {
  return { kind: 'accepted', order: { orderId, saleId, userId, status: 'pending' } };
}

/** Why a sale does not sell, or null when it would. */
export function refusalOf(sale: SaleState | null): ReserveOutcome | null {
  if (sale === null) return { kind: 'unknown-sale' };
  if (sale.notStarted) return { kind: 'not-open', reason: 'not-started' };
  if (sale.ended) return { kind: 'not-open', reason: 'ended' };
  return sale.free > 0 ? null : { kind: 'sold-out' };
}

/** What an attempt that wrote nothing is told, by what was seen afterwards; AGAIN when it would get a unit by now. */
export function classify(attempt: Attempt, seen: SaleAndOrders | null): Decision {
  const order = seen?.orders.get(attempt.userId);
  if (order !== undefined) return existing(attempt, order);
  return refusalOf(seen?.sale ?? null) ?? AGAIN;
}
