/**
 * Places orders that arrive together by one statement, which is one commit.
 *
 *   order ──▶ shared batch, of any sales ──▶ placed ──▶ accepted, committed with the answer
 *     │                                       └─ left: the row of its sale is held, it was not placed, or there was no answer
 *     │                                            ▼
 *     └─ its sale has a batch, or fills a good part of one ──▶ batch of the sale, in rounds (placing.ts) ──▶ its result
 *
 * A single order is sent at once, and orders that arrive together, or while statements are in progress, form the next batch
 * (concurrency/micro-batcher.ts). A shared batch waits for no row, or only briefly. A batch of a sale waits, on a connection of its own, and
 * delays no other sale. While other processes sell the same sale, fewer and larger batches wait for its row (row-turns.ts). A batch in which
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
import { type BatchStatement, placeMany } from '../../store/postgres/insert-orders.ts';
import { type Connection, type PostgresStore, sharedConnections } from '../../store/postgres/pool.ts';
import { notPlaced, type Placement, type Placing, placeInRounds, RETRY, type Tried } from './placing.ts';
import { rowTurns } from './row-turns.ts';

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
