/**
 * Commits in Postgres what a strategy reserved in Redis: order, count and points, in one statement for as many orders as are
 * waiting.
 *
 *   commit ──▶ queued ──▶ in a batch ──▶ INSERT_ALL ──▶ committed
 *     │ queue full                         │  unique violation or CHECK: an order exists, or units are missing
 *     └─▶ busy                             ▼
 *                                        INSERT_UP_TO_STOCK ──▶ committed, or not inserted:
 *                                          an order of the customer ──▶ existing (or committed, by an earlier try)
 *                                          no unit, no such sale ─────▶ rejected
 *                                          a unit is free by now ─────▶ tried again
 *                                          its sale was loaded in another epoch since ──▶ busy: see store/redis/epochs.ts
 *
 *   deadlock: tried again · rejected because of one order: the batcher splits the batch · no answer: a barrier, then
 *   INSERT_UP_TO_STOCK, within bounds; else unknown
 *
 * There is no timer: a single order is sent at once, and orders that arrive while statements are in progress form the next
 * batch. A failing member never fails the others in its batch.
 *
 * Each reservation is committed under a claim (domain/outcome.ts). No statement starts to take effect after the claim's end,
 * but an earlier one may still be waiting inside Postgres for its commit. So the next process that claims the reservation first
 * sets a barrier on its sale (store/late-requests.ts): what it then finds is final.
 */
import { microBatcher } from '../concurrency/micro-batcher.ts';
import { limits } from '../config/limits.ts';
import type { ClaimedReservation, PlacedOrder, Reservation } from '../domain/outcome.ts';
import type { Instruments } from '../metrics/instruments.ts';
import type { Unanswered } from '../store/late-requests.ts';
import {
  CONFLICTS,
  classifyPostgresError,
  expectedPostgresFailure,
  isAnswer,
  isRowError,
  type PostgresFailure,
  SUPERSEDED,
} from '../store/postgres/failures.ts';
import {
  COUNT_IN_EPOCH,
  IN_EPOCH,
  insertOrders,
  insertUpToStock,
  type Placed,
  placeMany,
  type Statement,
  setBarrier,
} from '../store/postgres/insert-orders.ts';
import type { OrderTable } from '../store/postgres/orders.ts';
import type { PostgresStore } from '../store/postgres/pool.ts';
import type { SaleMirror } from '../store/redis/sale-mirror.ts';

export type CommitResult =
  | { readonly kind: 'committed'; readonly order: PlacedOrder }
  /** The customer has another active order. */
  | { readonly kind: 'existing'; readonly order: PlacedOrder }
  /** Postgres has no free unit, or no such sale. Nothing was written. */
  | { readonly kind: 'rejected'; readonly reason: 'sold-out' | 'unknown-sale' }
  /** Nothing was written; a retry may help. */
  | { readonly kind: 'busy'; readonly reason: string }
  /** No reply arrived: the order may be committed. */
  | { readonly kind: 'unknown'; readonly reason: string };

export interface OrderCommitter {
  /**
   * Commits one reservation, together with others that wait. Never throws for a failure of Postgres.
   * @param noTimeout waits for its turn until the claim ends; `busy` with the reason CLAIM_EXPIRED then leaves the reservation to
   *   the next claim
   */
  commit(reservation: ClaimedReservation, noTimeout?: boolean): Promise<CommitResult>;
  /** Reservations that wait for the next statement. */
  readonly waiting: number;
  /** Waits until nothing is queued or in progress. */
  idle(): Promise<void>;
}

export interface OrderCommitterContext {
  readonly postgres: PostgresStore;
  readonly orders: OrderTable;
  readonly mirror: SaleMirror;
  readonly instruments: Instruments;
  readonly paymentWindowS: number;
  /** Receives failures that no caller waits for. */
  readonly onError: (doing: string, error: unknown) => void;
}

/**
 * All orders or none. Redis has checked for an earlier order of each customer, so conflicts are rare; not checking again before
 * each insert is what makes this statement cheap.
 */
const INSERT_ALL = insertOrders({
  name: 'commit-orders',
  rows: `SELECT input.id, input.sale_id, input.user_id, sales.price_cents
         FROM unnest($1::uuid[], $2::int[], $3::text[]) AS input (id, sale_id, user_id)
         JOIN sales ON sales.id = input.sale_id`,
  count: COUNT_IN_EPOCH,
  many: true,
});
const INSERT_UP_TO_STOCK = insertUpToStock('commit-orders-up-to-stock', IN_EPOCH);

const UNIQUE_VIOLATION = '23505';
const NO_UNIT = 'sales_sold_within_stock';
/** Reasons of `busy`. After the last one, the other sales of the batch may still be in their epochs. */
const TRIED_AGAIN = new Set([...CONFLICTS, SUPERSEDED]);

/** Orders of all sales share one queue; those claimed from another process have another queue, because they need a barrier. */
const FIRST_CLAIMS = 0;
const LATER_CLAIMS = 1;

/** The reason of `busy` when the claim ended while the reservation waited for its turn. */
export const CLAIM_EXPIRED = 'committer-waited-too-long';

/** A reservation on its way to Postgres. */
interface Commit {
  readonly reservation: ClaimedReservation;
  /** Why an earlier statement with it got no reply; null: all were answered, so nothing is written yet. */
  unanswered: string | null;
}

/** Postgres rejected a batch because of a member. */
class BatchRejected extends Error {
  override readonly name = 'BatchRejected';
  readonly code = 'ERR_STAMPEDE_BATCH_REJECTED';
}

export function createOrderCommitter(context: OrderCommitterContext): OrderCommitter {
  let inProgress = 0;
  const whenIdle: (() => void)[] = [];

  const batcher = microBatcher<Commit, CommitResult>({
    async work(queue, commits, answer) {
      const committed: Reservation[] = [];
      const answerAndNote: Answer = (commit, result) => {
        answer(commit, result);
        if (result.kind === 'committed') committed.push(commit.reservation);
      };
      try {
        await commitBatch(context, queue, commits, answerAndNote);
      } finally {
        acknowledge(committed);
      }
    },
    maxBatch: limits.commitBatchSize,
    inFlight: limits.commitInFlight,
    eagerBelow: limits.batchEagerBelow,
    maxQueued: limits.commitQueue,
    waitMs: limits.commitWaitMs,
    rejected: (reason) => ({ kind: 'busy', reason: `committer-${reason}` }),
    isMemberError: (error) => error instanceof BatchRejected,
    onBatch: (size) => context.instruments.commitBatchSize.observe(size),
  });

  /** No caller waits for this: if it fails, the reaper finds the reservation and its order in Postgres. */
  function acknowledge(committed: readonly Reservation[]): void {
    if (committed.length === 0) return;
    context.mirror
      .acknowledge(committed)
      .catch((error) => context.onError('acknowledge-reservations', error));
  }

  async function submit(commit: Commit, untilMs: number): Promise<CommitResult> {
    const queue = commit.reservation.isFirst ? FIRST_CLAIMS : LATER_CLAIMS;
    try {
      return await batcher.submit(queue, commit, untilMs);
    } catch (error) {
      if (error instanceof BatchRejected) return notCommitted(commit, error.message);
      throw error;
    }
  }

  return {
    async commit(reservation, noTimeout = false) {
      const waitMs = noTimeout ? Number.POSITIVE_INFINITY : limits.commitWaitMs;
      const untilMs = Math.min(performance.now() + waitMs, reservation.untilMs - limits.claimLeastMs);
      inProgress++;
      try {
        return await submit({ reservation, unanswered: null }, untilMs);
      } finally {
        inProgress--;
        if (inProgress === 0) for (const wake of whenIdle.splice(0)) wake();
      }
    },
    get waiting() {
      return batcher.waiting;
    },
    idle() {
      if (inProgress === 0) return Promise.resolve();
      return new Promise((resolve) => whenIdle.push(resolve));
    },
  };
}

type Answer = (commit: Commit, result: CommitResult) => void;

/** @throws BatchRejected when Postgres rejected the batch because of a member; defects */
async function commitBatch(
  context: OrderCommitterContext,
  queue: number,
  commits: readonly Commit[],
  answer: Answer,
): Promise<void> {
  const answerAll = (reason: string) => {
    for (const commit of left) answer(commit, notCommitted(commit, reason));
  };
  const claimEndMs = Math.min(...commits.map(({ reservation }) => reservation.untilMs));
  const untilMs = Math.min(performance.now() + limits.commitGiveUpMs, claimEndMs);
  let left = commits;
  if (queue === LATER_CLAIMS && !(await barrier(context, left, 0)))
    return answerAll('earlier-commit-in-progress');
  const isFresh = queue === FIRST_CLAIMS && commits.every(({ unanswered }) => unanswered === null);
  let statement = isFresh ? INSERT_ALL : INSERT_UP_TO_STOCK;

  for (let tries = 0; tries < limits.commitRetries && performance.now() < untilMs; tries++) {
    const result = await insert(context, statement, left, claimEndMs);
    switch (result.kind) {
      case 'placed':
        left = await answerWhatIsFound(context, left, result, answer);
        if (left.length === 0) return;
        break;
      case 'unanswered':
        for (const commit of left) commit.unanswered = result.reason;
        if (!(await barrier(context, left, result.lateUntilMs))) return answerAll(result.reason);
        break;
      case 'rejected':
        if (statement === INSERT_UP_TO_STOCK || !isConflict(result))
          throw new BatchRejected(`rejected-by-postgres:${result.constraint}`);
        break;
      case 'busy':
        if (!TRIED_AGAIN.has(result.reason)) return answerAll(result.reason);
        if (result.reason !== SUPERSEDED) continue; // with the same statement
        break;
    }
    statement = INSERT_UP_TO_STOCK;
  }
  answerAll('contended');
}

function isConflict({ constraint, code }: Rejected): boolean {
  return constraint === NO_UNIT || code === UNIQUE_VIOLATION;
}

type Rejected = Extract<PostgresFailure, { kind: 'rejected' }>;

/** Sends one statement. @throws a defect that no member can have caused */
async function insert(
  context: OrderCommitterContext,
  statement: Statement,
  commits: readonly Commit[],
  untilMs: number,
): Promise<Placed | Unanswered | Exclude<PostgresFailure, { kind: 'defect' | 'unknown' }>> {
  const reservations = commits.map(({ reservation }) => reservation);
  const batch = {
    orderIds: reservations.map(({ orderId }) => orderId),
    saleIds: reservations.map(({ saleId }) => saleId),
    userIds: reservations.map(({ userId }) => userId),
    others: epochsOf(reservations),
  };
  try {
    return await placeMany(context.postgres, statement, batch, context.paymentWindowS, untilMs);
  } catch (error) {
    const failure = classifyPostgresError(error);
    if (failure.kind === 'unknown') return { kind: 'unanswered', reason: failure.reason, lateUntilMs: 0 };
    if (failure.kind === 'defect' && !isAnswer(error)) throw error;
    if (failure.kind === 'defect') context.onError('commit-orders', error);
    else if (failure.kind === 'rejected' || TRIED_AGAIN.has(failure.reason) || !isRowError(error))
      return failure;
    // What a trigger or a value made Postgres reject may be one member's fault.
    const { code = '' } = error as { code?: string };
    return { kind: 'rejected', constraint: code === 'P0001' ? '' : code, code };
  }
}

/** The sales, and the epochs in which their orders were reserved: usually one of each. */
function epochsOf(reservations: readonly ClaimedReservation[]): [number[], number[]] {
  const saleIds: number[] = [];
  const epochs: number[] = [];
  const seen = new Set<string>();
  for (const { saleId, epoch } of reservations) {
    if (epoch === null || seen.size === seen.add(`${saleId} ${epoch}`).size) continue;
    saleIds.push(saleId);
    epochs.push(epoch);
  }
  return [saleIds, epochs];
}

/** Whether an earlier statement can no longer take effect, so that what is found afterwards is final. */
function barrier({ postgres }: OrderCommitterContext, commits: readonly Commit[], lateUntilMs: number) {
  const saleIds = [...new Set(commits.map(({ reservation }) => reservation.saleId))];
  return setBarrier(postgres, saleIds, lateUntilMs);
}

/** This try wrote nothing; an earlier one may have, when its answer was lost. */
function notCommitted({ unanswered }: Commit, reason: string): CommitResult {
  return unanswered === null ? { kind: 'busy', reason } : { kind: 'unknown', reason: unanswered };
}

/**
 * Resolves the orders that were inserted, and gives the others a reason: an order exists, or there is no unit, or no sale.
 * Inserted orders are committed, even when the others cannot be read now. An order that is found counts once it is replicated.
 * @returns those that were not inserted although a unit is free: they conflicted with an order that is gone by now
 */
async function answerWhatIsFound(
  context: OrderCommitterContext,
  commits: readonly Commit[],
  placed: Placed,
  answer: Answer,
): Promise<readonly Commit[]> {
  const others: Commit[] = [];
  for (const commit of commits) {
    const { orderId, saleId, userId } = commit.reservation;
    if (placed.has(orderId))
      answer(commit, { kind: 'committed', order: { orderId, saleId, userId, status: 'pending' } });
    else others.push(commit);
  }
  if (others.length === 0) return [];
  let found: Found;
  try {
    found = await findOrders(
      context,
      others.map(({ reservation }) => reservation),
    );
    if (found.orders.size > 0) await context.postgres.replicated();
  } catch (error) {
    const failure = expectedPostgresFailure(error);
    for (const commit of others)
      answer(commit, notCommitted(commit, failure.kind === 'rejected' ? failure.code : failure.reason));
    return [];
  }
  return others.filter((commit) => {
    const { saleId, epoch } = commit.reservation;
    const result = resultOf(commit.reservation, found);
    if (result === SUPERSEDED) {
      supersede(context, saleId, epoch!);
      answer(commit, notCommitted(commit, SUPERSEDED));
    } else if (result !== null) answer(commit, result);
    return result === null;
  });
}

function supersede({ mirror, onError }: OrderCommitterContext, saleId: number, epoch: number): void {
  const report = (error: unknown) => onError('supersede-epoch', error);
  mirror
    .supersede(saleId, epoch)
    .then((isOurs) => isOurs && report(new Error(`sale ${saleId} was loaded in another epoch of Redis`)))
    .catch(report);
}

interface Found {
  /** The order that a reservation conflicted with: its own, by an earlier try, or another one of the customer; by order id. */
  readonly orders: ReadonlyMap<string, PlacedOrder>;
  /** The sales of those without an order. */
  readonly sales: ReadonlyMap<number, { readonly free: number; readonly epoch: number | null }>;
}

function resultOf(
  { orderId, saleId, userId, epoch }: ClaimedReservation,
  { orders, sales }: Found,
): CommitResult | typeof SUPERSEDED | null {
  const order = orders.get(orderId);
  if (order === undefined) {
    const sale = sales.get(saleId);
    if (sale === undefined) return { kind: 'rejected', reason: 'unknown-sale' };
    if (sale.epoch !== null && epoch !== null && sale.epoch !== epoch) return SUPERSEDED;
    return sale.free > 0 ? null : { kind: 'rejected', reason: 'sold-out' };
  }
  const kind = order.orderId === orderId ? 'committed' : 'existing';
  return { kind, order: { orderId: order.orderId, saleId, userId, status: order.status } };
}

async function findOrders(
  { orders: table, postgres }: OrderCommitterContext,
  reservations: readonly Reservation[],
): Promise<Found> {
  const active = await table.activeOf(reservations);
  const byCustomer = new Map(active.map((order) => [`${order.saleId} ${order.userId}`, order]));
  const activeOf = ({ saleId, userId }: Reservation) => byCustomer.get(`${saleId} ${userId}`);
  const without = reservations.filter((r) => activeOf(r) === undefined).map((r) => r.orderId);
  const own = without.length === 0 ? [] : await table.existing(without);
  const byId = new Map(own.map((order) => [order.orderId, order]));
  const orders = new Map<string, PlacedOrder>();
  const saleIds = new Set<number>();
  for (const reservation of reservations) {
    const order = activeOf(reservation) ?? byId.get(reservation.orderId);
    if (order !== undefined) orders.set(reservation.orderId, order);
    else saleIds.add(reservation.saleId);
  }
  if (saleIds.size === 0) return { orders, sales: new Map() };
  const { rows } = await postgres.pool.query<{ id: number; free: number; epoch: number | null }>({
    name: 'free-units',
    text: 'SELECT id, stock - sold AS free, mirror_epoch AS epoch FROM sales WHERE id = ANY($1::int[])',
    values: [[...saleIds]],
  });
  return { orders, sales: new Map(rows.map((sale) => [sale.id, sale])) };
}
