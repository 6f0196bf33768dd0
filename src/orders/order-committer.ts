/**
 * Commits in Postgres what a strategy reserved in Redis: order, count and points, in one statement for as many orders as are
 * waiting.
 *
 *   commit ──▶ queued ──▶ shared batch ──▶ INSERT_UNHELD ──▶ committed
 *     │ queue full                            │  a row is held, an order exists, units are missing, no answer
 *     └─▶ busy                                ▼
 *                         batch of the sale ──▶ INSERT_ALL ──▶ committed
 *                                          │  unique violation or CHECK: an order exists, or units are missing
 *                                          ▼
 *                                        INSERT_UP_TO_STOCK ──▶ committed, or not inserted:
 *                                          an order of the customer ──▶ existing (or committed, by an earlier try)
 *                                          too few units, no such sale ▶ rejected
 *                                          they are free by now ──────▶ tried again
 *                                          its sale was loaded in another epoch since ──▶ superseded: see store/redis/epochs.ts
 *
 *   deadlock: tried again · rejected because of one order: the batcher splits the batch · no answer: a barrier, then
 *   INSERT_UP_TO_STOCK, within bounds; else unknown
 *
 * There is no timer: a single order is sent at once, and orders that arrive together, or while statements are in progress, form the next
 * batch. A failing member never fails the others in its batch. A shared batch has orders of any sales, and waits only briefly for the row of a
 * sale; a batch of a sale waits longer, on a connection of its own, and delays no other sale (concurrency/shared-batches.ts).
 *
 * Each reservation is committed under a claim (domain/outcome.ts). No statement starts to take effect after the claim's end,
 * but an earlier one may still be waiting inside Postgres for its commit. So the next process that claims the reservation first
 * sets a barrier on its sale (store/late-requests.ts): what it then finds is final.
 */
import { SHARED, sharedBatches } from '../concurrency/shared-batches.ts';
import { limits } from '../config/limits.ts';
import type { ExpectedFailure, Rejected } from '../domain/failure.ts';
import type { Busy, ClaimedReservation, CommitResult, Reservation, Unanswered } from '../domain/outcome.ts';
import type { Instruments } from '../metrics/instruments.ts';
import {
  classifyPostgresError,
  expectedPostgresFailure,
  isAnswer,
  isOfAnotherEpoch,
  isRowError,
  rejected,
} from '../store/failures/postgres.ts';
import type { OutboxRelay } from '../store/outbox-relay.ts';
import {
  type BatchStatement,
  insertReserved,
  insertUpToStock,
  type Placed,
  placeMany,
  setBarrier,
} from '../store/postgres/insert-orders.ts';
import type { OrderTable } from '../store/postgres/orders.ts';
import { placeInRounds } from '../store/postgres/place-in-rounds.ts';
import { type Connection, type PostgresStore, sharedConnections } from '../store/postgres/pool.ts';
import type { SaleMirror } from '../store/redis/sale-mirror.ts';
import { offerOf } from '../store/redis/sale-records.ts';
import { explanations } from './uninserted-orders.ts';

export interface OrderCommitter {
  /**
   * Commits one reservation, together with others that wait. Never throws for a failure of Postgres.
   * @param noTimeout waits for its turn until the claim ends; `busy` with the cause `waited-too-long` then leaves the reservation to
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
  readonly outbox: Pick<OutboxRelay, 'take'>;
  readonly instruments: Instruments;
  readonly paymentWindowS: number;
  /** Receives failures that no caller waits for. */
  readonly onError: (doing: string, error: unknown) => void;
}

/**
 * All orders or none. Redis has checked for an earlier order of each customer, so conflicts are rare; not checking again before
 * each insert is what makes this statement cheap.
 */
const INSERT_ALL = insertReserved('commit-orders-of-sale');
/**
 * The same, and fails when another transaction keeps the row of a sale. It waits for other processes, which keep a row for one statement. Without
 * a wait (SKIP LOCKED) it would have to lock the rows before it inserts, and late payments lock the customer first.
 */
const INSERT_UNHELD = insertReserved(
  'commit-orders',
  `(SELECT set_config('lock_timeout', '${limits.sharedBatchLockMs}', true)) IS NOT NULL`,
);
/** Redis has checked the limit. */
const UP_TO_STOCK = { isLimited: false, skipLocked: false };
const INSERT_UP_TO_STOCK = insertUpToStock('commit-orders-up-to-stock', UP_TO_STOCK);

const UNIQUE_VIOLATION = '23505';
const NO_UNIT = 'sales_sold_within_stock';

/** A reservation on its way to Postgres. */
interface Commit {
  readonly reservation: ClaimedReservation;
  /** An earlier statement with it; null: all were answered, so nothing is written yet. */
  unanswered: Unanswered | null;
}

/** Those claimed from another process have other batches, because they need a barrier. */
const keyOf = ({ reservation: { saleId, isFirst } }: Commit): number => (isFirst ? saleId : -saleId);

/** Postgres rejected a batch because of a member. */
class BatchRejected extends Error {
  override readonly name = 'BatchRejected';
  readonly code = 'ERR_STAMPEDE_BATCH_REJECTED';
  readonly reason: string;

  constructor({ reason }: Rejected) {
    super(reason);
    this.reason = reason;
  }
}

export function createOrderCommitter(context: OrderCommitterContext): OrderCommitter {
  const connect = sharedConnections(context.postgres.pool);
  let inProgress = 0;
  const whenIdle: (() => void)[] = [];

  const batches = sharedBatches<Commit, CommitResult>({
    name: 'commits',
    keyOf,
    async work(key, commits, answer) {
      const committed: Reservation[] = [];
      const answerAndNote: Answer = (commit, result) => {
        answer(commit, result);
        if (result.kind === 'accepted') committed.push(commit.reservation);
      };
      const commitAll = key === SHARED ? commitShared : commitBatch;
      try {
        await commitAll(context, () => connect(key), commits, answerAndNote);
      } finally {
        acknowledge(committed);
      }
    },
    maxBatch: limits.commitBatchSize,
    leastBatch: limits.leastBatch,
    inFlight: limits.commitInFlight,
    maxQueued: limits.commitQueue,
    waitMs: limits.commitWaitMs,
    rejected: (cause) => ({ kind: 'busy', reason: `committer-${cause}`, cause }),
    isMemberError: (error) => error instanceof BatchRejected,
    onBatch: (size) => context.instruments.commitBatchSize.observe(size),
  });

  /** No caller waits for this: if it fails, the reaper finds the reservation and its order in Postgres. */
  function acknowledge(committed: readonly Reservation[]): void {
    if (committed.length === 0) return;
    acknowledgeAll(committed).catch((error) => context.onError('acknowledge-reservations', error));
  }

  async function acknowledgeAll(committed: readonly Reservation[]): Promise<void> {
    // Without an answer Redis may have lost them all, and know none of their customers.
    let unclear: readonly string[] = committed.map(({ orderId }) => orderId);
    try {
      // The connection led to another copy when they were reserved: where it leads now, their customers have no orders.
      unclear = await context.mirror.acknowledge(committed);
    } finally {
      if (unclear.length > 0) await context.outbox.take(unclear);
    }
  }

  const settled = (commit: Commit, result: CommitResult): CommitResult =>
    result.kind === 'busy' ? notCommitted(commit, result.reason, result.cause) : result;

  return {
    async commit(reservation, noTimeout = false) {
      const waitMs = noTimeout ? Number.POSITIVE_INFINITY : limits.commitWaitMs;
      const untilMs = Math.min(performance.now() + waitMs, reservation.untilMs - limits.claimLeastMs);
      const commit: Commit = { reservation, unanswered: null };
      inProgress++;
      try {
        return settled(commit, await batches.submit(commit, untilMs));
      } catch (error) {
        if (!(error instanceof BatchRejected)) throw error;
        return notCommitted(commit, error.reason, 'order');
      } finally {
        inProgress--;
        if (inProgress === 0) for (const wake of whenIdle.splice(0)) wake();
      }
    },
    get waiting() {
      return batches.waiting;
    },
    idle() {
      if (inProgress === 0) return Promise.resolve();
      return new Promise((resolve) => whenIdle.push(resolve));
    },
  };
}

type Answer = (commit: Commit, result: CommitResult) => void;

/** Commits orders by one statement, all or none. What it cannot commit is left to the batches of the sales. @throws defects */
async function commitShared(
  context: OrderCommitterContext,
  connect: () => Promise<Connection>,
  commits: readonly Commit[],
  answer: Answer,
): Promise<void> {
  const first = commits.filter(({ reservation }) => reservation.isFirst);
  if (first.length === 0) return;
  const result = await insert(context, INSERT_UNHELD, connect, first);
  for (const commit of first) {
    if (result.kind === 'unanswered') commit.unanswered = result;
    else if (result.kind === 'not-sent') answer(commit, notCommitted(commit, result.reason));
    else if (result.kind === 'placed' && result.has(commit.reservation.orderId))
      answer(commit, committed(commit));
  }
}

/** @throws BatchRejected when Postgres rejected the batch because of a member; defects */
async function commitBatch(
  context: OrderCommitterContext,
  connect: () => Promise<Connection>,
  commits: readonly Commit[],
  answer: Answer,
): Promise<void> {
  const over = (left: readonly Commit[], reason: string) => {
    for (const commit of left) answer(commit, notCommitted(commit, reason));
    return 'over' as const;
  };
  const untilMs = Math.min(performance.now() + limits.commitGiveUpMs, claimEndOf(commits));
  const isFresh = commits.every(({ reservation, unanswered }) => reservation.isFirst && unanswered === null);
  if (!isFresh && !(await barrier(context, commits))) {
    over(commits, 'earlier-commit-in-progress');
    return;
  }
  let statement: BatchStatement = isFresh ? INSERT_ALL : INSERT_UP_TO_STOCK;

  async function place(left: readonly Commit[]): Promise<Placed | 'again' | 'over'> {
    const result = await insert(context, statement, connect, left);
    if (result.kind === 'conflict') return 'again'; // with the same statement
    const isMembers = result.kind === 'rejected' && (statement === INSERT_UP_TO_STOCK || !isOfState(result));
    if (isMembers) throw new BatchRejected(result);
    statement = INSERT_UP_TO_STOCK;
    switch (result.kind) {
      case 'placed':
        return result;
      case 'rejected':
        return 'again';
      case 'unanswered':
        for (const commit of left) commit.unanswered = result;
        return (await barrier(context, left)) ? 'again' : over(left, result.reason);
      default:
        return over(left, result.reason);
    }
  }

  const left = await placeInRounds(
    commits,
    {
      place,
      orderIdOf: ({ reservation }) => reservation.orderId,
      inserted: (commit) => answer(commit, committed(commit)),
      explain: (others) => answerWhatIsFound(context, others, answer),
    },
    untilMs,
  );
  over(left, 'contended');
}

function committed({ reservation: { orderId, saleId, userId, quantity } }: Commit): CommitResult {
  return { kind: 'accepted', order: { orderId, saleId, userId, status: 'pending', quantity }, durable: true };
}

/** No statement with these commits takes effect later. */
const claimEndOf = (commits: readonly Commit[]): number =>
  Math.min(...commits.map(({ reservation }) => reservation.untilMs));

/** Whether the state of the stores explains it: an order exists, units are missing, or a sale is in another epoch. */
const isOfState = (failure: Rejected): boolean =>
  failure.constraint === NO_UNIT || failure.code === UNIQUE_VIOLATION || isOfAnotherEpoch(failure);

/** Sends one statement. @throws a defect that no member can have caused */
async function insert(
  context: OrderCommitterContext,
  statement: BatchStatement,
  connect: () => Promise<Connection>,
  commits: readonly Commit[],
): Promise<Placed | Unanswered | Exclude<ExpectedFailure, { kind: 'unknown' }>> {
  const reservations = commits.map(({ reservation }) => reservation);
  const offers = reservations.map(offerOf);
  const prices = offers.map((offer) => offer?.priceCents ?? null);
  const windows = offers.map((offer) => offer?.paymentWindowS ?? null);
  const batch = { connect, attempts: reservations, others: [...epochsOf(reservations), prices, windows] };
  try {
    return await placeMany(context.postgres, statement, batch, context.paymentWindowS, claimEndOf(commits));
  } catch (error) {
    const failure = classifyPostgresError(error);
    switch (failure.kind) {
      case 'unknown':
        return { kind: 'unanswered', reason: failure.reason, lateUntilMs: 0 };
      case 'defect':
        if (!isAnswer(error)) throw error;
        context.onError('commit-orders', error);
        break;
      case 'rejected':
      case 'conflict':
        return failure;
      default:
        if (!isRowError(error)) return failure;
    }
    // What a value made Postgres reject may be one member's fault.
    const { code } = error as { code: string };
    return rejected(code, code);
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
function barrier({ postgres }: OrderCommitterContext, commits: readonly Commit[]) {
  const saleIds = [...new Set(commits.map(({ reservation }) => reservation.saleId))];
  const lateUntilMs = Math.max(...commits.map(({ unanswered }) => unanswered?.lateUntilMs ?? 0));
  return setBarrier(postgres, saleIds, lateUntilMs);
}

/** This try wrote nothing; an earlier one may have, when its answer was lost. */
function notCommitted(
  { unanswered, reservation }: Commit,
  reason: string,
  cause?: Busy['cause'],
): CommitResult {
  return unanswered === null
    ? { kind: 'busy', reason, ...(cause && { cause }) }
    : { kind: 'unknown', orderId: reservation.orderId, reason: unanswered.reason };
}

/**
 * Answers orders that were not inserted: an order exists, or there are too few units, or no sale. An order that is found counts once it is
 * replicated.
 * @returns those that were not inserted although their units are free: they conflicted with an order that is gone by now
 */
async function answerWhatIsFound(
  context: OrderCommitterContext,
  commits: readonly Commit[],
  answer: Answer,
): Promise<readonly Commit[]> {
  let resultOf: (reservation: ClaimedReservation) => CommitResult | null;
  try {
    resultOf = await explanations(
      context,
      commits.map(({ reservation }) => reservation),
    );
  } catch (error) {
    const { reason } = expectedPostgresFailure(error);
    for (const commit of commits) answer(commit, notCommitted(commit, reason));
    return [];
  }
  return commits.filter((commit) => {
    const result = resultOf(commit.reservation);
    if (result?.kind === 'retry') {
      supersede(context, commit.reservation);
      answer(commit, commit.unanswered === null ? result : notCommitted(commit, result.reason));
    } else if (result !== null) answer(commit, result);
    return result === null;
  });
}

function supersede({ mirror, onError }: OrderCommitterContext, { saleId, epoch }: ClaimedReservation): void {
  const report = (error: unknown) => onError('supersede-epoch', error);
  mirror
    .supersede(saleId, epoch!)
    .then((isOurs) => isOurs && report(new Error(`sale ${saleId} was loaded in another epoch of Redis`)))
    .catch(report);
}
