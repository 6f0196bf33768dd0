/**
 * The life of an order after it was placed: see domain/order.ts for the states. Each step is one conditional update that names
 * the old state, so one of two callers wins; there is no lock. Unit, customer and points change in the same transaction in
 * Postgres; where Redis decides, the outbox carries the change to it (store/outbox-relay.ts).
 *
 *   pending ──cancel──▶ cancelled      the units and the customer are free, a reversal cancels the points
 *      └──expire, by the database's clock──▶ expired, the same way
 */
import { limits } from '../config/limits.ts';
import type { Order } from '../domain/order.ts';
import type { Instruments } from '../metrics/instruments.ts';
import type { LoopHealth } from '../metrics/loop-health.ts';
import { afterWrite, isAnswer, isHeldUp, UNREAD } from '../store/failures/postgres.ts';
import type { OutboxRelay } from '../store/outbox-relay.ts';
import type { OrderTable } from '../store/postgres/orders.ts';
import { isolating, type PostgresStore, retried } from '../store/postgres/pool.ts';

export interface LifecycleContext {
  readonly postgres: PostgresStore;
  readonly orders: OrderTable;
  /** Null for a strategy that decides in Postgres. */
  readonly outbox: OutboxRelay | null;
  readonly instruments: Instruments;
  /** The health of the loop that expires orders. */
  readonly health: LoopHealth;
}

export type CancelResult =
  | { readonly kind: 'cancelled'; readonly order: Order }
  | { readonly kind: 'unknown-order' }
  /** The order is no longer pending. */
  | { readonly kind: 'invalid-transition'; readonly order: Order }
  /** The order may be cancelled: its status cannot be read. */
  | { readonly kind: 'unknown'; readonly reason: string };

export interface Lifecycle {
  /**
   * Cancels a pending order.
   * @param actor for the audit log
   * @throws what Postgres throws; the order may be cancelled then
   */
  cancel(orderId: string, actor: string): Promise<CancelResult>;
  /**
   * Expires one batch of pending orders whose payment window has ended; several processes may do so at once. An order that
   * Postgres rejects is retried later (see metrics/loop-health.ts), and does not stop the others.
   * @returns how many this call expired
   * @throws what Postgres throws when it is unavailable
   */
  expireDue(): Promise<number>;
}

// `due` waits for the row locks, and then checks whether the orders are still pending. The status is compared in a way that the
// index of pending orders does not serve: a plan made while there are few of them would read all of it.
// greatest(0, …): orders inserted by something else than the service, and so never counted, do not make `sold` negative.
const CLOSE = `
  WITH due AS (
    SELECT id FROM orders WHERE id = ANY($1::uuid[]) AND coalesce(status, '') = 'pending'
      AND ($2 = 'cancelled' OR expires_at <= clock_timestamp())
    FOR UPDATE
  ), closed AS (
    UPDATE orders SET status = $2, closed_at = clock_timestamp() FROM due
    WHERE orders.id = due.id AND coalesce(orders.status, '') = 'pending'
    RETURNING orders.id, sale_id, user_id, quantity, price_cents
  ), returned AS (
    UPDATE sales SET oversold = oversold - least(oversold, c.units),
      sold = greatest(0, sold - (c.units - least(oversold, c.units))), version = version + 1
    FROM (SELECT sale_id, sum(quantity)::int AS units FROM closed GROUP BY sale_id) AS c
    WHERE sales.id = c.sale_id
  ), freed AS (
    UPDATE stock_units SET order_id = NULL FROM closed WHERE stock_units.order_id = closed.id
  ), reversed AS (
    INSERT INTO points_entries (user_id, source_type, source_id, points)
    SELECT user_id, 'order-reversal', id::text, -points_earned(price_cents * quantity) FROM closed
  ), outbox AS (
    INSERT INTO mirror_outbox (sale_id, change, order_id, user_id, units)
    SELECT sale_id, 'release', id, user_id, quantity FROM closed WHERE $3
  ), audited AS (
    INSERT INTO audit_pending (actor, action, subject, details)
    SELECT $4, 'order.cancelled', 'order ' || id, json_build_object('saleId', sale_id, 'userId', user_id)::text
    FROM closed WHERE $2 = 'cancelled'
  )
  SELECT id FROM closed`;

// now() is constant in a statement; with clock_timestamp(), Postgres would read every pending order.
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

/** Tries of one cancellation when the order was found not pending, and then pending. */
const CANCEL_TRIES = 3;
/** Rejected orders of one sale in one pass; then the sale is retried later. */
const MAX_REJECTIONS = 32;
/** Passes of one call, each but the last of which found only failing orders. */
const PASSES = 100;

export function createLifecycle(context: LifecycleContext): Lifecycle {
  const { orders, outbox, instruments, health } = context;
  const { pool } = context.postgres;

  /** Closes those that are still pending. @returns their ids */
  async function close(
    orderIds: readonly string[],
    to: 'cancelled' | 'expired',
    actor = 'service',
  ): Promise<readonly string[]> {
    const { rows } = await retried(() =>
      pool.query<{ id: string }>({
        name: 'close-orders',
        text: CLOSE,
        values: [orderIds, to, outbox !== null, actor],
      }),
    );
    instruments.transitions.inc({ to }, rows.length);
    return rows.map(({ id }) => id);
  }

  /** Expires orders of one sale: a batch that locks one sale's row never waits for another. */
  async function expire({ saleId, ids }: DueOfSale): Promise<{ expired: number; failed: number }> {
    const sale = `sale ${saleId}`;
    const failed = new Map<string, unknown>();
    const rejected = (orderId: string, error: unknown) => void failed.set(orderId, error);
    try {
      const { results, complete } = await isolating(
        ids,
        (some) => close(some, 'expired'),
        rejected,
        MAX_REJECTIONS,
      );
      const [last] = failed.values();
      // When no order expires, the sale is at fault.
      const isOfSale = results.length === 0 && failed.size > 1;
      if (!isOfSale) for (const [orderId, error] of failed) health.failed(`order ${orderId}`, error);
      if (isOfSale || !complete) health.failed(sale, last);
      else health.succeeded(sale);
      for (const orderId of results) health.succeeded(`order ${orderId}`);
      await outbox?.publish(results);
      return { expired: results.length, failed: failed.size };
    } catch (error) {
      if (!isHeldUp(error) && !isAnswer(error)) throw error;
      health.failed(sale, error);
      return { expired: 0, failed: 1 };
    }
  }

  return {
    async cancel(orderId, actor) {
      for (let tries = 1; ; tries++) {
        const closed = await close([orderId], 'cancelled', actor);
        await outbox?.publish(closed);
        const order = await afterWrite(orders.get(orderId));
        if (order === UNREAD) return { kind: 'unknown', reason: order };
        if (order === null) return { kind: 'unknown-order' };
        if (closed.length === 1) return { kind: 'cancelled', order };
        // A pending order was committed between the two statements.
        if (order.status === 'pending' && tries < CANCEL_TRIES) continue;
        await context.postgres.replicated(); // an earlier request, whose answer was lost, may have cancelled it
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
