/**
 * The one statement that closes orders: cancelled, expired, or paid and to be refunded. Status, units, customer, points, the changes
 * for Redis, the refund of what was paid, the end of tasks that were not delivered, and the audit event are one statement.
 */
import type pg from 'pg';
import type { OrderStatus } from '../../domain/order.ts';
import { MIRRORED } from './sales.ts';
import { IS_LAST, REFUNDED } from './task-table.ts';

export interface Closing {
  /** Orders in other statuses stay as they are. */
  readonly from: readonly ('pending' | 'paid')[];
  /** The status of an order that was pending; one that was paid is `refund-due`. Only orders whose deadline has passed expire. */
  readonly to: 'cancelled' | 'expired';
  /** False: the units leave the stock. */
  readonly returnUnits: boolean;
  /** Whether the changes are added to the outbox towards Redis. */
  readonly isMirrored: boolean;
  /** For the audit log. */
  readonly actor: string;
  /** Only orders of this customer; null: of any. A transfer may have been committed since the caller looked. */
  readonly owner?: string | null;
}

export interface ClosedOrder {
  readonly id: string;
  readonly status: OrderStatus;
}

// `due` waits for the row locks, and then checks whether the orders are still active. The status is compared in a way that the
// index of active orders does not serve: a plan made while there are few of them would read all of it.
// greatest(0, …): orders inserted by something else than the service, and so never counted, do not make `sold` negative.
const CLOSE = `
  WITH due AS (
    SELECT id, status AS was FROM orders WHERE id = ANY($1::uuid[]) AND coalesce(status, '') = ANY($2::text[])
      AND ($3 = 'cancelled' OR expires_at <= clock_timestamp()) AND ($7::text IS NULL OR user_id = $7)
    ORDER BY id FOR UPDATE
  ), closed AS (
    UPDATE orders SET status = CASE due.was WHEN 'paid' THEN 'refund-due' ELSE $3 END, closed_at = clock_timestamp() FROM due
    WHERE orders.id = due.id AND coalesce(orders.status, '') = due.was
    RETURNING orders.id, sale_id, user_id, quantity, price_cents * quantity AS amount_cents, status
  ), returned AS (
    UPDATE sales SET oversold = oversold - least(oversold, c.units),
      sold = greatest(0, sold - (c.units - least(oversold, c.units))),
      stock = CASE WHEN $4 THEN stock ELSE stock - least(sold, c.units - least(oversold, c.units)) END, version = version + 1
    FROM (SELECT sale_id, sum(quantity)::int AS units FROM closed GROUP BY sale_id) AS c
    WHERE sales.id = c.sale_id
  ), freed AS (
    UPDATE stock_units SET order_id = NULL FROM closed WHERE $4 AND stock_units.order_id = closed.id
  ), removed AS (
    DELETE FROM stock_units USING closed WHERE NOT $4 AND stock_units.order_id = closed.id
  ), reversed AS (
    INSERT INTO points_entries (user_id, source_type, source_id, points)
    SELECT user_id, CASE WHEN EXISTS (
        SELECT FROM points_entries AS p WHERE p.user_id = closed.user_id AND p.source_type = 'order-revival' AND p.source_id = closed.id::text
      ) THEN 'order-revival-reversal' ELSE 'order-reversal' END, id::text, -points_earned(amount_cents)
    FROM closed
  ), refunds AS (
    INSERT INTO tasks (kind, key, payload)
    SELECT 'refund', 'refund:' || id, json_build_object('orderId', id, 'userId', user_id, 'amountCents', amount_cents,
      'paymentNotificationId', (SELECT n.id FROM payment_notifications AS n WHERE n.order_id = closed.id AND n.result IN ('paid', 'revived') LIMIT 1))
    FROM closed WHERE status = 'refund-due' ON CONFLICT (key) DO NOTHING
  ), undelivered AS (
    -- An attempt in progress may still deliver it, and is the last.
    UPDATE tasks SET state = CASE state WHEN 'processing' THEN state ELSE 'done' END,
      last_error = CASE state WHEN 'processing' THEN '${IS_LAST}' ELSE '${REFUNDED}' END,
      updated_at = CASE state WHEN 'processing' THEN updated_at ELSE now() END
    FROM closed WHERE closed.status = 'refund-due' AND tasks.key IN ('ship:' || closed.id, 'award:' || closed.id)
      AND tasks.state <> 'done'
  ), outbox AS (
    INSERT INTO mirror_outbox (sale_id, change, order_id, user_id, units)
    SELECT sale_id, 'release', id, user_id, CASE WHEN $4 THEN quantity ELSE 0 END FROM closed
    WHERE CASE WHEN $5 THEN ${MIRRORED} END
  ), audited AS (
    INSERT INTO audit_pending (actor, action, subject, details)
    SELECT $6, 'order.' || status, 'order ' || id,
      json_strip_nulls(json_build_object('saleId', sale_id, 'userId', user_id, 'returnUnits', CASE WHEN NOT $4 THEN false END))::text
    FROM closed WHERE $3 = 'cancelled'
  )
  SELECT id, status FROM closed`;

/** Closes those of these orders that are in one of the statuses. @throws what Postgres throws */
export async function closeOrders(
  db: Pick<pg.PoolClient, 'query'>,
  orderIds: readonly string[],
  { from, to, returnUnits, isMirrored, actor, owner = null }: Closing,
): Promise<readonly ClosedOrder[]> {
  const { rows } = await db.query<ClosedOrder>({
    name: 'close-orders',
    text: CLOSE,
    values: [orderIds, from, to, returnUnits, isMirrored, actor, owner],
  });
  return rows;
}
