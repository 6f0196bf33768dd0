/** What the Postgres strategies read and count in separate statements. Each is prepared once per connection, under its name. */
import type pg from 'pg';
import type { Attempt, OrderStatus, PlacedOrderColumns } from '../../domain/order.ts';
import { insertOrders, isOpen, ONE_ORDER, unitsHeld } from './insert-orders.ts';
import { ACTIVE } from './orders.ts';

/** A sale, by the database's clock at this moment (not at the transaction's start). */
export interface SaleState {
  readonly free: number;
  readonly version: number;
  readonly paused: boolean;
  readonly notStarted: boolean;
  readonly ended: boolean;
  readonly maxPerOrder: number;
  /** Of Redis, in which it was last loaded; null: it was not. */
  readonly epoch: number | null;
  /** The limit of a customer over its group; null: it has none. Absent: it was not read. */
  readonly maxPerCustomer?: number | null;
  /** Units of the customer that count for it. */
  readonly unitsHeld?: number | null;
}

export const SALE_STATE = `stock - sold AS free, version, paused, max_per_order AS "maxPerOrder", mirror_epoch AS epoch,
  coalesce(clock_timestamp() < starts_at, false) AS "notStarted",
  coalesce(clock_timestamp() >= ends_at, false) AS ended`;

type Queryable = Pick<pg.PoolClient, 'query'>;

/**
 * The first of the two keys of an advisory lock; the second is the sale. Locks with two keys never conflict with those with
 * one (the lock `postgres-advisory`, the migrations).
 */
const LOCK_CLASSES = { attempts: 0x5354_4d01, units: 0x5354_4d02 } as const;

/**
 * Waits for the advisory lock of a sale and holds it until the transaction ends. The next statement sees what was committed
 * under it before.
 */
export async function lockNumber(
  db: Queryable,
  use: keyof typeof LOCK_CLASSES,
  saleId: number,
): Promise<void> {
  await db.query({
    name: 'lock-number',
    text: 'SELECT pg_advisory_xact_lock($1::int, $2::int)',
    values: [LOCK_CLASSES[use], saleId],
  });
}

/** Reads a sale; null when it does not exist. `lock` locks its row until the transaction ends. */
export async function readSale(db: Queryable, saleId: number, lock = false): Promise<SaleState | null> {
  const { rows } = await db.query<SaleState>({
    name: lock ? 'lock-sale' : 'read-sale',
    text: `SELECT ${SALE_STATE} FROM sales WHERE id = $1${lock ? ' FOR UPDATE' : ''}`,
    values: [saleId],
  });
  return rows[0] ?? null;
}

/** The customer's active order, or null. */
export async function findActive(db: Queryable, attempt: Attempt): Promise<PlacedOrderColumns | null> {
  const { rows } = await db.query<PlacedOrderColumns>({
    name: 'find-active',
    text: `SELECT id, status, quantity FROM orders WHERE sale_id = $1 AND user_id = $2 AND ${ACTIVE}`,
    values: [attempt.saleId, attempt.userId],
  });
  return rows[0] ?? null;
}

/** What Postgres has for an attempt. */
export interface Seen {
  /** Null: there is no such sale. */
  readonly sale: SaleState | null;
  /** The order that the attempt placed, whatever became of it. */
  readonly own: PlacedOrderColumns | null;
  /** It was transferred: another customer has it. */
  readonly isTransferred: boolean;
  /** The customer's active order, which may be the same. */
  readonly active: PlacedOrderColumns | null;
}

/**
 * Reads sales and orders for attempts in one statement, and so at one instant. A customer without an order in a sale without a free unit
 * is sold out, whatever happened before or after.
 * @returns one for each attempt, in their order
 */
export async function readFor(db: Queryable, attempts: readonly Attempt[]): Promise<readonly Seen[]> {
  type Row = SaleState & {
    readonly saleId: number | null;
    readonly own: string | null;
    readonly ownStatus: OrderStatus;
    readonly ownQuantity: number;
    readonly isTransferred: boolean;
    readonly active: string | null;
    readonly activeStatus: OrderStatus;
    readonly activeQuantity: number;
  };
  const { rows } = await db.query<Row>({
    name: 'read-for-attempts',
    // LATERAL … LIMIT 1 leaves the planner a single choice: one index lookup each. Another join, planned while the table is empty, reads
    // all orders, and a prepared statement keeps its plan.
    text: `SELECT sale.*, own.id AS own, own.status AS "ownStatus", own.quantity AS "ownQuantity",
             coalesce(own.user_id <> a.user_id, false) AS "isTransferred",
             active.id AS active, active.status AS "activeStatus", active.quantity AS "activeQuantity"
           FROM unnest($1::uuid[], $2::int[], $3::text[]) WITH ORDINALITY AS a (id, sale_id, user_id, place)
           LEFT JOIN LATERAL (
             SELECT id AS "saleId", ${SALE_STATE}, max_per_customer AS "maxPerCustomer",
               CASE WHEN limit_group IS NOT NULL THEN ${unitsHeld('sales', 'a.user_id')} END AS "unitsHeld"
             FROM sales WHERE id = a.sale_id LIMIT 1
           ) AS sale ON true
           LEFT JOIN LATERAL (SELECT id, status, quantity, user_id FROM orders WHERE id = a.id LIMIT 1) AS own ON true
           LEFT JOIN LATERAL (
             SELECT id, status, quantity FROM orders WHERE sale_id = a.sale_id AND user_id = a.user_id AND ${ACTIVE} LIMIT 1
           ) AS active ON true
           ORDER BY place`,
    values: [
      attempts.map(({ orderId }) => orderId),
      attempts.map(({ saleId }) => saleId),
      attempts.map(({ userId }) => userId),
    ],
  });
  return rows.map((row) => ({
    sale: row.saleId === null ? null : row,
    own: row.own === null ? null : { id: row.own, status: row.ownStatus, quantity: row.ownQuantity },
    isTransferred: row.isTransferred,
    active:
      row.active === null ? null : { id: row.active, status: row.activeStatus, quantity: row.activeQuantity },
  }));
}

// Without a deadline: of a transaction's statements only its COMMIT can be late (see store/late-requests.ts).
const INSERT_ORDER = insertOrders({
  name: 'insert-order',
  rows: `${ONE_ORDER} AND $4::int <= max_per_order`,
  skipExisting: true,
  count: null,
});
const INSERT_NEW_ORDER = insertOrders({ name: 'insert-new-order', rows: ONE_ORDER, count: null });

/** Inserts the order and its points, unless the customer has an active order, or it has too many units. @returns whether it was inserted */
export async function insertOrder(db: Queryable, attempt: Attempt, paymentWindowS: number): Promise<boolean> {
  const { rows } = await db.query<{ placed: number }>({
    ...INSERT_ORDER,
    values: [attempt.orderId, attempt.saleId, attempt.userId, attempt.quantity, paymentWindowS],
  });
  return rows[0]?.placed === 1;
}

/** Inserts the order and its points. An active order of the customer fails it. */
export async function insertNewOrder(db: Queryable, attempt: Attempt, paymentWindowS: number): Promise<void> {
  const { orderId, saleId, userId, quantity } = attempt;
  await db.query({ ...INSERT_NEW_ORDER, values: [orderId, saleId, userId, quantity, paymentWindowS] });
}

/** Counts the units as sold. The CHECK fails when too few are free. */
export async function countSold(db: Queryable, { saleId, quantity }: Attempt): Promise<void> {
  await db.query({
    name: 'count-sold',
    text: 'UPDATE sales SET sold = sold + $2, version = version + 1 WHERE id = $1',
    values: [saleId, quantity],
  });
}

/** Counts the units of an order as sold if they are free, the sale is open, and it has the limit group of the order. @returns whether it did */
export async function countSoldIfFree(
  db: Queryable,
  { saleId, quantity, orderId, isEarly = false }: Attempt,
): Promise<boolean> {
  const { rowCount } = await db.query({
    name: 'count-sold-if-free',
    text: `UPDATE sales SET sold = sold + $2, version = version + 1
           WHERE id = $1 AND sold + $2 <= stock AND max_per_order >= $2 AND ${isOpen('$4::boolean')}
             AND limit_group IS NOT DISTINCT FROM (SELECT limit_group FROM orders WHERE id = $3)`,
    values: [saleId, quantity, orderId, isEarly],
  });
  return rowCount === 1;
}
