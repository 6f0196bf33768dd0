/**
 * What the strategies that decide in Postgres share: they commit order, count and points by themselves, and a restock is one
 * transaction.
 *
 *   decide ──deadlock or serialization failure──▶ retry, within bounds
 *    ├──the customer has an order: a unique key failed──▶ read it ──▶ found; gone meanwhile: retry
 *    ├──no answer──▶ read the order ──▶ found
 *    │                 └──not found──▶ set a barrier (store/late-requests.ts), read again ──▶ found
 *    │                                   │                                     └──not found──▶ retry
 *    │                                   └──Postgres is unavailable──▶ unknown
 *    └──could not begin, or waited too long──▶ busy: nothing was written
 *
 *   found, so not known to be durable ──the synchronous standby, if there is one, has it──▶ accepted or replayed
 *     └──it does not answer──▶ unknown
 *
 * After the barrier an earlier statement can no longer take effect, so the result of the retry, whichever it is, stays true.
 */

import { shared } from '../../concurrency/coalesce.ts';
import type { ExpectedFailure } from '../../domain/failure.ts';
import type { StrategyDescription } from '../../domain/guarantees.ts';
import type { Attempt, PlacedOrderColumns } from '../../domain/order.ts';
import {
  type Accepted,
  type Outcome,
  type Replayed,
  type Retry,
  type Step,
  shortage,
  type Unanswered,
} from '../../domain/outcome.ts';
import { expectedPostgresFailure } from '../../store/failures/postgres.ts';
import { once } from '../../store/postgres/idempotency.ts';
import { setBarrier } from '../../store/postgres/insert-orders.ts';
import type { PostgresStore } from '../../store/postgres/pool.ts';
import { findActive, type SaleAndOrders, type SaleState } from '../../store/postgres/purchases.ts';
import type { Timeline } from '../../store/postgres/standby-wait.ts';
import type { LocksFirst, Strategy, StrategyContext } from '../strategy.ts';
import { restocked } from './restock.ts';
import { soldOutLatch } from './sold-out-latch.ts';

/** Tries of an attempt that conflicts with others. */
const TRIES = 5;

/** The state read afterwards does not explain the result, because something changed in between. */
export const RETRY: Retry = { kind: 'retry', reason: 'contended' };
/** A read found the customer's order, which is not durable yet: see `replicated` in store/postgres/pool.ts. */
type Found = Accepted | Replayed;
type Answered = Exclude<Step, Unanswered>;

/**
 * Builds a strategy from its decision.
 * @param decide one try in Postgres; it may throw what Postgres throws
 */
export function postgresStrategy(
  context: StrategyContext,
  description: StrategyDescription,
  decide: (attempt: Attempt) => Promise<Step>,
  locksFirst: LocksFirst = 'sale',
): Strategy {
  const { postgres, sales, orders } = context;
  const source = { states: sales.soldOut, customers: orders.customers };
  const knownSoldOut = soldOutLatch(source, context.onError);
  const barrier = sharedBarrier(postgres);

  /** Resolves a statement that got no reply; RETRY: it had no effect and never will. */
  async function resolve(attempt: Attempt, { reason, lateUntilMs }: Unanswered): Promise<Answered> {
    const unknown = { kind: 'unknown', orderId: attempt.orderId, reason } as const;
    // Postgres may be available again after the wait for the deadline.
    const own = await ownOrder(context, attempt).catch(() => null);
    if (own !== null) return own;
    if (!(await barrier(attempt.saleId, lateUntilMs))) return unknown;
    try {
      return (await ownOrder(context, attempt)) ?? RETRY;
    } catch (error) {
      expectedPostgresFailure(error);
      return unknown;
    }
  }

  /** @param before taken before the read */
  async function durable(found: Found, before: Timeline): Promise<Outcome> {
    try {
      await postgres.replicated(before);
      return { ...found, durable: true };
    } catch (error) {
      const { reason } = expectedPostgresFailure(error);
      return { kind: 'unknown', orderId: found.order.orderId, reason };
    }
  }

  return {
    description,
    locksFirst,
    maxBatch: 1,
    mirror: null,
    knownSoldOut,
    async decide(attempt) {
      for (let tries = 0; tries < TRIES; tries++) {
        const before = postgres.timeline();
        const first = await tryOnce(context, attempt, decide);
        const result = first.kind === 'unanswered' ? await resolve(attempt, first) : first;
        if ('durable' in result && !result.durable) return durable(result, before);
        if (result.kind !== 'retry') return result;
      }
      return { kind: 'busy', reason: 'contended' };
    },
    async restock(saleId, units, key = null) {
      const result = await once(postgres, key, async (client) =>
        restocked(await sales.restock(saleId, units, false, client)),
      );
      knownSoldOut.forget(saleId);
      return result;
    },
  };
}

/**
 * Attempts in one batch share its deadline, and therefore its barrier. Without a deadline a barrier counts only for what was sent before
 * it, so that each attempt needs another.
 */
function sharedBarrier(postgres: PostgresStore): (saleId: number, lateUntilMs: number) => Promise<boolean> {
  const ofBatch = shared((key: string) => {
    const [saleId, lateUntilMs] = key.split(' ').map(Number) as [number, number];
    return setBarrier(postgres, [saleId], lateUntilMs);
  });
  return (saleId, lateUntilMs) =>
    lateUntilMs === 0 ? setBarrier(postgres, [saleId], 0) : ofBatch(`${saleId} ${lateUntilMs}`);
}

/** The order of an attempt, whatever its current status; or null. */
async function ownOrder({ orders }: StrategyContext, attempt: Attempt): Promise<Found | null> {
  const order = await orders.get(attempt.orderId);
  return order === null ? null : existing(attempt, { ...order, id: order.orderId });
}

async function tryOnce(
  context: StrategyContext,
  attempt: Attempt,
  decide: (attempt: Attempt) => Promise<Step>,
): Promise<Step> {
  try {
    return await decide(attempt);
  } catch (error) {
    const failure = expectedPostgresFailure(error);
    if (failure.kind !== 'rejected' || failure.constraint !== ONE_ACTIVE) return resultOf(failure);
    return tryOnce(context, attempt, () => earlierOrder(context, attempt));
  }
}

/** The unique index of active orders by sale and customer: it fails a repeat that nothing else has stopped. */
const ONE_ACTIVE = 'orders_one_active_per_customer';

async function earlierOrder({ postgres }: StrategyContext, attempt: Attempt): Promise<Answered> {
  const order = await findActive(postgres.pool, attempt);
  return order === null ? RETRY : existing(attempt, order);
}

function resultOf(failure: ExpectedFailure): Step {
  const { kind, reason } = failure;
  switch (kind) {
    case 'unknown':
      return { kind: 'unanswered', reason, lateUntilMs: 0 };
    case 'conflict':
      return RETRY;
    case 'rejected':
      // Other attempts were faster: the next try reads the state, or this customer's order.
      if (TAKEN.has(failure.constraint)) return RETRY;
  }
  return { kind: 'busy', reason };
}
/** The key of an order that another attempt has inserted, and the bound of the units. */
const TAKEN: ReadonlySet<string | null> = new Set(['orders_pkey', 'sales_sold_within_stock']);

/** For a customer with an order: a replay, or this attempt's own order if its first reply was lost. */
export function existing(attempt: Attempt, order: PlacedOrderColumns): Found {
  const { saleId, userId } = attempt;
  const { status, quantity } = order;
  const placed = { orderId: order.id, saleId, userId, status, quantity };
  return { kind: order.id === attempt.orderId ? 'accepted' : 'replayed', order: placed, durable: false };
}

/** The outcome for a customer who got the units. */
export function accepted({ orderId, saleId, userId, quantity }: Attempt): Outcome {
  return { kind: 'accepted', order: { orderId, saleId, userId, status: 'pending', quantity }, durable: true };
}

/** Why the sale cannot sell as many units; null if it can. */
export function rejectionOf(sale: SaleState | null, quantity: number): Outcome | null {
  if (sale === null) return { kind: 'unknown-sale' };
  if (sale.paused) return { kind: 'not-open', reason: 'paused' };
  if (sale.notStarted) return { kind: 'not-open', reason: 'not-started' };
  if (sale.ended) return { kind: 'not-open', reason: 'ended' };
  const { free, maxPerOrder } = sale;
  return quantity > maxPerOrder ? { kind: 'over-limit', maxPerOrder } : shortage(free, quantity);
}

/** The outcome of an attempt that wrote nothing, from the state read afterwards; RETRY if the units have become free. */
export function outcomeOf(attempt: Attempt, seen: SaleAndOrders | null): Answered {
  const order = seen?.orders.get(attempt.userId);
  if (order !== undefined) return existing(attempt, order);
  return rejectionOf(seen?.sale ?? null, attempt.quantity) ?? RETRY;
}
