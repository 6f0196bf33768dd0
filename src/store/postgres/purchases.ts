/**
 * The statements of a purchase, shared by the Postgres strategies, so that what they differ in is the way they
 * decide, and nothing else. Each is prepared once for a connection, under its name.
 */
import type pg from 'pg';
import { limits } from '../../config/limits.ts';
import type { Attempt, OrderStatus, PlacedOrderColumns } from '../../domain/order.ts';
import { UnansweredError } from '../late-requests.ts';
import { ACTIVE } from './orders.ts';
import { classifyPostgresError, isAnswer, type PostgresStore } from './pool.ts';

/** Points that an order earns: one for each whole hundred cents, and at least one. */
export const EARNED = 'greatest(1, price_cents / 100)';

/** How a sale stands, by the database's clock at this moment (not at the transaction's start). */
export interface SaleState {
  readonly free: number;
  readonly version: number;
  readonly notStarted: boolean;
  readonly ended: boolean;
}

/** Nobody may buy outside the window; judged by the database's clock at the moment of the look. */
export const OPEN = `(starts_at IS NULL OR clock_timestamp() >= starts_at)
  AND (ends_at IS NULL OR clock_timestamp() < ends_at)`;

/** Writes the points of the rows of `placed`, a part of the statement that has inserted orders. */
export const EARN = `INSERT INTO points_entries (user_id, source_type, source_id, points)
  SELECT user_id, 'order', id::text, ${EARNED} FROM placed`;

/**
 * The end of a statement on a batch: which of `ids`, a parameter, its part `placed` has. Usually it has all of them, and
 * then one row says so: hundreds of rows with an id each cost a client as much as sending the batch did.
 */
export const selectPlaced = (ids: string) => `
  SELECT CASE WHEN count(*) < cardinality(${ids}) THEN coalesce(array_agg(id::text), '{}') END AS placed FROM placed`;

export interface PlacedRow {
  readonly placed: readonly string[] | null;
}

/** Reads what `selectPlaced` told. @returns whether an order was placed */
export function readPlaced(rows: readonly PlacedRow[]): (orderId: string) => boolean {
  const { placed } = rows[0]!;
  if (placed === null) return () => true;
  const some = new Set(placed);
  return (orderId) => some.has(orderId);
}

const STANDING = `stock - sold AS free, version,
  coalesce(clock_timestamp() < starts_at, false) AS "notStarted",
  coalesce(clock_timestamp() >= ends_at, false) AS ended`;

type Queryable = Pick<pg.PoolClient, 'query'>;

/**
 * Sends one statement that places orders, with a deadline: see late-requests.ts. The statement multiplies what it adds to
 * `sales.sold` with `before_deadline` of its parameter $5.
 * The connection stays when Postgres only said no: `pool.query` throws it away after every error, and a new one costs more
 * than hundreds of statements.
 * @param values of the parameters, without $5
 * @param untilMs on `performance.now()`'s clock: the deadline is no later than this
 * @throws UnansweredError when the statement may still be carried out; otherwise what Postgres, or the connection, throws
 */
export async function place<R extends pg.QueryResultRow>(
  { pool, clock }: PostgresStore,
  { name, text, values: [order, sale, user, window, ...others] }: PlacingStatement,
  untilMs = Number.POSITIVE_INFINITY,
): Promise<pg.QueryResult<R>> {
  await clock.synchronize();
  const client = await pool.connect();
  const leftMs = Math.min(limits.postgresStatementMs, untilMs - performance.now());
  const deadlineMs = clock.nowMs() + leftMs;
  let broken: Error | undefined;
  try {
    const values = [order, sale, user, window, new Date(deadlineMs), ...others];
    return await client.query<R>({ name, text, values });
  } catch (error) {
    if (!isAnswer(error)) broken = error as Error;
    if (isLost(error)) throw new UnansweredError(error, deadlineMs);
    if (isDeadlinePassed(error)) clock.invalidate();
    throw error;
  } finally {
    client.release(broken);
  }
}

export interface PlacingStatement {
  readonly name: string;
  readonly text: string;
  readonly values: readonly unknown[];
}

function isLost(error: unknown): boolean {
  try {
    return classifyPostgresError(error).kind === 'unknown';
  } catch {
    return !isAnswer(error); // what nobody foresaw may have happened after the statement was sent
  }
}

const isDeadlinePassed = (error: unknown) => (error as { code?: unknown }).code === 'ST001';

/**
 * Waits until a statement that was not answered has taken effect or never will: see late-requests.ts.
 * @param lateUntilMs its deadline, by Postgres's clock
 * @returns whether that is so; false: Postgres's clock was set back
 * @throws what Postgres throws
 */
export async function fenceSales(
  { pool, clock }: PostgresStore,
  saleIds: readonly number[],
  lateUntilMs: number,
): Promise<boolean> {
  if (!(await clock.hasPassed(lateUntilMs, FENCE_WAIT_MS))) return false;
  await pool.query({
    name: 'fence-sales',
    text: `UPDATE sales SET version = version + 1
           WHERE id IN (SELECT id FROM sales WHERE id = ANY($1::int[]) ORDER BY id FOR NO KEY UPDATE)`,
    values: [saleIds],
  });
  return true;
}
/** A deadline is this far away at most, unless a clock was set. */
const FENCE_WAIT_MS = 2 * limits.postgresStatementMs;

/**
 * What advisory locks are for, and the first of their two keys; the second is the sale. Locks with two keys never meet
 * those with one (the lock `postgres-advisory`, the migrations).
 */
const LOCK_CLASSES = { attempts: 0x5354_4d01, units: 0x5354_4d02 } as const;

/**
 * Waits for the advisory lock of a sale and holds it until the transaction ends. What was committed under it before is
 * seen from the next statement on.
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

/** Reads how a sale stands; null when there is none. `lock` holds its row until the transaction ends. */
export async function readSale(db: Queryable, saleId: number, lock = false): Promise<SaleState | null> {
  const { rows } = await db.query<SaleState>({
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
           ), earned AS (${EARN})
           SELECT count(*)::int AS placed FROM placed`,
    values: [attempt.orderId, attempt.saleId, attempt.userId, paymentWindowS],
  });
  return rows[0]?.placed === 1;
}

/** What a statement that decides by a condition is made from. */
export interface ConditionalSale {
  /** Under which it is prepared. */
  readonly name: string;
  /** On the row of `sales`. $1 is the order, $2 the sale, $3 the customer; $6 and on are `values`. */
  readonly condition: string;
  readonly values?: readonly unknown[];
}

/**
 * Counts a unit, inserts the order and writes its points, if the condition holds: one statement, so all or nothing.
 * Every part sees the tables as they were when it began; only the UPDATE waits for whoever has the sale's row, and then
 * looks at the condition once more, on the row as it is by now. What it counted reaches the INSERTs as its RETURNING,
 * not through a table. There is no ON CONFLICT: a customer's second order must take the count back with it.
 * @returns whether it was sold
 * @throws what Postgres throws for a customer who got an order after the statement had begun
 */
export async function sellIf(
  postgres: PostgresStore,
  { name, condition, values = [] }: ConditionalSale,
  attempt: Attempt,
  paymentWindowS: number,
): Promise<boolean> {
  const { rows } = await place<{ placed: number }>(postgres, {
    name,
    text: `WITH counted AS (
             UPDATE sales SET sold = sold + before_deadline($5), version = version + 1 WHERE id = $2 AND ${condition}
             RETURNING id, price_cents
           ), placed AS (
             INSERT INTO orders (id, sale_id, user_id, status, price_cents, expires_at)
             SELECT $1::uuid, id, $3::text, 'pending', price_cents, now() + make_interval(secs => $4) FROM counted
             RETURNING id, user_id, price_cents
           ), earned AS (${EARN})
           SELECT count(*)::int AS placed FROM placed`,
    values: [attempt.orderId, attempt.saleId, attempt.userId, paymentWindowS, ...values],
  });
  return rows[0]?.placed === 1;
}

/** A sale and the active orders that some of its customers have, all at one instant. */
export interface SaleAndOrders {
  readonly sale: SaleState;
  /** By the customer. */
  readonly orders: ReadonlyMap<string, PlacedOrderColumns>;
}

/**
 * Looks, in one statement and so at one instant, at a sale and at customers of it; null when there is no such sale. Who
 * has no order while nothing is free is sold out, whatever happened before and after.
 */
export async function readSaleAndOrders(
  db: Queryable,
  saleId: number,
  userIds: readonly string[],
): Promise<SaleAndOrders | null> {
  type Row = SaleState & {
    readonly userId: string;
    readonly id: string | null;
    readonly status: OrderStatus;
  };
  const { rows } = await db.query<Row>({
    name: 'readSaleAndOrders',
    // LATERAL … LIMIT 1 for the same reason as in orders.ts: a plan that was made while the table was empty is kept.
    text: `SELECT ${STANDING}, c.user_id AS "userId", o.id, o.status
           FROM sales CROSS JOIN unnest($2::text[]) AS c (user_id)
           LEFT JOIN LATERAL (
             SELECT id, status FROM orders WHERE sale_id = $1 AND orders.user_id = c.user_id AND ${ACTIVE} LIMIT 1
           ) AS o ON true
           WHERE sales.id = $1`,
    values: [saleId, userIds],
  });
  const sale = rows[0];
  if (sale === undefined) return null;
  const orders = rows.flatMap(({ userId, id, status }) =>
    id === null ? [] : [[userId, { id, status }] as const],
  );
  return { sale, orders: new Map(orders) };
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
           WHERE id = $1 AND sold < stock AND ${OPEN}`,
    values: [saleId],
  });
  return rowCount === 1;
}
