/**
 * One attempt, from the parsed request to its outcome: see the states in domain/outcome.ts. The strategy decides;
 * what it reserved in Redis is committed here before the answer (CONFIRM=durable), or right after it (CONFIRM=accepted).
 *
 * A reservation is committed or released under its claim, by one process at a time. A repeat that meets the reservation of
 * an earlier attempt:
 *
 *   committed already ──▶ replayed
 *   this process has the claim ──▶ waits for that attempt's outcome
 *   the claim is over, as its process died ──▶ claims it, and commits or releases it
 *   another process has the claim ──▶ waits for the order, for a while ──▶ unknown: it may come, or be released
 *   released ──▶ busy: a new attempt finds the unit
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { uuidv7 } from 'uuidv7';
import type { LoadShedder } from '../concurrency/load-shedding.ts';
import { limits } from '../config/limits.ts';
import type {
  ClaimedReservation,
  Outcome,
  PlacedOrder,
  Reservation,
  ReserveOutcome,
} from '../domain/outcome.ts';
import type { AttemptTally } from '../metrics/attempt-tally.ts';
import type { OrderTable } from '../store/postgres/orders.ts';
import type { Strategy } from '../strategies/strategy.ts';
import { CLAIM_OVER, type CommitResult, type OrderCommitter } from './order-committer.ts';

export interface PurchaseContext {
  readonly strategy: Strategy;
  readonly orders: OrderTable;
  /** null for a strategy that commits by itself. */
  readonly writer: OrderCommitter | null;
  readonly confirm: 'durable' | 'accepted';
  readonly admission: LoadShedder;
  readonly tally: AttemptTally;
  readonly onError: (doing: string, error: unknown, ids: object) => void;
}

export interface Purchases {
  /**
   * Makes one attempt. Where nothing has to be asked the outcome is there at once.
   * @throws (or rejects) only for a defect
   */
  attempt(saleId: number, userId: string): Outcome | Promise<Outcome>;
  /** Waits for commits that no customer waits for. */
  idle(): Promise<void>;
}

export function createPurchases(context: PurchaseContext): Purchases {
  const { strategy, writer, admission, tally } = context;
  const background = new Set<Promise<unknown>>();
  /** Outcomes of the reservations that this process has a claim to, by order id. */
  const claimed = new Map<string, Promise<Outcome>>();
  const acceptsAhead = context.confirm === 'accepted' && writer !== null;

  async function conclude(outcome: ReserveOutcome): Promise<Outcome> {
    switch (outcome.kind) {
      case 'reserved':
        if (context.confirm === 'accepted') return acceptNow(outcome.reservation);
        return settle(outcome.reservation);
      case 'held':
        return await replay(outcome.reservation);
      case 'accepted':
        return { ...outcome, durable: true };
      default:
        return outcome;
    }
  }

  function settle(reservation: ClaimedReservation): Promise<Outcome> {
    const outcome = commitOrRelease(reservation);
    claimed.set(reservation.orderId, outcome);
    return outcome;
  }

  async function commitOrRelease(reservation: ClaimedReservation): Promise<Outcome> {
    try {
      return await outcomeOfCommit(reservation, await commit(reservation));
    } finally {
      claimed.delete(reservation.orderId);
    }
  }

  function commit(reservation: ClaimedReservation, patient = false): Promise<CommitResult> {
    if (writer === null) throw new Error(`${strategy.description.name} reserves, but has no writer`);
    return writer.commit(reservation, patient);
  }

  /**
   * CONFIRM=accepted: the answer is what Redis decided, and the commit follows. What cannot be committed now stays
   * reserved, and recovery commits it; only what Postgres refuses is released.
   */
  function acceptNow(reservation: ClaimedReservation): Outcome {
    const { orderId, saleId, userId } = reservation;
    const work = commit(reservation, true)
      .then((result) => (result.kind === 'busy' ? result : outcomeOfCommit(reservation, result)))
      .then((outcome) => {
        const isLeft = outcome.kind === 'busy' && outcome.reason === CLAIM_OVER; // to the recovery
        if (outcome.kind !== 'accepted' && !isLeft) {
          context.onError('commit-accepted-order', new Error(outcome.kind), { orderId, saleId, userId });
        }
      })
      .catch((error) => context.onError('commit-accepted-order', error, { orderId, saleId, userId }))
      .finally(() => background.delete(work));
    background.add(work);
    return { kind: 'accepted', order: { orderId, saleId, userId, status: 'pending' }, durable: false };
  }

  /** The outcome of an attempt whose reservation this process has the claim to. */
  function outcomeOfCommit(
    reservation: ClaimedReservation,
    result: CommitResult,
  ): Outcome | Promise<Outcome> {
    switch (result.kind) {
      case 'committed':
        return { kind: 'accepted', order: result.order, durable: true };
      case 'unknown':
        return { ...result, orderId: reservation.orderId }; // recovery commits it, or finds it committed
      case 'existing':
        return release(
          reservation,
          { ownerOrderId: result.order.orderId },
          { kind: 'replayed', order: result.order },
        );
      case 'refused':
        return release(reservation, { discardUnit: true }, { kind: result.reason });
      case 'busy':
        // What another process had claimed before may be committed already.
        return reservation.isFirst ? release(reservation, {}, result) : leave(reservation, result.reason);
    }
  }

  /** Where the release is not certain, the reservation may be committed yet: then nothing else than unknown is true. */
  async function release(
    reservation: ClaimedReservation,
    options: { discardUnit?: boolean; ownerOrderId?: string },
    outcome: Outcome,
  ): Promise<Outcome> {
    try {
      if (await strategy.release(reservation, options)) return outcome;
    } catch (error) {
      const { orderId, saleId, userId } = reservation;
      context.onError('release-reservation', error, { orderId, saleId, userId });
    }
    return unknown(reservation, 'reservation-not-released');
  }

  /** Leaves a reservation to whoever claims it next. */
  async function leave(reservation: ClaimedReservation, reason: string): Promise<Outcome> {
    await strategy.mirror!.unclaim(reservation).catch((error) => {
      const { orderId, saleId, userId } = reservation;
      context.onError('abandon-reservation', error, { orderId, saleId, userId }); // the claim ends by itself
    });
    return unknown(reservation, reason);
  }

  /** Redis has an earlier order of the customer: see the states above. */
  async function replay(reservation: Reservation): Promise<Outcome> {
    const { orderId, saleId, userId } = reservation;
    const untilMs = performance.now() + limits.replayWaitMs;
    try {
      for (;;) {
        const [active] = await context.orders.activeOf([{ saleId, userId }]);
        const order = active ?? (await context.orders.get(orderId));
        if (order) return isActive(order) ? { kind: 'replayed', order: pick(order) } : ORDER_JUST_CLOSED;
        if (context.confirm === 'accepted')
          return { kind: 'replayed', order: { orderId, saleId, userId, status: 'pending' } };
        const outcome = claimed.get(orderId) ?? (await claimAndSettle(reservation));
        if (outcome !== null) return replayOf(await outcome);
        if (performance.now() > untilMs) return unknown(reservation, 'order-in-progress');
        await sleep(limits.replayPollMs);
      }
    } catch (error) {
      context.onError('replay-order', error, { orderId, saleId, userId });
      return unknown(reservation, 'order-in-progress');
    }
  }

  /** @returns null when another process has the claim */
  async function claimAndSettle(reservation: Reservation): Promise<Outcome | null> {
    const claim = await strategy.mirror!.claim(reservation);
    if (claim === 'claimed-by-another') return null;
    return claim === 'released' ? RESERVATION_RELEASED : settle(claim);
  }

  async function decide(
    saleId: number,
    userId: string,
    admitted: true | Promise<boolean>,
    startedMs: number,
  ): Promise<Outcome> {
    if (admitted !== true && !(await admitted)) return counted(OVERLOADED, startedMs);
    try {
      const reserved = await strategy.reserve({ saleId, userId, orderId: uuidv7() });
      return counted(await conclude(reserved), startedMs);
    } finally {
      admission.leave();
    }
  }

  function counted(outcome: Outcome, startedMs: number): Outcome {
    tally.add(outcome.kind, performance.now() - startedMs);
    return outcome;
  }

  return {
    attempt(saleId, userId) {
      // A number that no sale can have is asked of no store.
      if (saleId > limits.maxSaleId) return { kind: 'unknown-sale' };
      const startedMs = performance.now();
      if (strategy.latch?.isSoldOut(saleId, userId)) return counted(SOLD_OUT, startedMs);
      // What is accepted is committed afterwards, and must not pile up without end.
      const tooFarAhead = acceptsAhead && writer!.waiting >= limits.acceptedBacklog;
      const admitted = !tooFarAhead && admission.enter();
      if (admitted === false) return counted(OVERLOADED, startedMs);
      return decide(saleId, userId, admitted, startedMs);
    },
    async idle() {
      await Promise.all(background);
      await writer?.idle();
    },
  };
}

const SOLD_OUT: Outcome = { kind: 'sold-out' };
/** Redis has not heard of it: the customer may buy again in a moment. */
const ORDER_JUST_CLOSED: Outcome = { kind: 'busy', reason: 'order-just-closed' };
const RESERVATION_RELEASED: Outcome = { kind: 'busy', reason: 'reservation-released' };
const OVERLOADED: Outcome = { kind: 'busy', reason: 'overloaded' };

function unknown({ orderId }: Reservation, reason: string): Outcome {
  return { kind: 'unknown', orderId, reason };
}

/** What a repeat is answered, by the outcome of the attempt that it repeats. */
function replayOf(outcome: Outcome): Outcome {
  if (outcome.kind !== 'accepted') return outcome;
  return isActive(outcome.order) ? { kind: 'replayed', order: outcome.order } : ORDER_JUST_CLOSED;
}

const isActive = ({ status }: PlacedOrder) => status === 'pending' || status === 'paid';

function pick({ orderId, saleId, userId, status }: PlacedOrder): PlacedOrder {
  return { orderId, saleId, userId, status };
}
