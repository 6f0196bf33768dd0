/**
 * The life of an order after it was placed: see domain/order.ts for the states. Each step is one conditional update
 * that names the old state, so that of two callers one wins; there is no lock. Unit, customer and points change in the
 * same transaction in Postgres; a strategy that decides in Redis hears of the unit afterwards: see orders/outbox-relay.ts.
 *
 *   pending ──cancel──▶ cancelled      the unit returns, the customer is free, a reversal takes the points back
 *      └──expire, by the database's clock──▶ expired, the same way
 */
import { limits } from '../config/limits.ts';
import type { MirrorChange, Order } from '../domain/order.ts';
import type { LoopHealth } from '../metrics/background.ts';
import type { Instruments } from '../metrics/instruments.ts';
import { afterWrite, isAnswer, isHeldUp } from '../store/postgres/failures.ts';
import type { OrderTable } from '../store/postgres/orders.ts';
import { isolating, type PostgresStore, retried } from '../store/postgres/pool.ts';
import { EARNED } from '../store/postgres/purchases.ts';
import type { OutboxRelay } from './outbox-relay.ts';

export interface LifecycleContext {
  readonly postgres: PostgresStore;
  readonly orders: OrderTable;
  /** Null for a strategy whose units are in Postgres alone. */
  readonly moves: OutboxRelay | null;
  readonly instruments: Instruments;
  /** Of expiry. */
  readonly health: LoopHealth;
}

export type CancelResult =
  | { readonly kind: 'cancelled'; readonly order: Order }
  | { readonly kind: 'unknown-order' }
  /** The order is not pending any more. */
  | { readonly kind: 'invalid-transition'; readonly order: Order };

export interface Lifecycle {
  /** Cancels a pending order. @throws what Postgres throws; then look before you repeat */
  cancel(orderId: string): Promise<CancelResult>;
  /**
   * Expires pending orders whose time to pay is over, one batch; several processes may do so at the same time. What
   * Postgres refuses is left alone for a while, see metrics/background.ts, and keeps no other from expiring.
   * @returns how many this call expired
   * @throws what Postgres throws when it is away
   */
  expireDue(): Promise<number>;
}

// `due` waits for who is at work on a row, and sees then whether it is pending still. The state is compared in a way that
// the index of pending orders does not serve: a plan that is made while there are few of them would read all of it.
// `sold` stays at zero when orders are closed that were inserted past the service and never counted.
const CLOSE = `
  WITH due AS (
    SELECT id FROM orders WHERE id = ANY($1::uuid[]) AND coalesce(status, '') = 'pending'
      AND ($2 = 'cancelled' OR expires_at <= clock_timestamp())
    FOR UPDATE
  ), closed AS (
    UPDATE orders SET status = $2, closed_at = clock_timestamp() FROM due
    WHERE orders.id = due.id AND coalesce(orders.status, '') = 'pending'
    RETURNING orders.id, sale_id, user_id, price_cents
  ), returned AS (
    UPDATE sales SET oversold = oversold - least(oversold, c.units),
      sold = greatest(0, sold - (c.units - least(oversold, c.units))), version = version + 1
    FROM (SELECT sale_id, count(*)::int AS units FROM closed GROUP BY sale_id) AS c
    WHERE sales.id = c.sale_id
  ), freed AS (
    UPDATE stock_units SET order_id = NULL FROM closed WHERE stock_units.order_id = closed.id
  ), reversed AS (
    INSERT INTO points_entries (user_id, source_type, source_id, points)
    SELECT user_id, 'order-reversal', id::text, -${EARNED} FROM closed
  ), moved AS (
    INSERT INTO unit_moves (order_id, sale_id, user_id, direction)
    SELECT id, sale_id, user_id, 'back' FROM closed WHERE $3
  )
  SELECT id AS "orderId", sale_id AS "saleId", user_id AS "userId" FROM closed`;

type Closed = Omit<MirrorChange, 'direction'>;

// now(), which stands still in a statement: with a clock that goes on, every pending order would be looked at.
const DUE = `
  SELECT sale_id AS "saleId", array_agg(id) AS ids FROM (
    SELECT id, sale_id FROM orders WHERE status = 'pending' AND expires_at <= now()
      AND sale_id <> ALL($2::int[]) AND id <> ALL($3::uuid[])
    ORDER BY expires_at LIMIT $1
  ) AS due GROUP BY sale_id`;

interface DueOfSale {
  readonly saleId: number;
  readonly ids: readonly string[];
}

/** Of one cancellation, when the order is pending after it was found not to be. */
const CANCEL_TRIES = 3;
/** Refusals of one sale's orders in one pass; then the sale rests. */
const REFUSALS = 32;
/** Passes of one call, of which each but the last one only found what fails. */
const PASSES = 100;

export function createLifecycle(context: LifecycleContext): Lifecycle {
  const { orders, moves, instruments, health } = context;
  const { pool } = context.postgres;

  /** Closes those that are pending still. @returns which */
  async function close(orderIds: readonly string[], to: 'cancelled' | 'expired'): Promise<readonly Closed[]> {
    const { rows } = await retried(() =>
      pool.query<Closed>({ name: 'close-orders', text: CLOSE, values: [orderIds, to, moves !== null] }),
    );
    instruments.transitions.inc({ to }, rows.length);
    return rows;
  }

  /** Those of one sale: a batch that holds one sale's row never waits for another's. */
  async function expire({ saleId, ids }: DueOfSale): Promise<{ expired: number; failed: number }> {
    const sale = `sale ${saleId}`;
    const failed = new Map<string, unknown>();
    const refused = (orderId: string, error: unknown) => void failed.set(orderId, error);
    try {
      const { results, complete } = await isolating(ids, (some) => close(some, 'expired'), refused, REFUSALS);
      const [last] = failed.values();
      // Where none expires, it is the sale that fails.
      const isOfSale = results.length === 0 && failed.size > 1;
      if (!isOfSale) for (const [orderId, error] of failed) health.failed(`order ${orderId}`, error);
      if (isOfSale || !complete) health.failed(sale, last);
      else health.succeeded(sale);
      for (const { orderId } of results) health.succeeded(`order ${orderId}`);
      await moves?.tell(results.map(({ orderId }) => orderId));
      return { expired: results.length, failed: failed.size };
    } catch (error) {
      if (!isHeldUp(error) && !isAnswer(error)) throw error;
      health.failed(sale, error);
      return { expired: 0, failed: 1 };
    }
  }

  return {
    async cancel(orderId) {
      for (let tries = 1; ; tries++) {
        const closed = await close([orderId], 'cancelled');
        await moves?.tell(closed.map(({ orderId: id }) => id));
        const order = await afterWrite(orders.get(orderId));
        if (order === null) return { kind: 'unknown-order' };
        if (closed.length === 1) return { kind: 'cancelled', order };
        // It was committed between the two statements.
        if (order.status !== 'pending' || tries === CANCEL_TRIES)
          return { kind: 'invalid-transition', order };
      }
    },
    async expireDue() {
      let expired = 0;
      for (let passes = 0, failed = 1; passes < PASSES && expired === 0 && failed > 0; passes++) {
        failed = 0;
        const { rows } = await pool.query<DueOfSale>({
          name: 'due-orders',
          text: DUE,
          values: [limits.expiryBatch, health.backingOff('sale'), health.backingOff('order')],
        });
        for (const due of rows) {
          const counts = await expire(due);
          expired += counts.expired;
          failed += counts.failed;
        }
      }
      return expired;
    },
  };
}
