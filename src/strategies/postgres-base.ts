/**
 * What the strategies that decide in Postgres have in common: they commit order, count and points in their own
 * transaction, so a sale needs no opening, nothing is reserved, and a restock is one statement.
 *
 *   ask ──deadlock or serialization failure──▶ ask again, a bounded number of times
 *    ├──connection lost while a statement was under way──▶ ask again under the same order id: a commit whose answer
 *    │                                                     was lost is found as this attempt's own order
 *    └──could not begin, or waited too long──▶ busy: nothing was written
 */
import type { StrategyDescription } from '../domain/guarantees.ts';
import type { Attempt, PlacedOrderColumns } from '../domain/order.ts';
import type { ReserveOutcome } from '../domain/outcome.ts';
import { classifyPostgresError, type PostgresFailure } from '../store/postgres.ts';
import type { SaleStanding, Sighting } from '../store/purchase-sql.ts';
import type { Strategy, StrategyContext } from './strategy.ts';

/** How often an attempt begins anew after a conflict with another one. */
const TRIES = 5;

/** A decision that the state of the sale, read afterwards, does not explain: something changed in between. */
export const AGAIN = { kind: 'again' } as const;
export type Decision = ReserveOutcome | typeof AGAIN;

/**
 * Builds a strategy from the one thing that is its own.
 * @param decide asks Postgres once; it may throw what Postgres throws
 */
export function postgresStrategy(
  context: StrategyContext,
  description: StrategyDescription,
  decide: (attempt: Attempt) => Promise<Decision>,
): Strategy {
  return {
    description,
    reservations: null,
    latch: null,
    together: 1,
    async open() {},
    async reserve(attempt) {
      let lost: string | null = null;
      for (let tries = 0; tries < TRIES; tries++) {
        const decision = await tryOnce(attempt, decide);
        if (decision.kind === 'unknown') lost = decision.reason;
        else if (decision.kind === 'busy' && lost !== null) break;
        else if (decision.kind !== 'again') return decision;
      }
      if (lost !== null) return { kind: 'unknown', orderId: attempt.orderId, reason: lost };
      return { kind: 'busy', reason: 'contended' };
    },
    release: async () => false,
    restock: (saleId, units) => context.sales.restock(saleId, units),
    async remaining(saleId) {
      return (await context.sales.get(saleId))?.remaining ?? null;
    },
  };
}

async function tryOnce(attempt: Attempt, decide: (attempt: Attempt) => Promise<Decision>): Promise<Decision> {
  try {
    return await decide(attempt);
  } catch (error) {
    return decisionOfFailure(attempt, classifyPostgresError(error));
  }
}

function decisionOfFailure(attempt: Attempt, failure: PostgresFailure): Decision {
  if (failure.kind === 'unknown') return { ...failure, orderId: attempt.orderId };
  if (failure.kind === 'busy') {
    const conflict = ['deadlock', 'serialization-failure', 'write-conflict'].includes(failure.reason);
    return conflict ? AGAIN : failure;
  }
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
export function refusalOf(sale: SaleStanding | null): ReserveOutcome | null {
  if (sale === null) return { kind: 'unknown-sale' };
  if (sale.notStarted) return { kind: 'not-open', reason: 'not-started' };
  if (sale.ended) return { kind: 'not-open', reason: 'ended' };
  return sale.free > 0 ? null : { kind: 'sold-out' };
}

/** What an attempt that wrote nothing is told, by what was seen afterwards; AGAIN when it would get a unit by now. */
export function explained(attempt: Attempt, seen: Sighting | null): Decision {
  const order = seen?.orders.get(attempt.userId);
  if (order !== undefined) return existing(attempt, order);
  return refusalOf(seen?.sale ?? null) ?? AGAIN;
}
