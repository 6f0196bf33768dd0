/**
 * Settles a reservation: commits it before the response (CONFIRM=durable) or right after it (CONFIRM=accepted, unless too few
 * replicas have it), or releases it. Only the process with the claim may do so (domain/outcome.ts). A repeat that finds the
 * reservation of an earlier attempt:
 *
 *   committed already ──▶ replayed
 *   this process has the claim ──▶ joins that attempt's outcome
 *   the claim has ended, because its process died ──▶ claims it, and commits or releases it
 *   another process has the claim ──▶ waits for the order, for a while ──▶ unknown: it may be committed or released
 *   released ──▶ busy: a new attempt finds the unit
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { limits } from '../config/limits.ts';
import type {
  ClaimedReservation,
  Decision,
  Outcome,
  PlacedOrder,
  Reservation,
  Result,
} from '../domain/outcome.ts';
import type { OutboxRelay } from '../store/outbox-relay.ts';
import type { PostgresStore } from '../store/postgres/pool.ts';
import { readFor } from '../store/postgres/purchases.ts';
import type { ReleaseOptions, SaleMirror } from '../store/redis/sale-mirror.ts';
import { existing } from '../strategies/kit/placing.ts';
import type { Backlog } from './backlog.ts';
import type { OrderCommitter } from './order-committer.ts';

export interface SettlementContext {
  readonly mirror: SaleMirror;
  readonly committer: OrderCommitter;
  readonly postgres: PostgresStore;
  readonly outbox: Pick<OutboxRelay, 'take'>;
  readonly backlog: Pick<Backlog, 'left' | 'size'>;
  readonly confirm: 'durable' | 'accepted';
  readonly onError: (doing: string, error: unknown, ids: object) => void;
}

export interface Settlement {
  /** The answer to an attempt, from the strategy's decision. @throws (rejects) for a defect only */
  settle(decision: Decision): Result | Promise<Result>;
  /** Whether as many orders wait for their commit, here or in Redis, as may be accepted ahead of it. */
  readonly isBehind: boolean;
  /** Waits for commits in the background. */
  idle(): Promise<void>;
}

export const createSettlement = (context: SettlementContext): Settlement => new Settling(context);

class Settling implements Settlement {
  readonly #context: SettlementContext;
  /** Whether customers get a 202 before the commit: see `fateOf`. */
  readonly #isPromised: boolean;
  readonly #background = new Set<Promise<unknown>>();
  /** Commits in progress by order id; repeats join the pending promise. */
  readonly #inProgress = new Map<string, Promise<Result>>();

  constructor(context: SettlementContext) {
    this.#context = context;
    this.#isPromised = context.confirm === 'accepted';
  }

  settle(decision: Decision): Result | Promise<Result> {
    switch (decision.kind) {
      case 'reserved':
        if (decision.mayBeAhead) return this.#acceptAhead(decision.reservation);
        return this.#commitOrRelease(decision.reservation);
      case 'held':
        return this.#replay(decision);
      default:
        return decision;
    }
  }
  get isBehind(): boolean {
    const { committer, backlog } = this.#context;
    return this.#isPromised && committer.waiting + backlog.size >= limits.acceptedBacklog;
  }
  async idle(): Promise<void> {
    await Promise.all(this.#background);
    await this.#context.committer.idle();
  }

  #commitOrRelease(reservation: ClaimedReservation): Promise<Result> {
    const outcome = this.#commit(reservation);
    this.#inProgress.set(reservation.orderId, outcome);
    return outcome;
  }

  async #commit(reservation: ClaimedReservation): Promise<Result> {
    try {
      const result = await this.#context.committer.commit(reservation);
      return result.kind === 'accepted' ? result : await this.#conclude(reservation, result);
    } finally {
      this.#inProgress.delete(reservation.orderId);
    }
  }

  /**
   * CONFIRM=accepted: returns the decision made in Redis; the commit follows. An order that cannot be committed now stays
   * reserved, and the reaper commits it; only what Postgres rejects is released.
   */
  #acceptAhead(reservation: ClaimedReservation): Outcome {
    const { orderId, saleId, userId, quantity } = reservation;
    const failed = (error: unknown) =>
      this.#context.onError('commit-accepted-order', error, idsOf(reservation));
    const work = this.#context.committer
      .commit({ ...reservation, epoch: null }, true)
      .then(async (result) => {
        if (result.kind === 'busy' || result.kind === 'unknown') this.#context.backlog.left();
        if (result.kind === 'busy' && result.cause === 'waited-too-long') return; // left to the reaper
        if (result.kind === 'accepted') return this.#tellLastCopy(reservation);
        if (result.kind !== 'busy') await this.#conclude(reservation, result);
        failed(new Error(result.kind));
      })
      .catch(failed)
      .finally(() => this.#background.delete(work));
    this.#background.add(work);
    return {
      kind: 'accepted',
      order: { orderId, saleId, userId, status: 'pending', quantity },
      durable: false,
    };
  }

  /** A copy that another process loaded before the commit lacks the order. */
  async #tellLastCopy({ saleId, orderId, epoch }: ClaimedReservation): Promise<void> {
    const { mirror, outbox } = this.#context;
    if (epoch !== null && !(await mirror.isCurrent(saleId, epoch))) await outbox.take([orderId]);
  }

  /** The outcome of an attempt with a claimed reservation. */
  async #conclude(reservation: ClaimedReservation, result: Result): Promise<Result> {
    const fate = fateOf(reservation, result, this.#isPromised);
    try {
      return await carryOut(this.#context.mirror, reservation, fate);
    } catch (error) {
      const doing = fate.inRedis === 'unclaim' ? 'abandon-reservation' : 'release-reservation';
      this.#context.onError(doing, error, idsOf(reservation));
      return uncertain(reservation, fate);
    }
  }

  /** Redis has an earlier order of the customer. */
  async #replay({ reservation, mayBeAhead, epoch }: Extract<Decision, { kind: 'held' }>): Promise<Result> {
    const { orderId, saleId, userId, quantity } = reservation;
    const { postgres, mirror } = this.#context;
    const untilMs = performance.now() + limits.replayWaitMs;
    try {
      for (;;) {
        const before = postgres.timeline();
        const [seen] = await readFor(postgres.pool, [reservation]);
        const order = seen!.active ?? seen!.own;
        if (order !== null) {
          await postgres.replicated(before);
          if (order !== seen!.active && seen!.isTransferred) return ORDER_JUST_CLOSED;
          return replayed(existing(reservation, order).order, true);
        }
        if (mayBeAhead && !(await mirror.isKept(reservation)))
          return replayed({ orderId, saleId, userId, status: 'pending', quantity }, false);
        const outcome = this.#inProgress.get(orderId) ?? (await this.#claimAndSettle(reservation, epoch));
        if (outcome !== null) return replayOf(await outcome);
        if (performance.now() > untilMs) return unknown(reservation, 'order-in-progress');
        await sleep(limits.replayPollMs);
      }
    } catch (error) {
      this.#context.onError('replay-order', error, idsOf(reservation));
      return unknown(reservation, 'order-in-progress');
    }
  }

  /** @returns null when another process has the claim, or may have it */
  async #claimAndSettle(reservation: Reservation, epoch: number | null): Promise<Result | null> {
    const claim = await this.#context.mirror.claim(reservation, epoch);
    if (claim === 'claimed-by-another') return null;
    return claim === 'released' ? RESERVATION_RELEASED : this.#commitOrRelease(claim);
  }
}

/** Or it was transferred. Redis has not applied it yet: the customer may buy again in a moment. */
const ORDER_JUST_CLOSED: Outcome = { kind: 'busy', reason: 'order-just-closed' };
const RESERVATION_RELEASED: Outcome = { kind: 'busy', reason: 'reservation-released' };

function unknown({ orderId }: Reservation, reason: string): Outcome {
  return { kind: 'unknown', orderId, reason };
}

/** The answer to a repeat, from the outcome of the attempt that it repeats. */
function replayOf(outcome: Result): Result {
  return outcome.kind === 'accepted' ? replayed(outcome.order, outcome.durable) : outcome;
}

const replayed = (order: PlacedOrder, durable: boolean): Outcome =>
  isActive(order) ? { kind: 'replayed', order, durable } : ORDER_JUST_CLOSED;

const isActive = ({ status }: PlacedOrder) => status === 'pending' || status === 'paid';

const idsOf = ({ orderId, saleId, userId }: Reservation) => ({ orderId, saleId, userId });

/**
 * The fate of a reservation, from the result of its commit: the answer to its customer, and what happens to it in Redis. Settlement,
 * repeats and the reaper share it. Only the process with the claim may act on it (domain/outcome.ts).
 *
 *   accepted                          nothing: the committer acknowledges it
 *   replayed, with the other order    released; the customer keeps that order
 *   too few units, or no such sale    released without those units that Postgres does not have
 *   the customer's limit is reached   released
 *   retry: decided again              released
 *   busy                              released
 *   unknown                           nothing: the reaper commits it, or finds it committed
 *
 * A reservation that an earlier claim may have committed, or whose customer may have a 202, is not released when Postgres is busy: its
 * claim ends, the next claim commits it, and the answer is unknown.
 */
interface Fate {
  readonly answer: Result;
  readonly inRedis: 'nothing' | 'unclaim' | ReleaseOptions;
}

/**
 * @param isPromised whether customers get a 202 before the commit (CONFIRM=accepted). A failover to a replica that missed a release
 *   restores the reservation, which is then committed (see lua/sale/load.lua): no answer may say that it was not
 */
export function fateOf(reservation: ClaimedReservation, result: Result, isPromised: boolean): Fate {
  const { orderId, isFirst } = reservation;
  const unknown = (reason: string) => ({ kind: 'unknown', orderId, reason }) as const;
  switch (result.kind) {
    case 'accepted':
    case 'unknown':
      return { answer: result, inRedis: 'nothing' };
    case 'replayed':
      return { answer: result, inRedis: { owner: result.order } };
    case 'retry':
    case 'busy':
      if (!isFirst || isPromised) return { answer: unknown(result.reason), inRedis: 'unclaim' };
      return { answer: result, inRedis: {} };
    case 'customer-limit':
      return { answer: isPromised ? unknown(NOT_RELEASED) : result, inRedis: {} };
    default: {
      // What Postgres still has, and more, is reserved or free in Redis: only the rest is too many.
      const remaining = result.kind === 'not-enough-units' ? result.remaining : 0;
      const answer = isPromised ? unknown(NOT_RELEASED) : result;
      return { answer, inRedis: { discardedUnits: reservation.quantity - remaining } };
    }
  }
}

/** The reason of `unknown` when the reservation may still be committed. */
const NOT_RELEASED = 'reservation-not-released';

/**
 * Does in Redis what the fate says.
 * @returns the answer; `unknown` when the release is not certain, also where this process has reached another server since: the one that has
 *   the reservation may come back with it. A reservation that is gone while its claim is this process's was dropped, in another epoch: only
 *   this process could have committed it
 * @throws what Redis throws
 */
export async function carryOut(
  mirror: SaleMirror,
  reservation: ClaimedReservation,
  { answer, inRedis }: Fate,
): Promise<Result> {
  if (inRedis === 'nothing') return answer;
  if (inRedis === 'unclaim') {
    await mirror.unclaim(reservation);
    return answer;
  }
  const reply = await mirror.release(reservation, inRedis);
  const isReleased =
    reply === 'released' ||
    (reply === 'gone' && performance.now() < reservation.untilMs) ||
    (reply === 'elsewhere' && answer.kind === 'retry'); // Postgres commits it no more
  return isReleased ? answer : uncertain(reservation, { answer, inRedis });
}

/** The answer when Redis may not have done what the fate says. A claim that was not ended ends by itself: its answer stays. */
function uncertain({ orderId }: ClaimedReservation, { answer, inRedis }: Fate): Result {
  return typeof inRedis === 'string' ? answer : { kind: 'unknown', orderId, reason: NOT_RELEASED };
}
