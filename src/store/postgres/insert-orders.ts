/**
 * The one statement that inserts orders, for the order committer and every strategy that commits, except `for-update-prisma`.
 * They differ in which rows they insert (`before` and `rows`) and when they count the units.
 *
 *   WITH …before…, placed AS (INSERT INTO orders …), counted AS (UPDATE sales SET sold = …), earned AS (INSERT INTO points …)
 *
 * All parts run in one statement, so all of them take effect or none. Each part sees the tables as they were when the
 * statement began; what one part wrote reaches another only through RETURNING.
 *
 * Parameters: $1 order id(s), $2 sale id(s), $3 user id(s), $4 quantity or quantities (of many orders null: one unit each),
 * $5 payment window in seconds, $6 deadline (see store/late-requests.ts); $7 and on belong to the caller. A statement is prepared once per
 * connection, under its name.
 */
import type pg from 'pg';
import { trace } from '../../concurrency/trace.ts';
import { limits } from '../../config/limits.ts';
import type { Attempt } from '../../domain/order.ts';
import type { Unanswered } from '../../domain/outcome.ts';
import {
  classifyPostgresError,
  expectedPostgresFailure,
  isAnswer,
  isDeadlinePassed,
} from '../failures/postgres.ts';
import { ACTIVE } from './orders.ts';
import { type Connection, ownConnection, type PostgresStore } from './pool.ts';

export interface OrderInsert {
  /** The name under which it is prepared. */
  readonly name: string;
  /** Common table expressions that `rows` reads. */
  readonly before?: string;
  /** A SELECT of order id, sale id, user id, quantity, price in cents, and the sale's own payment window and limit group. */
  readonly rows: string;
  /** Skips an order whose id exists or whose customer has an active order; otherwise such an order fails the statement. */
  readonly skipExisting?: boolean;
  /** Counts the inserted orders in `sales`. Null: another part or statement counts. */
  readonly count?: string | null;
  /** For statements on many orders: returns which ids were inserted. Otherwise returns how many. */
  readonly many?: boolean;
  /** With `many`: also `version` and `waitedMs` of `Placed`, from `sale` and what `count` returns. It is counted before the points are written. */
  readonly version?: boolean;
}

export interface Statement {
  readonly name: string;
  readonly text: string;
}

/** In the order of sale ids, so that two statements on the same sales do not deadlock. */
const COUNT_BY_SALE = `
  UPDATE sales SET sold = sold + c.units * before_deadline($6), version = version + 1
  FROM (SELECT sale_id, sum(quantity)::int AS units, max(limit_group) AS limit_group FROM placed GROUP BY sale_id ORDER BY sale_id) AS c
  WHERE sales.id = c.sale_id`;
/** The same, after orders were inserted from what was read before: fails if the limit group of a sale was changed since. */
const COUNT_LATE = COUNT_BY_SALE.replace(
  'before_deadline($6)',
  'before_deadline($6) * in_limit_group(sales.limit_group, c.limit_group)',
);

/** The same, and fails if a sale was paused meanwhile. */
export const COUNT_UNLESS_PAUSED = COUNT_LATE.replace(
  'before_deadline($6)',
  'before_deadline($6) * unless_paused(paused)',
);

/** The epochs in which orders of a sale were reserved: $7 sale ids, $8 an epoch for each. */
const RESERVED_IN =
  'ARRAY(SELECT epoch FROM unnest($7::int[], $8::int[]) AS r (sale_id, epoch) WHERE r.sale_id = sales.id)';
/** The same, and fails if a sale was loaded in another epoch since. It waits for a load that has begun, and then sees its epoch. */
const COUNT_IN_EPOCH = COUNT_LATE.replace(
  'before_deadline($6)',
  `before_deadline($6) * in_epoch(mirror_epoch, ${RESERVED_IN})`,
);
/** That a sale was not. */
const IN_EPOCH = `(mirror_epoch <> ANY (${RESERVED_IN})) IS NOT TRUE`;

/**
 * The orders of a batch. Those that were reserved have offers, $9 prices (null: none) and $10 payment windows. Of the others that of the sale
 * counts, and $7 says which are early (null: none).
 */
const input = (isReserved: boolean): string => {
  const [values, names] = isReserved
    ? [', $9::int[], $10::int[]', ', price_cents, window_s']
    : [', $7::boolean[]', ', is_early'];
  return `SELECT id, sale_id, user_id, coalesce(quantity, 1) AS quantity, place${names}
    FROM unnest($1::uuid[], $2::int[], $3::text[], $4::int[]${values}) WITH ORDINALITY AS t (id, sale_id, user_id, quantity${names}, place)`;
};
const offer = (isReserved: boolean, sale: string): string =>
  isReserved
    ? `coalesce(input.price_cents, ${sale}.price_cents) AS price_cents,
       CASE WHEN input.price_cents IS NULL THEN ${sale}.payment_window_s ELSE input.window_s END AS payment_window_s, ${sale}.limit_group`
    : `${sale}.price_cents, ${sale}.payment_window_s, ${sale}.limit_group`;

/**
 * Inserts all orders of a batch that were reserved, or none.
 * @param where a condition
 */
export const insertReserved = (name: string, where = 'true'): Statement =>
  insertOrders({
    name,
    rows: `SELECT input.id, input.sale_id, input.user_id, input.quantity, ${offer(true, 'sales')}
           FROM (${input(true)}) AS input JOIN sales ON sales.id = input.sale_id WHERE ${where}`,
    count: COUNT_IN_EPOCH,
    many: true,
  });

/**
 * Usually a batch inserts all of its orders, and one row reports that: hundreds of rows with one id each would cost the client
 * as much as sending the batch.
 */
const returnIds = (also: string) =>
  `SELECT CASE WHEN count(*) < cardinality($1::uuid[]) THEN coalesce(array_agg(id::text), '{}') END AS placed${also} FROM placed`;
const RETURN_IDS = returnIds('');
const RETURN_IDS_AND_VERSION = returnIds(`, (SELECT max(version) FROM counted) AS version,
  (SELECT extract(epoch FROM max(locked_at) - statement_timestamp())::float8 * 1000 FROM sale) AS "waitedMs"`);
const RETURN_COUNT = 'SELECT count(*)::int AS placed FROM placed';

/**
 * When an order must be paid. After a cancelled one of the same customer it is that one's deadline: to cancel and buy again holds no
 * unit for longer.
 */
export const paymentDeadline = (saleId: string, userId: string, windowS: string): string =>
  `least(now() + make_interval(secs => ${windowS}), (
    SELECT min(expires_at) FROM orders AS earlier WHERE earlier.sale_id = ${saleId} AND earlier.user_id = ${userId}
      AND earlier.status = 'cancelled' AND earlier.expires_at > now()
  ))`;

/**
 * The order in which triggers count the units of customers, whose rows other sales of a group lock, too: the same in every statement, so that
 * none of them deadlock. Without a group all keys are null, and rows stay as they are.
 */
const BY_CUSTOMER = 'ORDER BY o.limit_group, CASE WHEN o.limit_group IS NOT NULL THEN o.user_id END';

/** Builds the statement. `counted` precedes `earned`: Postgres runs such parts from the last one on, so the sale's row is locked last. */
export function insertOrders({
  name,
  before,
  rows,
  skipExisting = false,
  count = COUNT_BY_SALE,
  many = false,
  version = false,
}: OrderInsert): Statement {
  const parts = [
    ...(before === undefined ? [] : [before]),
    `placed AS (
      INSERT INTO orders (id, sale_id, user_id, quantity, status, price_cents, expires_at, limit_group)
      SELECT o.id, o.sale_id, o.user_id, o.quantity, 'pending', o.price_cents,
        ${paymentDeadline('o.sale_id', 'o.user_id', 'coalesce(o.window_s, $5)')}, o.limit_group
      FROM (${rows}) AS o (id, sale_id, user_id, quantity, price_cents, window_s, limit_group)
      ${many ? BY_CUSTOMER : ''}
      ${skipExisting ? 'ON CONFLICT DO NOTHING' : ''}
      RETURNING id, sale_id, user_id, quantity, price_cents, limit_group
    )`,
    ...(count === null ? [] : [`counted AS (${count})`]),
    `earned AS (
      INSERT INTO points_entries (user_id, source_type, source_id, points)
      SELECT user_id, 'order', id::text, points_earned(price_cents * quantity) FROM placed
    )`,
  ];
  const returned = version ? RETURN_IDS_AND_VERSION : many ? RETURN_IDS : RETURN_COUNT;
  return { name, text: `WITH ${parts.join(', ')} ${returned}` };
}

/** The columns of one order, from a row with the sale's. */
export const ONE_ORDER_OF_SALE =
  '$1::uuid, id, $3::text, $4::int, price_cents, payment_window_s, limit_group';
/** The row of one order. */
export const ONE_ORDER = `SELECT ${ONE_ORDER_OF_SALE} FROM sales WHERE id = $2`;

/**
 * That a sale sells: not paused, and within its window by the database's clock at this moment (not at the transaction's start).
 * @param early a condition under which the start does not matter: see `isEarly` of an attempt
 */
export const isOpen = (early = 'false'): string =>
  `NOT paused AND (starts_at IS NULL OR clock_timestamp() >= starts_at OR ${early}) AND (ends_at IS NULL OR clock_timestamp() < ends_at)`;

/**
 * Counts the units if a condition on the sale's row holds, and inserts the order. Only the UPDATE waits for another holder of the
 * row, and then evaluates the condition again on the row's newest version. An existing order fails the statement, so that the
 * units are not counted.
 * @param condition $1 is the order, $2 the sale, $3 the customer, $4 the quantity; $7 and on belong to the caller
 */
export function insertIf(name: string, condition: string): Statement {
  return insertOrders({
    name,
    before: `counted AS (
      UPDATE sales SET sold = sold + $4::int * before_deadline($6), version = version + 1 WHERE id = $2 AND ${condition}
      RETURNING id, price_cents, payment_window_s, limit_group
    )`,
    rows: `SELECT ${ONE_ORDER_OF_SALE} FROM counted`,
    count: null,
  });
}

/**
 * Inserts as many of a batch's orders as their sales have free units, first come first served: an order that asks for more than are left
 * at its turn takes none, and leaves them to those behind it. The rows of the sales are
 * locked, as an UPDATE of `sold` locks them, so that foreign keys to them are checked meanwhile; after waiting for that
 * lock, `sale` has the row's newest version. A customer with an active order takes no unit, and no INSERT is tried: while that
 * order is being cancelled, an INSERT would wait for the cancellation with the row locked. Nor does a customer at the limit of the sale's
 * group.
 * @param condition under which a sale sells, with `isOpen`; other sales are not locked. Missing: the orders were reserved, in the epoch of
 *   the sale
 * @param isLimited only orders within the sale's limit
 * @param skipLocked skips the orders of a sale whose row is locked; otherwise waits for it
 */
export function insertUpToStock(name: string, options: UpToStock): ByQuantity {
  return {
    single: insertNewcomers(name, { ...options, isMixed: false }),
    mixed: insertNewcomers(`${name}-mixed`, { ...options, isMixed: true }),
  };
}

interface UpToStock {
  readonly condition?: string;
  readonly isLimited: boolean;
  readonly skipLocked: boolean;
}

/** `single` is for orders of one unit each, and costs less; `mixed` for any quantities. */
interface ByQuantity {
  readonly single: Statement;
  readonly mixed: Statement;
}
export type BatchStatement = Statement | ByQuantity;

/** Units of a customer in the sales of a sale's group. */
export const unitsHeld = (sale: string, user: string): string =>
  `coalesce((SELECT units FROM customer_units AS c WHERE c.limit_group = ${sale}.limit_group AND c.user_id = ${user}), 0)`;

function insertNewcomers(
  name: string,
  { condition, isMixed, isLimited, skipLocked }: UpToStock & { readonly isMixed: boolean },
): Statement {
  const isReserved = condition === undefined;
  const turn = 'OVER (PARTITION BY input.sale_id ORDER BY input.place)';
  const fits = isMixed
    ? 'taken > coalesce(lag(taken) OVER (PARTITION BY sale_id ORDER BY place), 0)'
    : 'taken <= free';
  return insertOrders({
    name,
    before: `input AS (${input(isReserved)}
    ), sale AS (
      SELECT *, clock_timestamp() AS locked_at FROM (
        SELECT id, price_cents, payment_window_s, limit_group, max_per_customer, max_per_order, stock - sold AS free${isReserved ? '' : ', coalesce(clock_timestamp() >= starts_at, true) AS has_started'}
        FROM sales WHERE id IN (SELECT sale_id FROM input) AND ${condition ?? IN_EPOCH} ORDER BY id FOR NO KEY UPDATE${skipLocked ? ' SKIP LOCKED' : ''}
      ) AS locked
    ), newcomers AS (
      SELECT input.id, input.sale_id, input.user_id, input.quantity, ${offer(isReserved, 'sale')}, sale.free, input.place,
        ${isMixed ? 'units_taken(input.quantity, sale.free)' : 'row_number()'} ${turn} AS taken
      FROM input JOIN sale ON sale.id = input.sale_id${isReserved ? '' : ' AND (sale.has_started OR input.is_early)'}${isLimited ? ' AND input.quantity <= sale.max_per_order' : ''}
      LEFT JOIN LATERAL (
        SELECT id FROM orders
        WHERE orders.sale_id = input.sale_id AND orders.user_id = input.user_id AND ${ACTIVE} LIMIT 1
      ) AS active ON true
      WHERE active.id IS NULL AND CASE WHEN sale.limit_group IS NULL THEN true
        ELSE input.quantity <= sale.max_per_customer - ${unitsHeld('sale', 'input.user_id')} END
    )`,
    rows: `SELECT id, sale_id, user_id, quantity, price_cents, payment_window_s, limit_group
      FROM (SELECT *, ${fits} AS fits FROM newcomers) AS n WHERE fits ORDER BY place`,
    skipExisting: true,
    count: `${COUNT_BY_SALE} RETURNING sales.version`,
    many: true,
    version: true, // the rows of the sales are locked anyway
  });
}

/** The orders that a statement inserted. */
export interface Placed {
  readonly kind: 'placed';
  readonly has: (orderId: string) => boolean;
  /** What the version of the sale is afterwards. Null: the statement does not say, or inserted nothing. */
  readonly version: number | null;
  /** How long it waited for the row of the sale, milliseconds. Null: the statement does not say, or the sale does not sell. */
  readonly waitedMs: number | null;
}

interface Batch {
  readonly connect: () => Promise<Connection>;
  readonly attempts: readonly Attempt[];
  /** The values of the parameters from $7 on. */
  readonly others?: readonly unknown[];
}

/** Executes a statement made with `many`. See `place`. */
export async function placeMany(
  postgres: PostgresStore,
  statement: BatchStatement,
  { connect, attempts, others = [] }: Batch,
  paymentWindowS: number,
  untilMs?: number,
): Promise<Placed | Unanswered> {
  const isSingle = attempts.every(({ quantity }) => quantity === 1);
  const values = [
    attempts.map(({ orderId }) => orderId),
    attempts.map(({ saleId }) => saleId),
    attempts.map(({ userId }) => userId),
    isSingle ? null : attempts.map(({ quantity }) => quantity),
    paymentWindowS,
    ...others,
  ];
  const result = await place<Partial<Placed> & { readonly placed: readonly string[] | null }>(
    postgres,
    { ...('single' in statement ? statement[isSingle ? 'single' : 'mixed'] : statement), values },
    connect,
    untilMs,
  );
  if ('kind' in result) return result;
  const { placed, version = null, waitedMs = null } = result.rows[0]!;
  const ids = placed && new Set(placed);
  return { kind: 'placed', has: (orderId) => ids === null || ids.has(orderId), version, waitedMs };
}

/** Executes a statement on one order. @returns whether it was inserted. See `place`. */
export async function placeOne(
  postgres: PostgresStore,
  statement: Statement,
  { orderId, saleId, userId, quantity }: Attempt,
  paymentWindowS: number,
  others: readonly unknown[] = [],
): Promise<boolean | Unanswered> {
  const values = [orderId, saleId, userId, quantity, paymentWindowS, ...others];
  const result = await place<{ placed: number }>(postgres, { ...statement, values }, () =>
    ownConnection(postgres.pool),
  );
  return 'kind' in result ? result : result.rows[0]?.placed === 1;
}

/**
 * Sends a statement with a deadline: see store/late-requests.ts. When Postgres answers with an error, the connection is kept:
 * `pool.query` would discard it, and a new one costs more than hundreds of statements.
 *
 * The deadline does not grow with the statements before it on its connection, as the timeout does: it bounds how long an unanswered statement
 * may still take effect, and so how long its customer waits. A statement that begins after it is answered, and sent again.
 * @param values of the parameters, without $6
 * @param untilMs latest deadline, on `performance.now()`'s clock
 * @throws what Postgres answered, and what pg throws before the statement is sent
 */
async function place<R extends pg.QueryResultRow>(
  { clock }: PostgresStore,
  {
    values: [orders, sales, users, quantities, window, ...others],
    ...statement
  }: Statement & { readonly values: readonly unknown[] },
  connect: () => Promise<Connection>,
  untilMs = Number.POSITIVE_INFINITY,
): Promise<pg.QueryResult<R> | Unanswered> {
  await clock.synchronize();
  const { client, release } = await connect();
  const leftMs = Math.min(limits.postgresStatementMs, untilMs - performance.now());
  const deadlineMs = clock.nowMs() + leftMs;
  let broken: Error | undefined;
  try {
    const values = [orders, sales, users, quantities, window, new Date(deadlineMs), ...others];
    return await trace({ name: statement.name }, () => client.query<R>({ ...statement, values }));
  } catch (error) {
    if (!isAnswer(error)) broken = error as Error;
    const failure = classifyPostgresError(error);
    // A defect that is not a reply may have happened after the statement was sent.
    if (failure.kind === 'unknown' || (failure.kind === 'defect' && !isAnswer(error)))
      return { kind: 'unanswered', reason: failure.reason, lateUntilMs: deadlineMs };
    if (isDeadlinePassed(error)) clock.invalidate();
    throw error;
  } finally {
    release(broken);
  }
}

/** A deadline is at most this far away, unless a clock was set. */
const BARRIER_WAIT_MS = 2 * limits.postgresStatementMs;

/**
 * Waits until an unanswered statement has taken effect or never will: see store/late-requests.ts.
 * @param lateUntilMs its deadline, by Postgres's clock
 * @returns whether that is certain; false: Postgres's clock was set back, or Postgres failed
 * @throws a defect
 */
export async function setBarrier(
  { pool, clock }: PostgresStore,
  saleIds: readonly number[],
  lateUntilMs: number,
): Promise<boolean> {
  try {
    if (!(await clock.hasPassed(lateUntilMs, BARRIER_WAIT_MS))) return false;
    await pool.query({
      name: 'set-barrier',
      text: `UPDATE sales SET version = version + 1
             WHERE id IN (SELECT id FROM sales WHERE id = ANY($1::int[]) ORDER BY id FOR NO KEY UPDATE)`,
      values: [saleIds],
    });
    return true;
  } catch (error) {
    expectedPostgresFailure(error);
    return false;
  }
}
