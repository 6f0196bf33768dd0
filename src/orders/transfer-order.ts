/**
 * Passes an active order to another customer, once. In one transaction the order has the other customer and the name of the one who
 * placed it; its points move by two new entries (`order-transfer`), so that the entry of the purchase stays; tasks that no receiver got
 * yet name the other customer; the outbox carries the change to Redis. The partial unique index keeps both customers to one active order.
 */
import type pg from 'pg';
import { beyondLimit, type CustomerLimit } from '../domain/outcome.ts';
import { classifyPostgresError, isBeyondLimit } from '../store/failures/postgres.ts';
import { unitsHeld } from '../store/postgres/insert-orders.ts';
import { ACTIVE } from '../store/postgres/orders.ts';
import type { LocksFirst } from '../strategies/strategy.ts';

export interface Transfer {
  readonly toUserId: string;
  /** As a purchase of the strategy: see docs/explanation/consistency.md, "One order of locks". */
  readonly locksFirst: LocksFirst;
  /** Whether the change is added to the outbox towards Redis. */
  readonly isMirrored: boolean;
  /** For the audit log. */
  readonly actor: string;
}

/** Why an active order was not passed on. `unchanged`: an earlier request has passed it to this customer. */
export type NoTransfer = 'unchanged' | 'same-customer' | 'already-transferred' | 'has-order';

// A customer whose order is being closed has one: waiting for that could be a deadlock.
const LOCK = `
  SELECT sale_id AS "saleId", user_id AS "userId", transferred_from AS "transferredFrom", EXISTS (
    SELECT FROM orders AS other WHERE other.sale_id = orders.sale_id AND other.user_id = $2 AND other.${ACTIVE}
  ) AS "hasOrder", quantity, limits.* FROM orders LEFT JOIN LATERAL (
    SELECT max_per_customer AS "maxPerCustomer", ${unitsHeld('orders', '$2')} AS "unitsHeld" FROM sales WHERE id = orders.sale_id
  ) AS limits ON orders.limit_group IS NOT NULL WHERE id = $1 AND ${ACTIVE} FOR UPDATE OF orders`;

const moved = (after = '') => `moved AS (
    UPDATE orders SET user_id = $2, transferred_from = $4 ${after} WHERE orders.id = $1
    RETURNING orders.id, sale_id, quantity, points_earned(price_cents * quantity) AS points
  )`;
// The version: processes that know the sale to be sold out read its customers again.
const noted = (after = '') =>
  `noted AS (UPDATE sales SET version = version + 1 ${after} WHERE sales.id = $3 RETURNING sales.id)`;
/** @param locking the parts that lock, the second one after the first */
const moveBy = (...locking: readonly string[]) => `
  WITH ${locking.join(', ')}, points AS (
    INSERT INTO points_entries (user_id, source_type, source_id, points)
    SELECT customer, 'order-transfer', id::text, sign * points FROM moved, (VALUES ($4::text, -1), ($2, 1)) AS t (customer, sign)
  ), tasks AS (
    UPDATE tasks SET payload = jsonb_set(payload, '{userId}', to_jsonb($2::text)) FROM moved
    WHERE tasks.key IN ('ship:' || moved.id, 'award:' || moved.id) AND attempts = 0 AND state <> 'done'
  ), outbox AS (
    INSERT INTO mirror_outbox (sale_id, change, order_id, user_id, to_user_id, units)
    SELECT sale_id, 'transfer', id, $4, $2, quantity FROM moved WHERE $5
  )
  INSERT INTO audit_pending (actor, action, subject, details)
  SELECT $6, 'order.transferred', 'order ' || id, json_build_object('saleId', sale_id, 'userId', $4::text, 'toUserId', $2::text)::text FROM moved`;
/** By what is locked first. */
const MOVE: Readonly<Record<LocksFirst, string>> = {
  sale: moveBy(noted(), moved('FROM noted')),
  customer: moveBy(moved(), noted('FROM moved')),
};

interface Locked {
  readonly saleId: number;
  readonly userId: string;
  readonly transferredFrom: string | null;
  readonly hasOrder: boolean;
  readonly quantity: number;
  readonly maxPerCustomer: number | null;
  readonly unitsHeld: number | null;
}

/** @param client a transaction, which must end without a commit unless the order was transferred @returns null: the order is not active @throws what Postgres throws */
export async function transferOrder(
  client: pg.PoolClient,
  orderId: string,
  { toUserId, locksFirst, isMirrored, actor }: Transfer,
): Promise<'transferred' | NoTransfer | CustomerLimit | null> {
  const order = (await client.query<Locked>(LOCK, [orderId, toUserId])).rows[0];
  if (order === undefined) return null;
  const { saleId, userId, transferredFrom, hasOrder } = order;
  if (userId === toUserId) return transferredFrom === null ? 'same-customer' : 'unchanged';
  if (transferredFrom !== null) return 'already-transferred';
  if (hasOrder) return 'has-order';
  const limit = beyondLimit(order, order.quantity);
  if (limit !== null) return limit;
  try {
    await client.query(MOVE[locksFirst], [orderId, toUserId, saleId, userId, isMirrored, actor]);
    return 'transferred';
  } catch (error) {
    const failure = classifyPostgresError(error);
    if (failure.kind === 'rejected' && failure.constraint === 'orders_one_active_per_customer')
      return 'has-order'; // a purchase was in progress
    if (isBeyondLimit(error)) return null; // the next try sees why
    throw error;
  }
}
