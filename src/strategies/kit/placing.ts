/**
 * Places orders in Postgres, one or many at once, until each has its result. The strategies that decide in Postgres and the order
 * committer differ in their statements, and in why a sale sells nothing to an order.
 *
 *   try ──▶ placed: accepted, committed with the answer
 *    ├─ not placed, or the state of the tables failed it ──▶ read ──▶ an order is found, or why there is none
 *    │                                                        └─ whatever stopped it is gone ──▶ try again
 *    ├─ deadlock or serialization failure ──▶ try again
 *    ├─ no answer ──▶ read ──▶ its order is found
 *    │                 └─ not found ──▶ barrier (store/late-requests.ts) ──▶ read ──▶ found, rejected, or try again
 *    │                                    └─ Postgres is unavailable ──▶ unknown
 *    ├─ could not begin, or waited too long ──▶ busy: nothing was written
 *    └─ one of several may be at fault ──▶ thrown: the batcher splits the batch. Alone: busy
 *
 *   found, so not known to be durable ──the synchronous standby, if there is one, has it──▶ accepted or replayed
 *     └─ it does not answer ──▶ unknown
 *
 * After the barrier an earlier statement can no longer take effect, so what is read then, and the result of another try, stay true.
 */
import { limits } from '../../config/limits.ts';
import type { Attempt, PlacedOrderColumns } from '../../domain/order.ts';
import type {
  Accepted,
  Busy,
  Outcome,
  Replayed,
  Result,
  Retry,
  Step,
  Unanswered,
} from '../../domain/outcome.ts';
import {
  classifyPostgresError,
  expectedPostgresFailure,
  isOfState,
  isRowError,
  rejected,
} from '../../store/failures/postgres.ts';
import { setBarrier } from '../../store/postgres/insert-orders.ts';
import { type PostgresStore, retried } from '../../store/postgres/pool.ts';
import { readFor, type SaleState, type Seen } from '../../store/postgres/purchases.ts';
import type { Timeline } from '../../store/postgres/standby-wait.ts';

/** An order to be placed. */
export interface Placement<M extends Attempt> {
  readonly order: M;
  /** A try that got no answer, and is not resolved; null: nothing is written. */
  unanswered: Unanswered | null;
}

/** The result of one try; null: nothing was placed, and a read says why. */
export type Tried = Step | null;

export interface Placing<M extends Attempt> {
  /** One try with all that are left. It may throw what Postgres throws: then nothing was placed. */
  place(left: readonly M[]): Promise<(order: M) => Tried>;
  /** Why a sale, as it was read, sells nothing to an order; null: it would by now. */
  rejectionOf(sale: SaleState | null, order: M): Result | null;
  answer(placement: Placement<M>, result: Result): void;
  /** No try begins later, on `performance.now()`'s clock. */
  readonly untilMs?: number;
  /** Another process may have a statement with these orders in progress. */
  readonly isClaimed?: boolean;
}

type Found = Accepted | Replayed;

/** The state read afterwards does not explain the result, because something changed in between. */
export const RETRY: Retry = { kind: 'retry', reason: 'contended' };

/** Answers every placement. @throws a defect, and an error that one of several may have caused: those without an answer wrote nothing */
export async function placeInRounds<M extends Attempt>(
  postgres: PostgresStore,
  placements: readonly Placement<M>[],
  placing: Placing<M>,
): Promise<void> {
  const { untilMs = Number.POSITIVE_INFINITY, isClaimed = false } = placing;
  const rounds = new Rounds(postgres, placing);
  let left = placements;
  for (let round = 0; left.length > 0; round++) {
    if (round === limits.commitRetries || performance.now() >= untilMs) left = rounds.end(left, 'contended');
    else if ((isClaimed && round === 0) || left.some(({ unanswered }) => unanswered !== null))
      left = await rounds.resolve(left);
    left = await rounds.try(left);
  }
}

class Rounds<M extends Attempt> {
  readonly #postgres: PostgresStore;
  readonly #placing: Placing<M>;

  constructor(postgres: PostgresStore, placing: Placing<M>) {
    this.#postgres = postgres;
    this.#placing = placing;
  }

  /** Each of these methods returns the placements that have no answer yet. */
  async try(left: readonly Placement<M>[]): Promise<readonly Placement<M>[]> {
    if (left.length === 0) return left;
    const before = this.#postgres.timeline();
    const triedOf = await this.#place(left);
    const again: Placement<M>[] = [];
    const unexplained: Placement<M>[] = [];
    const found: [Placement<M>, Found][] = [];
    for (const placement of left) {
      const tried = triedOf(placement.order);
      if (tried === null) unexplained.push(placement);
      else if (tried.kind === 'retry') again.push(placement);
      else if (tried.kind === 'unanswered') {
        placement.unanswered = tried;
        again.push(placement);
      } else if ('durable' in tried && !tried.durable) found.push([placement, tried]);
      else this.#placing.answer(placement, tried);
    }
    await this.#answerFound(found, before);
    return again.concat(await this.#explain(unexplained));
  }

  /** Tries without an answer: see the header. */
  async resolve(left: readonly Placement<M>[]): Promise<readonly Placement<M>[]> {
    const late = left.filter(({ unanswered }) => unanswered !== null);
    // Before the wait for the deadline: mostly an answer was lost, and not a statement.
    const others = late.length === 0 ? left : await this.#explain(left, true);
    if (others.length === 0) return others;
    const saleIds = [...new Set(others.map(({ order }) => order.saleId))];
    const lateUntilMs = Math.max(...others.map(({ unanswered }) => unanswered?.lateUntilMs ?? 0));
    if (!(await setBarrier(this.#postgres, saleIds, lateUntilMs)))
      return this.end(others, 'earlier-statement-in-progress');
    const notPlaced = await this.#explain(others);
    for (const placement of notPlaced) placement.unanswered = null;
    return notPlaced;
  }

  end(left: readonly Placement<M>[], reason: string): readonly Placement<M>[] {
    for (const placement of left) this.#placing.answer(placement, notPlaced(placement, reason));
    return [];
  }

  async #place(left: readonly Placement<M>[]): Promise<(order: M) => Tried> {
    try {
      return await this.#placing.place(left.map(({ order }) => order));
    } catch (error) {
      const failure = expectedPostgresFailure(error);
      const { kind, reason } = failure;
      if (kind === 'unknown') return () => ({ kind: 'unanswered', reason, lateUntilMs: 0 });
      if (kind === 'conflict') return () => RETRY;
      if (kind === 'rejected' && isOfState(failure)) return () => null;
      if (kind !== 'rejected' && !isRowError(error)) return () => ({ kind: 'busy', reason });
      if (left.length > 1) throw error;
      return () => rejectedOrder(error);
    }
  }

  /**
   * Reads why they were not placed.
   * @param onlyOwn they may still be placed, also beside another order of the customer: that may be closed by then
   */
  async #explain(left: readonly Placement<M>[], onlyOwn = false): Promise<readonly Placement<M>[]> {
    if (left.length === 0) return left;
    const before = this.#postgres.timeline();
    let seen: readonly Seen[];
    try {
      const orders = left.map(({ order }) => order);
      seen = await retried(() => readFor(this.#postgres.pool, orders));
    } catch (error) {
      const { reason } = expectedPostgresFailure(error);
      return onlyOwn ? left : this.end(left, reason);
    }
    const found: [Placement<M>, Found][] = [];
    const others = left.filter((placement, i) => {
      const { sale, own, active } = seen[i]!;
      if (onlyOwn && own === null) return true;
      const order = own ?? active;
      if (order !== null) {
        found.push([placement, existing(placement.order, order)]);
        return false;
      }
      const rejection = this.#placing.rejectionOf(sale, placement.order);
      if (rejection !== null) this.#placing.answer(placement, rejection);
      return rejection === null;
    });
    await this.#answerFound(found, before);
    return others;
  }

  /** @param before taken before they were read */
  async #answerFound(found: readonly (readonly [Placement<M>, Found])[], before: Timeline): Promise<void> {
    if (found.length === 0) return;
    let reason: string | null = null;
    try {
      await this.#postgres.replicated(before);
    } catch (error) {
      reason = expectedPostgresFailure(error).reason;
    }
    for (const [placement, { kind, order }] of found) {
      const { orderId } = placement.order;
      const result: Outcome =
        reason === null ? { kind, order, durable: true } : { kind: 'unknown', orderId, reason };
      this.#placing.answer(placement, result);
    }
  }
}

/** Postgres rejects an order, whatever is placed with it. */
export function rejectedOrder(error: unknown): Busy {
  const failure = classifyPostgresError(error);
  const { reason } =
    failure.kind === 'rejected' ? failure : rejected(String((error as { code?: unknown }).code));
  return { kind: 'busy', reason, cause: 'order' };
}

/** This try wrote nothing; an earlier one may have, when its answer was lost. */
export function notPlaced<M extends Attempt>(
  { order: { orderId }, unanswered }: Placement<M>,
  reason: string,
  cause?: Busy['cause'],
): Outcome {
  if (unanswered !== null) return { kind: 'unknown', orderId, reason: unanswered.reason };
  return { kind: 'busy', reason, ...(cause && { cause }) };
}

/** For a customer with an order: a replay, or this attempt's own order if its first answer was lost. A read found it: see `replicated` in store/postgres/pool.ts. */
export function existing({ saleId, userId, orderId }: Attempt, order: PlacedOrderColumns): Found {
  const { id, status, quantity } = order;
  const placed = { orderId: id, saleId, userId, status, quantity };
  return { kind: id === orderId ? 'accepted' : 'replayed', order: placed, durable: false };
}
