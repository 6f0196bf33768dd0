/**
 * Commits in Postgres what a strategy reserved in Redis: order, count and points, in one statement for as many
 * orders as are waiting.
 *
 *   commit ──▶ waiting ──its turn (batches.ts)──▶ in a batch ──┬─▶ placed ──────────────────▶ committed
 *     │ queue full                                           ├─▶ not placed: conflict ─────▶ existing, or committed
 *     └─▶ busy                                               │   (by an earlier try), or no such sale
 *                                                            ├─▶ a unique key refused ─────▶ the same batch again, each
 *                                                            │                               order only if it can be placed
 *                                                            ├─▶ the CHECK refused ────────▶ the batch in halves,
 *                                                            │                               down to the one: sold-out
 *                                                            ├─▶ deadlock ─────────────────▶ the same batch again
 *                                                            └─▶ no answer ────────────────▶ again, within bounds; else unknown
 *
 * There is no timer: a lone order goes at once, and orders that come while statements are under way form the next
 * batch. A failing member never fails its neighbours. Every step is idempotent under the order's id, so recovery
 * may commit the same reservation at the same time.
 */
import { limits } from '../config/limits.ts';
import type { PlacedOrder, Reservation } from '../domain/outcome.ts';
import type { Instruments } from '../metrics/instruments.ts';
import type { OrderTable } from '../store/orders.ts';
import { classifyPostgresError, type PostgresFailure, type PostgresStore } from '../store/postgres.ts';
import { EARNED, type PlacedRow, readPlaced, tellPlaced } from '../store/purchase-sql.ts';
import type { RedisSales } from '../store/redis-sale.ts';
import { batches } from '../strategies/batches.ts';

export type CommitResult =
  | { readonly kind: 'committed'; readonly order: PlacedOrder }
  /** The customer has another active order. */
  | { readonly kind: 'existing'; readonly order: PlacedOrder }
  /** Postgres has no unit, or no such sale. Nothing was written. */
  | { readonly kind: 'refused'; readonly reason: 'sold-out' | 'unknown-sale' }
  /** Nothing was written; trying again may help. */
  | { readonly kind: 'busy'; readonly reason: string }
  /** No answer came: the order may be committed. */
  | { readonly kind: 'unknown'; readonly reason: string };

export interface Writer {
  /**
   * Commits one reservation, together with others that wait. Never throws for what Postgres does.
   * @param patient waits for its turn however long it takes: somebody was told that it will come
   */
  commit(reservation: Reservation, patient?: boolean): Promise<CommitResult>;
  /** Whether a reservation waits or is under way here. */
  holds(orderId: string): boolean;
  /** Reservations that wait for the next statement. */
  readonly waiting: number;
  /** Waits until nothing is waiting or under way. */
  idle(): Promise<void>;
}

export interface WriterContext {
  readonly postgres: PostgresStore;
  readonly orders: OrderTable;
  readonly reservations: RedisSales;
  readonly instruments: Instruments;
  readonly paymentWindowS: number;
  /** Told of failures that no caller waits for. */
  readonly onError: (doing: string, error: unknown) => void;
}

/**
 * Sales are counted in the order of their ids: two statements that have the same ones do not wait for each other crosswise.
 * @param onConflict what happens to an order whose id is there, or whose customer has another
 */
const insertOf = (onConflict: string) => `
  WITH input AS (
    SELECT * FROM unnest($1::uuid[], $2::int[], $3::text[]) AS t(id, sale_id, user_id)
  ), placed AS (
    INSERT INTO orders (id, sale_id, user_id, status, price_cents, expires_at)
    SELECT input.id, input.sale_id, input.user_id, 'pending', sales.price_cents, now() + make_interval(secs => $4)
    FROM input JOIN sales ON sales.id = input.sale_id
    ${onConflict}
    RETURNING id, sale_id, user_id, price_cents
  ), counted AS (
    UPDATE sales SET sold = sold + c.units, version = version + 1
    FROM (SELECT sale_id, count(*)::int AS units FROM placed GROUP BY sale_id ORDER BY sale_id) AS c
    WHERE sales.id = c.sale_id
  ), earned AS (
    INSERT INTO points_entries (user_id, source_type, source_id, points)
    SELECT user_id, 'order', id::text, ${EARNED} FROM placed
  )
  ${tellPlaced('$1::uuid[]')}`;

/**
 * Redis has looked who has an order, so that hardly one meets another: not to look again before each insert is what makes it
 * cheap. When one does, nothing of the batch is written.
 */
const ALL_OR_NONE = { name: 'commit-orders', text: insertOf('') };
/** For a batch with an order that is there already. */
const WHAT_CAN_BE = { name: 'commit-orders-again', text: insertOf('ON CONFLICT DO NOTHING') };
const UNIQUE_VIOLATION = '23505';

/** Orders of all sales form one line. */
const LINE = 0;

export function createWriter(context: WriterContext): Writer {
  /** Orders that are waiting or under way, with how often. */
  const held = new Map<string, number>();
  const whenIdle: (() => void)[] = [];

  const line = batches<Reservation, CommitResult>({
    async work(_line, reservations, answer) {
      const results = await commitBatch(context, reservations);
      for (const [i, reservation] of reservations.entries()) answer(reservation, results[i]!);
      settle(reservations.filter((_, i) => results[i]!.kind === 'committed'));
    },
    most: limits.writerBatchSize,
    inFlight: limits.writerInFlight,
    few: limits.batchFew,
    queueMost: limits.writerQueue,
    waitMs: limits.writerWaitMs,
    turnedDown: (reason) => ({ kind: 'busy', reason: `writer-${reason}` }),
    ofOneMember: () => false, // commitBatch finds out who
    onBatch: (size) => context.instruments.writerBatch.observe(size),
  });

  /** Nobody waits for this: a reservation that stays is found by recovery, which sees that Postgres has it. */
  function settle(reservations: readonly Reservation[]): void {
    context.reservations.settle(reservations).catch((error) => context.onError('settle', error));
  }

  return {
    async commit(reservation, patient) {
      const { orderId } = reservation;
      held.set(orderId, (held.get(orderId) ?? 0) + 1);
      try {
        return await line.ask(LINE, reservation, patient);
      } finally {
        const left = held.get(orderId)! - 1;
        if (left > 0) held.set(orderId, left);
        else held.delete(orderId);
        if (held.size === 0) for (const wake of whenIdle.splice(0)) wake();
      }
    },
    holds: (orderId) => held.has(orderId),
    get waiting() {
      return line.waiting;
    },
    idle() {
      if (held.size === 0) return Promise.resolve();
      return new Promise((resolve) => whenIdle.push(resolve));
    },
  };
}

/**
 * One result for each reservation, in their order.
 * @param lost why an earlier statement with these reservations was not answered; null: each was
 */
async function commitBatch(
  context: WriterContext,
  batch: readonly Reservation[],
  lost: string | null = null,
): Promise<readonly CommitResult[]> {
  const untilMs = performance.now() + limits.writerPatienceMs;
  let unanswered = lost;
  let statement = lost === null ? ALL_OR_NONE : WHAT_CAN_BE;
  for (let tries = 0; tries < limits.writerRetries && performance.now() < untilMs; tries++) {
    let failure: PostgresFailure;
    try {
      return await resultsOf(context, batch, await insert(context, statement, batch), unanswered);
    } catch (error) {
      failure = classifyPostgresError(error);
    }
    if (failure.kind === 'refused') {
      if (failure.code !== UNIQUE_VIOLATION || statement === WHAT_CAN_BE)
        return commitHalves(context, batch, failure.constraint, unanswered);
      statement = WHAT_CAN_BE;
      continue;
    }
    const { kind, reason } = failure;
    if (reason === 'refused-by-postgres') return commitHalves(context, batch, '', unanswered);
    if (kind === 'unknown') {
      unanswered = reason;
      statement = WHAT_CAN_BE;
    } else if (reason !== 'deadlock' && reason !== 'serialization-failure') {
      return batch.map(() => notCommitted(reason, unanswered));
    }
  }
  return batch.map(() => notCommitted('contended', unanswered));
}

/** Nothing was written, as far as this try goes; whether an earlier one wrote is not known when its answer was lost. */
function notCommitted(reason: string, unanswered: string | null): CommitResult {
  return unanswered === null ? { kind: 'busy', reason } : { kind: 'unknown', reason: unanswered };
}

/** Postgres refused the batch because of a member: halves find out which, and the others go through. */
async function commitHalves(
  context: WriterContext,
  batch: readonly Reservation[],
  constraint: string,
  unanswered: string | null,
): Promise<readonly CommitResult[]> {
  if (batch.length === 1) {
    return constraint === 'sales_sold_within_stock'
      ? [{ kind: 'refused', reason: 'sold-out' }]
      : [notCommitted(`refused-by-postgres:${constraint}`, unanswered)];
  }
  const middle = batch.length >> 1;
  const first = await commitBatch(context, batch.slice(0, middle), unanswered);
  return [...first, ...(await commitBatch(context, batch.slice(middle), unanswered))];
}

/** @returns whether an order was placed */
async function insert(
  context: WriterContext,
  statement: typeof ALL_OR_NONE,
  batch: readonly Reservation[],
): Promise<(orderId: string) => boolean> {
  const { rows } = await context.postgres.pool.query<PlacedRow>({
    ...statement,
    values: [
      batch.map((r) => r.orderId),
      batch.map((r) => r.saleId),
      batch.map((r) => r.userId),
      context.paymentWindowS,
    ],
  });
  return readPlaced(rows);
}

/**
 * What was not placed met an order that is there already, or a sale that is not. What was placed is committed, also
 * when that cannot be looked up now.
 */
async function resultsOf(
  { orders }: WriterContext,
  batch: readonly Reservation[],
  isPlaced: (orderId: string) => boolean,
  unanswered: string | null,
): Promise<readonly CommitResult[]> {
  const rest = batch.filter((r) => !isPlaced(r.orderId));
  let found: ReadonlyMap<string, PlacedOrder> | string;
  try {
    found = rest.length === 0 ? new Map() : await ordersOf(orders, rest);
  } catch (error) {
    const failure = classifyPostgresError(error);
    found = failure.kind === 'refused' ? failure.code : failure.reason;
  }
  return batch.map(({ orderId, saleId, userId }): CommitResult => {
    if (isPlaced(orderId))
      return { kind: 'committed', order: { orderId, saleId, userId, status: 'pending' } };
    if (typeof found === 'string') return notCommitted(found, unanswered);
    const order = found.get(orderId);
    if (order === undefined) return { kind: 'refused', reason: 'unknown-sale' };
    const kind = order.orderId === orderId ? 'committed' : 'existing';
    return { kind, order: { orderId: order.orderId, saleId, userId, status: order.status } };
  });
}

/** The order that each reservation met: its own from an earlier try, or the customer's other one; by its order id. */
async function ordersOf(
  orders: OrderTable,
  rest: readonly Reservation[],
): Promise<ReadonlyMap<string, PlacedOrder>> {
  const active = await orders.activeOf(rest);
  const byCustomer = new Map(active.map((order) => [`${order.saleId} ${order.userId}`, order]));
  const found = new Map<string, PlacedOrder>();
  for (const { orderId, saleId, userId } of rest) {
    const order = byCustomer.get(`${saleId} ${userId}`) ?? (await orders.get(orderId));
    if (order !== null) found.set(orderId, order);
  }
  return found;
}
