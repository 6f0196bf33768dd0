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
  Outcome,
  PlacedOrder,
  Reservation,
  ReserveOutcome,
} from '../domain/outcome.ts';
import type { OrderTable } from '../store/postgres/orders.ts';
import type { PostgresStore } from '../store/postgres/pool.ts';
import type { SaleMirror } from '../store/redis/sale-mirror.ts';
import { CLAIM_EXPIRED, type CommitResult, type OrderCommitter } from './order-committer.ts';

export interface SettlementContext {
  readonly mirror: SaleMirror;
  readonly committer: OrderCommitter;
  readonly postgres: PostgresStore;
  readonly orders: OrderTable;
  readonly confirm: 'durable' | 'accepted';
  readonly onError: (doing: string, error: unknown, ids: object) => void;
}

export interface Settlement {
  /** The answer to an attempt, from the strategy's outcome. @throws (rejects) for a defect only */
  settle(outcome: ReserveOutcome): Promise<Outcome>;
  /** Waits for commits in the background. */
  idle(): Promise<void>;
}

export function createSettlement(context: SettlementContext): Settlement {
  const { mirror, committer } = context;
  /**
   * Whether customers get a 202 before the commit. A release is not final then: a failover to a replica that missed it restores
   * the reservation, which is then committed (see lua/sale/load.lua). So after a release the answer is not `busy`.
   */
  const isAhead = context.confirm === 'accepted';
  const background = new Set<Promise<unknown>>();
  /** Commits in progress by order id; repeats join the pending promise. */
  const inProgress = new Map<string, Promise<Outcome>>();

  function commitOrRelease(reservation: ClaimedReservation): Promise<Outcome> {
    const outcome = committer
      .commit(reservation)
      .then((result) => outcomeOf(reservation, result))
      .finally(() => inProgress.delete(reservation.orderId));
    inProgress.set(reservation.orderId, outcome);
    return outcome;
  }

  /**
   * CONFIRM=accepted: returns the decision made in Redis; the commit follows. An order that cannot be committed now stays
   * reserved, and the reaper commits it; only what Postgres rejects is released.
   */
  function acceptAhead(reservation: ClaimedReservation): Outcome {
    const { orderId, saleId, userId } = reservation;
    const failed = (error: unknown) => context.onError('commit-accepted-order', error, idsOf(reservation));
    const work = committer
      .commit({ ...reservation, epoch: null }, true)
      .then(async (result) => {
        const outcome = result.kind === 'busy' ? result : await outcomeOf(reservation, result);
        const isLeftToReaper = outcome.kind === 'busy' && outcome.reason === CLAIM_EXPIRED;
        if (outcome.kind === 'accepted' || isLeftToReaper) return;
        failed(new Error(result.kind === 'rejected' ? result.reason : outcome.kind));
      })
      .catch(failed)
      .finally(() => background.delete(work));
    background.add(work);
    return { kind: 'accepted', order: { orderId, saleId, userId, status: 'pending' }, durable: false };
  }

  /** The outcome of an attempt with a claimed reservation. */
  async function outcomeOf(reservation: ClaimedReservation, result: CommitResult): Promise<Outcome> {
    const { orderId } = reservation;
    switch (result.kind) {
      case 'committed':
        return { kind: 'accepted', order: result.order, durable: true };
      case 'unknown':
        return { ...result, orderId }; // the reaper commits it, or finds it committed
      case 'existing': {
        const { order } = result;
        return release(reservation, { ownerOrderId: order.orderId }, { kind: 'replayed', order });
      }
      case 'rejected':
        return release(reservation, { discardUnit: true }, { kind: result.reason });
      case 'busy':
        // Under a later claim, the order may have been committed by the process with the earlier one.
        if (!reservation.isFirst || isAhead) return leave(reservation, result.reason);
        return release(reservation, {}, result);
    }
  }

  /**
   * When the release is not certain, the reservation may still be committed: then only `unknown` is correct. A reservation that is gone
   * while its claim is this process's was dropped, in another epoch: only this process could have committed it.
   */
  async function release(
    reservation: ClaimedReservation,
    options: { discardUnit?: boolean; ownerOrderId?: string },
    outcome: Outcome,
  ): Promise<Outcome> {
    try {
      const reply = await mirror.release(reservation, options);
      const isGone = reply === 'gone' && performance.now() < reservation.untilMs;
      if ((reply === 'released' || isGone) && (outcome.kind === 'replayed' || !isAhead)) return outcome;
    } catch (error) {
      context.onError('release-reservation', error, idsOf(reservation));
    }
    return unknown(reservation, 'reservation-not-released');
  }

  /** Ends the claim, so that another process can claim the reservation. */
  async function leave(reservation: ClaimedReservation, reason: string): Promise<Outcome> {
    await mirror.unclaim(reservation).catch((error) => {
      context.onError('abandon-reservation', error, idsOf(reservation)); // the claim ends by itself
    });
    return unknown(reservation, reason);
  }

  /** Redis has an earlier order of the customer. */
  async function replay(reservation: Reservation, isReplicated: boolean): Promise<Outcome> {
    const { orderId, saleId, userId } = reservation;
    const untilMs = performance.now() + limits.replayWaitMs;
    try {
      for (;;) {
        const [active] = await context.orders.activeOf([{ saleId, userId }]);
        const order = active ?? (await context.orders.get(orderId));
        if (order) {
          await context.postgres.replicated();
          return isActive(order) ? { kind: 'replayed', order: placed(order) } : ORDER_JUST_CLOSED;
        }
        if (isAhead && isReplicated)
          return { kind: 'replayed', order: { orderId, saleId, userId, status: 'pending' } };
        const outcome = inProgress.get(orderId) ?? (await claimAndSettle(reservation));
        if (outcome !== null) return replayOf(await outcome);
        if (performance.now() > untilMs) return unknown(reservation, 'order-in-progress');
        await sleep(limits.replayPollMs);
      }
    } catch (error) {
      context.onError('replay-order', error, idsOf(reservation));
      return unknown(reservation, 'order-in-progress');
    }
  }

  /** @returns null when another process has the claim */
  async function claimAndSettle(reservation: Reservation): Promise<Outcome | null> {
    const claim = await mirror.claim(reservation);
    if (claim === 'claimed-by-another') return null;
    return claim === 'released' ? RESERVATION_RELEASED : commitOrRelease(claim);
  }

  return {
    async settle(outcome) {
      switch (outcome.kind) {
        case 'reserved':
          if (isAhead && outcome.isReplicated) return acceptAhead(outcome.reservation);
          return commitOrRelease(outcome.reservation);
        case 'held':
          return replay(outcome.reservation, outcome.isReplicated);
        default:
          return outcome;
      }
    },
    async idle() {
      await Promise.all(background);
      await committer.idle();
    },
  };
}

/** Redis has not applied it yet: the customer may buy again in a moment. */
const ORDER_JUST_CLOSED: Outcome = { kind: 'busy', reason: 'order-just-closed' };
const RESERVATION_RELEASED: Outcome = { kind: 'busy', reason: 'reservation-released' };

function unknown({ orderId }: Reservation, reason: string): Outcome {
  return { kind: 'unknown', orderId, reason };
}

/** The answer to a repeat, from the outcome of the attempt that it repeats. */
function replayOf(outcome: Outcome): Outcome {
  if (outcome.kind !== 'accepted') return outcome;
  return isActive(outcome.order) ? { kind: 'replayed', order: outcome.order } : ORDER_JUST_CLOSED;
}

const isActive = ({ status }: PlacedOrder) => status === 'pending' || status === 'paid';

const idsOf = ({ orderId, saleId, userId }: Reservation) => ({ orderId, saleId, userId });

function placed({ orderId, saleId, userId, status }: PlacedOrder): PlacedOrder {
  return { orderId, saleId, userId, status };
}
