/**
 * One attempt, from the parsed request to its outcome: see the states in domain/outcome.ts. The strategy decides;
 * what it reserved in Redis is committed here before the customer is told (CONFIRM=durable), or right after
 * (CONFIRM=accepted).
 */
import { uuidv7 } from 'uuidv7';
import { limits } from '../config/limits.ts';
import type { Outcome, PlacedOrder, Reservation, ReserveOutcome } from '../domain/outcome.ts';
import type { AttemptTally } from '../metrics/attempt-tally.ts';
import type { OrderTable } from '../store/orders.ts';
import { classifyPostgresError } from '../store/postgres.ts';
import type { Strategy } from '../strategies/strategy.ts';
import type { Admission } from './admission.ts';
import type { CommitResult, Writer } from './writer.ts';

export interface PurchaseContext {
  readonly strategy: Strategy;
  readonly orders: OrderTable;
  /** null for a strategy that commits by itself. */
  readonly writer: Writer | null;
  readonly confirm: 'durable' | 'accepted';
  readonly admission: Admission;
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
  const acceptsAhead = context.confirm === 'accepted' && writer !== null;

  async function conclude(outcome: ReserveOutcome): Promise<Outcome> {
    switch (outcome.kind) {
      case 'reserved':
        if (context.confirm === 'accepted') return acceptNow(outcome.reservation);
        return await outcomeOfCommit(outcome.reservation, await commit(outcome.reservation));
      case 'held':
        return await replay(outcome.reservation);
      case 'accepted':
        return { ...outcome, durable: true };
      default:
        return outcome;
    }
  }

  function commit(reservation: Reservation, patient = false): Promise<CommitResult> {
    if (writer === null) throw new Error(`${strategy.description.name} reserves, but has no writer`);
    return writer.commit(reservation, patient);
  }

  /**
   * CONFIRM=accepted: the customer hears what Redis decided; the commit goes on. What Postgres cannot be asked now
   * stays reserved, and recovery commits it; only what Postgres refuses is given back.
   */
  function acceptNow(reservation: Reservation): Outcome {
    const { orderId, saleId, userId } = reservation;
    const work = commit(reservation, true)
      .then((result) => (result.kind === 'busy' ? result : outcomeOfCommit(reservation, result)))
      .then((outcome) => {
        if (outcome.kind !== 'accepted') {
          context.onError('commit after acceptance', new Error(outcome.kind), { orderId, saleId, userId });
        }
      })
      .catch((error) => context.onError('commit after acceptance', error, { orderId, saleId, userId }))
      .finally(() => background.delete(work));
    background.add(work);
    return { kind: 'accepted', order: { orderId, saleId, userId, status: 'pending' }, durable: false };
  }

  /** The end of this attempt's own reservation. */
  function outcomeOfCommit(reservation: Reservation, result: CommitResult): Outcome | Promise<Outcome> {
    switch (result.kind) {
      case 'committed':
        return { kind: 'accepted', order: result.order, durable: true };
      case 'unknown':
        return { ...result, orderId: reservation.orderId }; // recovery commits it, or finds it committed
      case 'existing':
        return giveBack(
          reservation,
          { ownerOrderId: result.order.orderId },
          { kind: 'replayed', order: result.order },
        );
      case 'refused':
        return giveBack(reservation, { unitBack: false }, { kind: result.reason });
      case 'busy':
        return giveBack(reservation, {}, result);
    }
  }

  /** A unit that could not be given back stays recorded, and recovery will commit it: so the outcome is not known. */
  async function giveBack(
    reservation: Reservation,
    options: { unitBack?: boolean; ownerOrderId?: string },
    outcome: Outcome,
  ): Promise<Outcome> {
    try {
      const released = await strategy.release(reservation, options);
      // Somebody settled it before: recovery may have committed it.
      return released || outcome.kind !== 'busy' ? outcome : unknown(reservation, outcome.reason);
    } catch (error) {
      const { orderId, saleId, userId } = reservation;
      context.onError('give a unit back', error, { orderId, saleId, userId });
      return outcome.kind === 'busy' ? unknown(reservation, 'unit-not-returned') : outcome;
    }
  }

  /** The customer has an order in Redis: what is answered is what Postgres has, once it has it. */
  async function replay(reservation: Reservation): Promise<Outcome> {
    const { orderId, saleId, userId } = reservation;
    let order: PlacedOrder | null | undefined;
    try {
      [order] = await context.orders.activeOf([{ saleId, userId }]);
      // Whether it is closed, or not committed yet. With CONFIRM=durable the commit below finds that out.
      if (context.confirm === 'accepted') order ??= await context.orders.get(orderId);
    } catch (error) {
      const failure = classifyPostgresError(error);
      return { kind: 'busy', reason: failure.kind === 'refused' ? failure.constraint : failure.reason };
    }
    if (order) return isActive(order) ? { kind: 'replayed', order: pick(order) } : ORDER_JUST_CLOSED;
    if (context.confirm === 'accepted') {
      return { kind: 'replayed', order: { orderId, saleId, userId, status: 'pending' } };
    }
    const result = await commit(reservation);
    if (result.kind === 'committed' || result.kind === 'existing') {
      if (!isActive(result.order)) return ORDER_JUST_CLOSED;
      return { kind: 'replayed', order: result.order };
    }
    // The reservation belongs to the earlier attempt, which gives it back.
    if (result.kind === 'unknown') return { ...result, orderId };
    return { kind: 'busy', reason: 'order-under-way' };
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
      if (saleId > limits.maxUnits) return { kind: 'unknown-sale' };
      const startedMs = performance.now();
      if (strategy.latch?.holds(saleId, userId)) return counted(SOLD_OUT, startedMs);
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
const OVERLOADED: Outcome = { kind: 'busy', reason: 'overloaded' };

function unknown({ orderId }: Reservation, reason: string): Outcome {
  return { kind: 'unknown', orderId, reason };
}

const isActive = ({ status }: PlacedOrder) => status === 'pending' || status === 'paid';

function pick({ orderId, saleId, userId, status }: PlacedOrder): PlacedOrder {
  return { orderId, saleId, userId, status };
}
