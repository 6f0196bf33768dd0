/**
 * Commits in Postgres what a strategy reserved in Redis: order, count and points, in one statement for as many orders as
 * are waiting.
 *
 *   commit ──▶ waiting ──its turn──▶ in a batch ──┬─▶ placed ────────────────────▶ committed
 *     │ queue full                                ├─▶ not placed, another order ─▶ existing, or committed by an earlier try
 *     └─▶ busy                                    ├─▶ not placed, no unit ───────▶ refused
 *                                                 ├─▶ unique violation ──────────▶ again, skipping existing orders
 *                                                 ├─▶ CHECK violation ───────────▶ again, up to the stock of each sale
 *                                                 ├─▶ refused otherwise ─────────▶ in halves, down to one order
 *                                                 ├─▶ deadlock ──────────────────▶ again
 *                                                 └─▶ no answer ─────────────────▶ fenced, then again within bounds; else unknown
 *
 * There is no timer: a lone order goes at once, and orders that arrive while statements are in progress form the next batch.
 * A failing member never fails its neighbors.
 *
 * Each reservation is committed under a claim (domain/outcome.ts). No statement takes effect after the claim's end, but one
 * that ran before may still be waiting inside Postgres for its commit. So the next process that claims the reservation first
 * fences its sale (store/late-requests.ts): what it then finds is final.
 */
import { microBatcher } from '../concurrency/micro-batcher.ts';
import { limits } from '../config/limits.ts';
import type { ClaimedReservation, PlacedOrder, Reservation } from '../domain/outcome.ts';
import type { Instruments } from '../metrics/instruments.ts';
import { ACTIVE, type OrderTable } from '../store/postgres/orders.ts';
import {
  blamesRows,
  classifyPostgresError,
  isAnswer,
  type PostgresFailure,
  type PostgresStore,
} from '../store/postgres/pool.ts';
import {
  EARNED,
  fenceSales,
  type PlacedRow,
  place,
  readPlaced,
  selectPlaced,
} from '../store/postgres/purchases.ts';
import type { SaleMirror } from '../store/redis/sale-mirror.ts';

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

export interface OrderCommitter {
  /**
   * Commits one reservation, together with others that wait. Never throws for what Postgres does.
   * @param patient waits for its turn until the claim ends; `busy` with the reason CLAIM_OVER then leaves the reservation to
   *   whoever claims it next
   */
  commit(reservation: ClaimedReservation, patient?: boolean): Promise<CommitResult>;
  /** Reservations that wait for the next statement. */
  readonly waiting: number;
  /** Waits until nothing is waiting or under way. */
  idle(): Promise<void>;
}

export interface OrderCommitterContext {
  readonly postgres: PostgresStore;
  readonly orders: OrderTable;
  readonly mirror: SaleMirror;
  readonly instruments: Instruments;
  readonly paymentWindowS: number;
  /** Told of failures that no caller waits for. */
  readonly onError: (doing: string, error: unknown) => void;
}

const INPUT = 'unnest($1::uuid[], $2::int[], $3::text[])';

/** Sales are counted in the order of their ids: two statements that have the same ones do not wait for each other crosswise. */
const COUNT_AND_TELL = `counted AS (
    UPDATE sales SET sold = sold + c.units * before_deadline($5), version = version + 1
    FROM (SELECT sale_id, count(*)::int AS units FROM placed GROUP BY sale_id ORDER BY sale_id) AS c
    WHERE sales.id = c.sale_id
  ), earned AS (
    INSERT INTO points_entries (user_id, source_type, source_id, points)
    SELECT user_id, 'order', id::text, ${EARNED} FROM placed
  )
  ${selectPlaced('$1::uuid[]')}`;

/** @param onConflict what happens to an order whose id is there, or whose customer has another */
const insertOf = (onConflict: string) => `
  WITH input AS (
    SELECT * FROM ${INPUT} AS t(id, sale_id, user_id)
  ), placed AS (
    INSERT INTO orders (id, sale_id, user_id, status, price_cents, expires_at)
    SELECT input.id, input.sale_id, input.user_id, 'pending', sales.price_cents, now() + make_interval(secs => $4)
    FROM input JOIN sales ON sales.id = input.sale_id
    ${onConflict}
    RETURNING id, sale_id, user_id, price_cents
  ), ${COUNT_AND_TELL}`;

/**
 * Redis has looked who has an order, so that hardly one meets another: not to look again before each insert is what makes it
 * cheap. When one does, nothing of the batch is written.
 */
const INSERT_ALL = { name: 'commit-orders', text: insertOf('') };
/** For a batch with an order that is there already. */
const INSERT_SKIP_EXISTING = { name: 'commit-orders-again', text: insertOf('ON CONFLICT DO NOTHING') };
/**
 * For a batch of which Postgres does not have all units: each sale is held, and its free units go to the first that came
 * and have no order. The others cost nothing more, and the other sales of the batch do not wait for them.
 */
const INSERT_UP_TO_STOCK = {
  name: 'commit-orders-that-fit',
  text: `
  WITH input AS (
    SELECT * FROM ${INPUT} WITH ORDINALITY AS t(id, sale_id, user_id, place)
  ), sale AS (
    SELECT id, price_cents, stock - sold AS free FROM sales
    WHERE id IN (SELECT sale_id FROM input) ORDER BY id FOR NO KEY UPDATE
  ), newcomers AS (
    SELECT input.*, row_number() OVER (PARTITION BY input.sale_id ORDER BY input.place) AS turn FROM input
    LEFT JOIN LATERAL (
      SELECT id FROM orders WHERE sale_id = input.sale_id AND user_id = input.user_id AND ${ACTIVE} LIMIT 1
    ) AS o ON true
    WHERE o.id IS NULL
  ), placed AS (
    INSERT INTO orders (id, sale_id, user_id, status, price_cents, expires_at)
    SELECT n.id, n.sale_id, n.user_id, 'pending', sale.price_cents, now() + make_interval(secs => $4)
    FROM newcomers AS n JOIN sale ON sale.id = n.sale_id
    WHERE n.turn <= sale.free
    ON CONFLICT DO NOTHING
    RETURNING id, sale_id, user_id, price_cents
  ), ${COUNT_AND_TELL}`,
};
const UNIQUE_VIOLATION = '23505';
const NO_UNIT = 'sales_sold_within_stock';

/** Orders of all sales form one line; those that were claimed from another process form another, as they need a fence. */
const LINE = 0;
const CLAIMED_ANEW = 1;

const NOT_FENCED: CommitResult = { kind: 'busy', reason: 'earlier-commit-in-progress' };

/** The reason of `busy` when the claim ended while the reservation waited for its turn. */
export const CLAIM_OVER = 'writer-waited-too-long';

export function createOrderCommitter(context: OrderCommitterContext): OrderCommitter {
  let inProgress = 0;
  const whenIdle: (() => void)[] = [];

  const line = microBatcher<ClaimedReservation, CommitResult>({
    async work(key, reservations, answer) {
      if (key === CLAIMED_ANEW && !(await isFenced(context, reservations, 0))) {
        for (const reservation of reservations) answer(reservation, NOT_FENCED);
        return;
      }
      const results = await commitBatch(context, reservations);
      for (const [i, reservation] of reservations.entries()) answer(reservation, results[i]!);
      settle(reservations.filter((_, i) => results[i]!.kind === 'committed'));
    },
    maxBatch: limits.commitBatchSize,
    inFlight: limits.commitInFlight,
    eagerBelow: limits.batchEagerBelow,
    maxQueued: limits.commitQueue,
    waitMs: limits.commitWaitMs,
    rejected: (reason) => ({ kind: 'busy', reason: `writer-${reason}` }),
    isMemberError: () => false, // commitBatch finds out who
    onBatch: (size) => context.instruments.commitBatchSize.observe(size),
  });

  /** Nobody waits for this: a reservation that stays is found by recovery, which sees that Postgres has it. */
  function settle(reservations: readonly Reservation[]): void {
    context.mirror
      .acknowledge(reservations)
      .catch((error) => context.onError('acknowledge-reservations', error));
  }

  return {
    async commit(reservation, patient = false) {
      const waitMs = patient ? Number.POSITIVE_INFINITY : limits.commitWaitMs;
      const untilMs = Math.min(performance.now() + waitMs, reservation.untilMs - limits.claimLeastMs);
      inProgress++;
      try {
        return await line.submit(reservation.isFirst ? LINE : CLAIMED_ANEW, reservation, untilMs);
      } finally {
        inProgress--;
        if (inProgress === 0) for (const wake of whenIdle.splice(0)) wake();
      }
    },
    get waiting() {
      return line.waiting;
    },
    idle() {
      if (inProgress === 0) return Promise.resolve();
      return new Promise((resolve) => whenIdle.push(resolve));
    },
  };
}

/**
 * One result for each reservation, in their order.
 * @param lost why an earlier statement with these reservations was not answered; null: each was
 */
async function commitBatch(
  context: OrderCommitterContext,
  batch: readonly ClaimedReservation[],
  lost: string | null = null,
): Promise<readonly CommitResult[]> {
  const claimEndMs = batch.reduce((end, { untilMs }) => Math.min(end, untilMs), Number.POSITIVE_INFINITY);
  const untilMs = Math.min(performance.now() + limits.commitGiveUpMs, claimEndMs);
  const results = new Map<string, CommitResult>();
  const whole = (rest: readonly ClaimedReservation[], ofRest: readonly CommitResult[]) => {
    for (const [i, { orderId }] of rest.entries()) results.set(orderId, ofRest[i]!);
    return batch.map(({ orderId }) => results.get(orderId)!);
  };
  const all = (rest: readonly ClaimedReservation[], result: CommitResult) =>
    whole(
      rest,
      rest.map(() => result),
    );

  let unanswered = lost;
  let statement = lost === null && batch.every(({ isFirst }) => isFirst) ? INSERT_ALL : INSERT_SKIP_EXISTING;
  let rest = batch;
  for (let tries = 0; tries < limits.commitRetries && performance.now() < untilMs; tries++) {
    let failure: PostgresFailure;
    try {
      const isPlaced = await insert(context, statement, rest, claimEndMs);
      const found = await resultsOf(context, rest, isPlaced, unanswered);
      const again: ClaimedReservation[] = [];
      for (const [i, reservation] of rest.entries()) {
        if (found[i]! === FREE) again.push(reservation);
        else results.set(reservation.orderId, found[i]!);
      }
      if (again.length === 0) return whole([], []);
      rest = again;
      statement = INSERT_UP_TO_STOCK;
      continue;
    } catch (error) {
      failure = failureOf(context, error);
    }
    if (failure.kind === 'refused') {
      if (failure.constraint === NO_UNIT && statement !== INSERT_UP_TO_STOCK) statement = INSERT_UP_TO_STOCK;
      else if (failure.code === UNIQUE_VIOLATION && statement === INSERT_ALL)
        statement = INSERT_SKIP_EXISTING;
      else return whole(rest, await commitHalves(context, rest, failure.constraint, unanswered));
      continue;
    }
    const { kind, reason } = failure;
    if (kind === 'unknown') {
      unanswered = reason;
      if (statement === INSERT_ALL) statement = INSERT_SKIP_EXISTING;
      if (!(await isFenced(context, rest, failure.lateUntilMs ?? 0)))
        return all(rest, notCommitted(reason, unanswered));
    } else if (!CONFLICTS.includes(reason)) {
      return all(rest, notCommitted(reason, unanswered));
    }
  }
  return all(rest, notCommitted('contended', unanswered));
}

/** Reasons for which the same statement may succeed at once. */
const CONFLICTS = ['deadlock', 'serialization-failure', 'deadline-passed'];

/** Whether a statement that was not answered has no effect any more: what is found afterwards stays so. */
async function isFenced(
  { postgres }: OrderCommitterContext,
  batch: readonly Reservation[],
  lateUntilMs: number,
): Promise<boolean> {
  try {
    return await fenceSales(postgres, [...new Set(batch.map(({ saleId }) => saleId))], lateUntilMs);
  } catch (error) {
    classifyPostgresError(error); // throws a defect
    return false;
  }
}

/**
 * What Postgres said no to, for a reason of its own or of a trigger, may be one member's fault.
 * @throws the error when Postgres did not say it: a defect
 */
function failureOf(context: OrderCommitterContext, error: unknown): PostgresFailure {
  let failure: PostgresFailure;
  try {
    failure = classifyPostgresError(error);
  } catch {
    if (!isAnswer(error)) throw error;
    const { code = '' } = error as { code?: string };
    context.onError('commit-orders', error);
    return { kind: 'refused', constraint: code, code };
  }
  if (failure.kind !== 'busy' || CONFLICTS.includes(failure.reason) || !blamesRows(error)) return failure;
  const { code = '' } = error as { code?: string };
  return { kind: 'refused', constraint: code === 'P0001' ? '' : code, code };
}

/** Nothing was written, as far as this try goes; whether an earlier one wrote is not known when its answer was lost. */
function notCommitted(reason: string, unanswered: string | null): CommitResult {
  return unanswered === null ? { kind: 'busy', reason } : { kind: 'unknown', reason: unanswered };
}

/** Postgres refused the batch because of a member: halves find out which, and the others go through. */
async function commitHalves(
  context: OrderCommitterContext,
  batch: readonly ClaimedReservation[],
  constraint: string,
  unanswered: string | null,
): Promise<readonly CommitResult[]> {
  if (batch.length === 1) return [notCommitted(`refused-by-postgres:${constraint}`, unanswered)];
  const middle = batch.length >> 1;
  const first = await commitBatch(context, batch.slice(0, middle), unanswered);
  return [...first, ...(await commitBatch(context, batch.slice(middle), unanswered))];
}

/** @returns whether an order was placed */
async function insert(
  context: OrderCommitterContext,
  statement: typeof INSERT_ALL,
  batch: readonly Reservation[],
  untilMs: number,
): Promise<(orderId: string) => boolean> {
  const values = [
    batch.map((r) => r.orderId),
    batch.map((r) => r.saleId),
    batch.map((r) => r.userId),
    context.paymentWindowS,
  ];
  const { rows } = await place<PlacedRow>(context.postgres, { ...statement, values }, untilMs);
  return readPlaced(rows);
}

/** Of an order that was not placed though a unit is free: it met another one that is gone, or one that took a place and had none. */
const FREE = { kind: 'busy', reason: 'contended' } as const;

/**
 * What was not placed met an order that is there already, or there is no unit, or no such sale. What was placed is
 * committed, also when that cannot be looked up now.
 */
async function resultsOf(
  context: OrderCommitterContext,
  batch: readonly Reservation[],
  isPlaced: (orderId: string) => boolean,
  unanswered: string | null,
): Promise<readonly CommitResult[]> {
  const rest = batch.filter((r) => !isPlaced(r.orderId));
  let look: Look | string;
  try {
    look = rest.length === 0 ? NOTHING : await lookFor(context, rest);
  } catch (error) {
    const failure = classifyPostgresError(error);
    look = failure.kind === 'refused' ? failure.code : failure.reason;
  }
  return batch.map(({ orderId, saleId, userId }): CommitResult => {
    if (isPlaced(orderId))
      return { kind: 'committed', order: { orderId, saleId, userId, status: 'pending' } };
    if (typeof look === 'string') return notCommitted(look, unanswered);
    const order = look.orders.get(orderId);
    if (order === undefined) {
      const free = look.free.get(saleId);
      if (free === undefined) return { kind: 'refused', reason: 'unknown-sale' };
      return free > 0 ? FREE : { kind: 'refused', reason: 'sold-out' };
    }
    const kind = order.orderId === orderId ? 'committed' : 'existing';
    return { kind, order: { orderId: order.orderId, saleId, userId, status: order.status } };
  });
}

interface Look {
  /** The order that a reservation met: its own from an earlier try, or the customer's other one; by its order id. */
  readonly orders: ReadonlyMap<string, PlacedOrder>;
  /** Units that are free in the sales of those that met none. */
  readonly free: ReadonlyMap<number, number>;
}
const NOTHING: Look = { orders: new Map(), free: new Map() };

async function lookFor(
  { orders: table, postgres }: OrderCommitterContext,
  rest: readonly Reservation[],
): Promise<Look> {
  const active = await table.activeOf(rest);
  const byCustomer = new Map(active.map((order) => [`${order.saleId} ${order.userId}`, order]));
  const met = ({ saleId, userId }: Reservation) => byCustomer.get(`${saleId} ${userId}`);
  const alone = rest.filter((r) => met(r) === undefined).map((r) => r.orderId);
  const own = alone.length === 0 ? [] : await table.existing(alone);
  const byId = new Map(own.map((order) => [order.orderId, order]));
  const orders = new Map<string, PlacedOrder>();
  const without = new Set<number>();
  for (const reservation of rest) {
    const order = met(reservation) ?? byId.get(reservation.orderId);
    if (order !== undefined) orders.set(reservation.orderId, order);
    else without.add(reservation.saleId);
  }
  if (without.size === 0) return { orders, free: new Map() };
  const { rows } = await postgres.pool.query<{ id: number; free: number }>({
    name: 'free-units',
    text: 'SELECT id, stock - sold AS free FROM sales WHERE id = ANY($1::int[])',
    values: [[...without]],
  });
  return { orders, free: new Map(rows.map(({ id, free }) => [id, free])) };
}
