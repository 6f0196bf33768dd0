/**
 * Commits in Postgres what a strategy reserved in Redis: order, count and points, in batches (strategies/kit/placing-batches.ts).
 *
 *   shared batch ──▶ INSERT_UNHELD ──▶ committed
 *                       └─ left ──▶ batch of the sale ──▶ INSERT_ALL ──▶ committed
 *                                      └─ an order exists, units are missing, or a customer's limit is reached ──▶ INSERT_UP_TO_STOCK
 *   not inserted ──▶ a read says why: an order of the customer, or its own by an earlier try · too few units · its limit · no such sale ·
 *                    its sale was loaded in another epoch since: `retry`, see store/redis/epochs.ts
 *
 * Each reservation is committed under a claim (domain/outcome.ts). No statement starts to take effect after the claim's end,
 * but an earlier one may still be waiting inside Postgres for its commit. So the next process that claims the reservation first
 * sets a barrier on its sale (store/late-requests.ts): what it then finds is final.
 */
import { limits } from '../config/limits.ts';
import {
  beyondLimit,
  type ClaimedReservation,
  type Reservation,
  type Result,
  shortage,
} from '../domain/outcome.ts';
import type { Instruments } from '../metrics/instruments.ts';
import { isAnswer } from '../store/failures/postgres.ts';
import type { OutboxRelay } from '../store/outbox-relay.ts';
import { insertReserved, insertUpToStock } from '../store/postgres/insert-orders.ts';
import type { PostgresStore } from '../store/postgres/pool.ts';
import type { SaleState } from '../store/postgres/purchases.ts';
import type { SaleMirror } from '../store/redis/sale-mirror.ts';
import { offerOf } from '../store/redis/sale-records.ts';
import { rejectedOrder } from '../strategies/kit/placing.ts';
import { placingBatches } from '../strategies/kit/placing-batches.ts';

export interface OrderCommitter {
  /**
   * Commits one reservation, together with others that wait. Never throws for a failure of Postgres.
   * @param noTimeout waits for its turn until the claim ends; `busy` with the cause `waited-too-long` then leaves the reservation to
   *   the next claim
   * @returns `retry`: the sale was loaded in another epoch since (store/redis/epochs.ts)
   */
  commit(reservation: ClaimedReservation, noTimeout?: boolean): Promise<Result>;
  /** Reservations that wait for the next statement. */
  readonly waiting: number;
  /** Waits until nothing is queued or in progress. */
  idle(): Promise<void>;
}

export interface OrderCommitterContext {
  readonly postgres: PostgresStore;
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

export function createOrderCommitter(context: OrderCommitterContext): OrderCommitter {
  let inProgress = 0;
  const whenIdle: (() => void)[] = [];

  const batches = placingBatches<ClaimedReservation>(context.postgres, {
    name: 'commits',
    shared: INSERT_UNHELD,
    first: INSERT_ALL,
    later: INSERT_UP_TO_STOCK,
    paymentWindowS: context.paymentWindowS,
    valuesOf,
    endOf: ({ untilMs }) => untilMs,
    isClaimed: ({ isFirst }) => !isFirst,
    rejectionOf,
    reasonOf: (cause) => `committer-${cause}`,
    onBatch: (size) => context.instruments.commitBatchSize.observe(size),
    onCommitted: acknowledge,
  });

  /** No caller waits for this: if it fails, the reaper finds the reservation and its order in Postgres. */
  function acknowledge(committed: readonly Reservation[]): void {
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

  return {
    async commit(reservation, noTimeout = false) {
      const waitMs = noTimeout ? Number.POSITIVE_INFINITY : limits.commitWaitMs;
      const untilMs = Math.min(performance.now() + waitMs, reservation.untilMs - limits.claimLeastMs);
      inProgress++;
      try {
        const result = await batches.submit(reservation, untilMs);
        if (result.kind === 'retry') supersede(context, reservation);
        return result;
      } catch (error) {
        if (!isAnswer(error)) throw error;
        context.onError('commit-orders', error);
        return rejectedOrder(error);
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

function valuesOf(reservations: readonly ClaimedReservation[]): readonly unknown[] {
  const offers = reservations.map(offerOf);
  const prices = offers.map((offer) => offer?.priceCents ?? null);
  const windows = offers.map((offer) => offer?.paymentWindowS ?? null);
  return [...epochsOf(reservations), prices, windows];
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

/** Why a reservation gets no units of a sale; null: it does. */
function rejectionOf(sale: SaleState | null, { epoch, quantity }: ClaimedReservation): Result | null {
  if (sale === null) return { kind: 'unknown-sale' };
  if (sale.epoch !== null && epoch !== null && sale.epoch !== epoch)
    return { kind: 'retry', reason: 'reserved-in-another-epoch' };
  return shortage(sale.free, quantity) ?? beyondLimit(sale, quantity);
}

function supersede({ mirror, onError }: OrderCommitterContext, { saleId, epoch }: ClaimedReservation): void {
  const report = (error: unknown) => onError('supersede-epoch', error);
  mirror
    .supersede(saleId, epoch!)
    .then((isOurs) => isOurs && report(new Error(`sale ${saleId} was loaded in another epoch of Redis`)))
    .catch(report);
}
