/**
 * Places orders that arrive together by one statement, which is one commit.
 *
 *   order ──▶ shared batch, of any sales ──▶ placed ──▶ accepted, committed with the answer
 *     │                                       └─ left: the row of its sale is held, it was not placed, or there was no answer
 *     │                                            ▼
 *     └─ its sale has a batch, or fills a good part of one ──▶ batch of the sale, in rounds (placing.ts) ──▶ its result
 *
 * A single order is sent at once, and orders that arrive together, or while statements are in progress, form the next batch
 * (concurrency/micro-batcher.ts). A shared batch waits for no row, or only briefly. A batch of a sale waits, on a separate connection, and
 * delays no other sale. While other processes sell the same sale, fewer and larger batches wait for its row (see `rowTurns`). A batch in which
 * Postgres rejects one order, for another reason than the state of its sale, is split in halves, so that it fails no other.
 */
import {
  type NotProcessed,
  SHARED,
  type SharedBatches,
  sharedBatches,
} from '../../concurrency/micro-batcher.ts';
import { limits } from '../../config/limits.ts';
import type { Attempt } from '../../domain/order.ts';
import { accepted, type Result } from '../../domain/outcome.ts';
import { classifyPostgresError, isAnswer, isOfState } from '../../store/failures/postgres.ts';
import { type BatchStatement, type Placed, placeMany } from '../../store/postgres/insert-orders.ts';
import { type Connection, type PostgresStore, sharedConnections } from '../../store/postgres/pool.ts';
import { notPlaced, type Placement, type Placing, placeInRounds, RETRY, type Tried } from './placing.ts';

export interface PlacingBatchesOptions<M extends Attempt> extends Pick<Placing<M>, 'rejectionOf'> {
  /** Names the queue in traces. */
  readonly name: string;
  /** Places those of any sales that it can place at once. */
  readonly shared: BatchStatement;
  /** The first try with the orders of a sale. A conflict repeats it. */
  readonly first: BatchStatement;
  /** The tries after it, and after one without an answer. */
  readonly later: BatchStatement;
  readonly paymentWindowS: number;
  /** The values of the parameters from $7 on. */
  valuesOf?(orders: readonly M[]): readonly unknown[];
  /** No statement with an order takes effect later, on `performance.now()`'s clock. */
  endOf?(order: M): number;
  /** Whether another process may have a statement with an order in progress. */
  isClaimed?(order: M): boolean;
  /** The reason of `busy` for an order that had no turn. */
  reasonOf(cause: NotProcessed): string;
  /** Receives the size of each batch. */
  onBatch(size: number): void;
  /** Receives the orders that are committed, after their answers. It never throws. */
  onCommitted?(orders: readonly M[]): void;
}

export interface PlacingBatches<M extends Attempt> {
  /**
   * Places one order, together with others that wait.
   * @param untilMs deadline for its statement to be sent, on `performance.now()`'s clock
   * @throws (rejects) for a defect, or when Postgres rejects this order for one
   */
  submit(order: M, untilMs: number): Promise<Result>;
  /** Orders that wait for the next statement. */
  readonly waiting: number;
}

export const placingBatches = <M extends Attempt>(
  postgres: PostgresStore,
  options: PlacingBatchesOptions<M>,
): PlacingBatches<M> => new Batches(postgres, options);

type Answer<M extends Attempt> = (placement: Placement<M>, result: Result) => void;

class Batches<M extends Attempt> implements PlacingBatches<M> {
  readonly #postgres: PostgresStore;
  readonly #options: PlacingBatchesOptions<M>;
  readonly #connect: (key: number) => Promise<Connection>;
  readonly #queue: SharedBatches<Placement<M>, Result>;
  readonly #turns = rowTurns();

  constructor(postgres: PostgresStore, options: PlacingBatchesOptions<M>) {
    this.#postgres = postgres;
    this.#options = options;
    this.#connect = sharedConnections(postgres.pool);
    this.#queue = sharedBatches({
      name: options.name,
      // Claimed ones have other batches, because they need a barrier.
      keyOf: ({ order }) => (this.#isClaimed(order) ? -order.saleId : order.saleId),
      work: (key, placements, answer) => this.#work(key, placements, answer),
      maxBatch: limits.commitBatchSize,
      leastBatch: limits.leastBatch,
      inFlight: this.#turns.inFlight,
      holdMs: this.#turns.holdMs,
      maxQueued: limits.commitQueue,
      waitMs: limits.commitWaitMs,
      rejected: (cause, placement) => notPlaced(placement, options.reasonOf(cause), cause),
      isMemberError: () => true,
      onBatch: options.onBatch,
    });
  }

  submit(order: M, untilMs: number): Promise<Result> {
    return this.#queue.submit({ order, unanswered: null }, untilMs);
  }

  get waiting(): number {
    return this.#queue.waiting;
  }

  async #work(key: number, placements: readonly Placement<M>[], answer: Answer<M>): Promise<void> {
    const committed: M[] = [];
    const answerAndNote: Answer<M> = (placement, result) => {
      answer(placement, result);
      if (result.kind === 'accepted') committed.push(placement.order);
    };
    try {
      if (key === SHARED) await this.#placeShared(placements, answerAndNote);
      else await this.#placeOfSale(key, placements, answerAndNote);
    } finally {
      if (committed.length > 0) this.#options.onCommitted?.(committed);
    }
  }

  /** One try. What has no result afterwards is left to the batches of the sales. @throws a defect that no order can have caused */
  async #placeShared(placements: readonly Placement<M>[], answer: Answer<M>): Promise<void> {
    const unclaimed = placements.filter(({ order }) => !this.#isClaimed(order));
    if (unclaimed.length === 0) return;
    const orders = unclaimed.map(({ order }) => order);
    let triedOf: (order: M) => Tried;
    try {
      triedOf = await this.#place(SHARED, this.#options.shared, orders);
    } catch (error) {
      const { kind, reason } = classifyPostgresError(error);
      if (kind === 'defect' && !isAnswer(error)) throw error;
      if (kind === 'unknown') triedOf = () => ({ kind: 'unanswered', reason, lateUntilMs: 0 });
      else if (kind === 'not-sent') triedOf = () => ({ kind: 'busy', reason });
      else return;
    }
    for (const placement of unclaimed) {
      const tried = triedOf(placement.order);
      if (tried?.kind === 'unanswered') placement.unanswered = tried;
      else if (tried !== null) answer(placement, tried as Result);
    }
  }

  async #placeOfSale(key: number, placements: readonly Placement<M>[], answer: Answer<M>): Promise<void> {
    const { first, later, rejectionOf } = this.#options;
    const isFresh = key > 0 && placements.every(({ unanswered }) => unanswered === null);
    let statement = isFresh ? first : later;
    const giveUpMs = performance.now() + limits.commitGiveUpMs;
    await placeInRounds<M>(this.#postgres, placements, {
      place: async (orders) => {
        try {
          const triedOf = await this.#place(key, statement, orders);
          statement = later;
          return triedOf;
        } catch (error) {
          const failure = classifyPostgresError(error);
          const isAgain = statement !== later && failure.kind === 'rejected' && isOfState(failure);
          if (failure.kind !== 'conflict') statement = later;
          if (isAgain) return () => RETRY; // at once, so that the first to arrive are the first to be placed
          throw error;
        }
      },
      rejectionOf,
      answer,
      untilMs: Math.min(giveUpMs, this.#endOf(placements.map(({ order }) => order))),
      isClaimed: key < 0,
    });
  }

  async #place(key: number, statement: BatchStatement, orders: readonly M[]): Promise<(order: M) => Tried> {
    const { valuesOf, paymentWindowS } = this.#options;
    const connect = () => this.#connect(key);
    const batch = { connect, attempts: orders, others: valuesOf?.(orders) ?? [] };
    const placed = await placeMany(this.#postgres, statement, batch, paymentWindowS, this.#endOf(orders));
    if (placed.kind === 'unanswered') return () => placed;
    if (key !== SHARED) this.#turns.note(key, placed);
    else for (const { orderId, saleId } of orders) if (placed.has(orderId)) this.#turns.noteShared(saleId);
    return (order) => (placed.has(order.orderId) ? accepted(order) : null);
  }

  #isClaimed(order: M): boolean {
    return this.#options.isClaimed?.(order) === true;
  }

  #endOf(orders: readonly M[]): number {
    const { endOf } = this.#options;
    return endOf === undefined ? Number.POSITIVE_INFINITY : Math.min(...orders.map(endOf));
  }
}

interface Turns {
  /** Of the sale, after the last statement of this process; null: a shared batch came after it, which does not report it. */
  readonly version: number | null;
  /** Statements in a row without a change by others between them. */
  readonly alone: number;
  readonly holdMs: number;
}

/** By the key of a queue, which is one sale's. */
export interface RowTurns {
  /** Batches in flight at once. */
  inFlight(key: number): number;
  /** See `MicroBatcherOptions.holdMs`. */
  holdMs(key: number): number;
  /** Learns from a statement of this process. */
  note(key: number, placed: Pick<Placed, 'version' | 'waitedMs'>): void;
  /** A shared batch of this process placed orders of a sale. */
  noteShared(saleId: number): void;
}

/** Sales that are kept. */
const MAX_SALES = 1_000;
/** So many statements without a change by others: this process sells alone. */
const ALONE = 4;
/** Part of hold and wait that becomes the next hold. */
const HOLD_SHARE = 0.8;

/**
 * How the batches of this process share the row of a sale with other processes. Each statement reports the version of the sale and how long
 * it waited for the row.
 *
 *   alone: several batches in flight, none held back
 *     │ another transaction changed the sale between two statements of this process     ▲ it did not, several times in a row
 *     ▼                                                                                 │
 *   beside others: one batch in flight; the next is held back after its end ────────────┘
 *
 * Batches that wait in Postgres for the row are small: what arrives meanwhile is in the next one. So the hold becomes most of what the last
 * batch was held back and then waited, and a statement arrives shortly before the row is free, with all that has arrived until then. The hold
 * replaces a wait, so it delays no order. It follows when the others become slower or faster, and the row does not idle: a statement that
 * did not wait shortens it.
 *
 * The statements of this process on a sale share a connection, so none of them waits for another one's lock.
 */
export function rowTurns(): RowTurns {
  const turns = new Map<number, Turns>();
  return {
    inFlight: (key) => ((turns.get(key)?.alone ?? ALONE) < ALONE ? 1 : limits.commitInFlight),
    holdMs: (key) => turns.get(key)?.holdMs ?? 0,
    note(key, { version, waitedMs }) {
      if (version === null) return void turns.delete(key);
      if (turns.size >= MAX_SALES) turns.clear();
      const last = turns.get(key) ?? { version: version - 1, alone: ALONE, holdMs: 0 };
      const isNext = version === (last.version ?? 0) + 1;
      const alone = last.version === null ? last.alone : isNext ? last.alone + 1 : 0;
      const holdMs = Math.min(HOLD_SHARE * (last.holdMs + (waitedMs ?? 0)), limits.commitHoldMs);
      turns.set(key, { version, alone, holdMs: alone < ALONE ? holdMs : 0 });
    },
    noteShared(saleId) {
      const last = turns.get(saleId);
      if (last !== undefined) turns.set(saleId, { ...last, version: null });
    },
  };
}
