/**
 * The statements of a purchase, shared by the Postgres strategies, so that what they differ in is the way they
 * decide, and nothing else. Each is prepared once for a connection, under its name.
 */
import type pg from 'pg';
import type { Attempt, OrderStatus, PlacedOrderColumns } from '../domain/order.ts';
import { ACTIVE } from './orders.ts';

/** Points that an order earns: one for each whole hundred cents, and at least one. */
export const EARNED = 'greatest(1, price_cents / 100)';

/** How a sale stands, by the database's clock at this moment (not at the transaction's start). */
export interface SaleStanding {
  readonly free: number;
  readonly version: number;
  readonly notStarted: boolean;
  readonly ended: boolean;
}

const STANDING = `stock - sold AS free, version,
  coalesce(clock_timestamp() < starts_at, false) AS "notStarted",
  coalesce(clock_timestamp() >= ends_at, false) AS ended`;

type Queryable = Pick<pg.PoolClient, 'query'>;

/** Reads how a sale stands; null when there is none. `lock` holds its row until the transaction ends. */
export async function readSale(db: Queryable, saleId: number, lock = false): Promise<SaleStanding | null> {
  const { rows } = await db.query<SaleStanding>({
    name: lock ? 'lock-sale' : 'read-sale',
    text: `SELECT ${STANDING} FROM sales WHERE id = $1${lock ? ' FOR UPDATE' : ''}`,
    values: [saleId],
  });
  return rows[0] ?? null;
}

/** The customer's active order, or null. */
export async function findActive(db: Queryable, attempt: Attempt): Promise<PlacedOrderColumns | null> {
  const { rows } = await db.query<{ id: string; status: OrderStatus }>({
    name: 'find-active',
    text: `SELECT id, status FROM orders WHERE sale_id = $1 AND user_id = $2 AND ${ACTIVE}`,
    values: [attempt.saleId, attempt.userId],
  });
  return rows[0] ?? null;
}

/** Inserts the order and its points, unless the customer has an active order. @returns whether it was inserted. */
export async function insertOrder(db: Queryable, attempt: Attempt, paymentWindowS: number): Promise<boolean> {
  const { rows } = await db.query<{ placed: number }>({
    name: 'insert-order',
    text: `WITH placed AS (
             INSERT INTO orders (id, sale_id, user_id, status, price_cents, expires_at)
             SELECT $1::uuid, id, $3::text, 'pending', price_cents, now() + make_interval(secs => $4)
             FROM sales WHERE id = $2
             ON CONFLICT DO NOTHING
             RETURNING id, user_id, price_cents
           ), earned AS (
             INSERT INTO points_entries (user_id, source_type, source_id, points)
             SELECT user_id, 'order', id::text, ${EARNED} FROM placed
           )
           SELECT count(*)::int AS placed FROM placed`,
    values: [attempt.orderId, attempt.saleId, attempt.userId, paymentWindowS],
  });
  return rows[0]?.placed === 1;
}

/** Counts one unit as sold, whatever the caller knows. The CHECK refuses it when there is none. */
export async function countSold(db: Queryable, saleId: number): Promise<void> {
  await db.query({
    name: 'count-sold',
    text: 'UPDATE sales SET sold = sold + 1, version = version + 1 WHERE id = $1',
    values: [saleId],
  });
}

/** Counts one unit as sold if one is free and the sale is open. @returns whether it did. */
export async function countSoldIfFree(db: Queryable, saleId: number): Promise<boolean> {
  const { rowCount } = await db.query({
    name: 'count-sold-if-free',
    text: `UPDATE sales SET sold = sold + 1, version = version + 1
           WHERE id = $1 AND sold < stock
             AND (starts_at IS NULL OR clock_timestamp() >= starts_at)
             AND (ends_at IS NULL OR clock_timestamp() < ends_at)`,
    values: [saleId],
  });
  return rowCount === 1;
}
