/**
 * The audit trusts the stores, not the answers. A check is a pure function of the answers that clients received (the history) and
 * of what the stores hold afterwards (the snapshot); it counts what is wrong and says it in words.
 */
import type { HistoryRecord } from '../history.ts';
import { quantity } from '../kit/text.ts';

/** One row of `orders`; pending and paid are active. */
export interface OrderRow {
  readonly id: string;
  readonly saleId: number;
  readonly userId: string;
  /** Who placed it, if an administrator passed it to another customer since. */
  readonly transferredFrom?: string | null;
  readonly status: string;
  readonly quantity: number;
  /** The points that it earns: those of price × quantity. */
  readonly earns: number;
}

/** Units of orders. */
export const unitsOf = (orders: readonly Pick<OrderRow, 'quantity'>[]): number =>
  orders.reduce((sum, { quantity }) => sum + quantity, 0);

/**
 * One row of `points_entries` whose source is an order: earned, reversed when it was closed, revived by a late payment, or moved to another
 * customer with it.
 */
export interface PointsRow {
  readonly userId: string;
  readonly sourceType: string;
  readonly sourceId: string;
  /** Negative for a reversal. */
  readonly points: number;
}

/** One row of `payment_notifications`; its effect was paid, revived, refund-due, surplus or none. */
export type PaymentRow = { readonly id: string; readonly orderId: string; readonly result: string };

/** One row of `tasks` that is about an order: ship, award or refund. A dead task is not retried. */
export interface TaskRow {
  readonly kind: string;
  readonly orderId: string | null;
  readonly state: string;
  /** The payment that a refund is for. */
  readonly payment?: string | null;
}

/** A store that could not be read, with the reason. */
export type Unreadable = { readonly unreadable: string };

export interface PostgresSnapshot {
  readonly sale: {
    readonly id: number;
    readonly stock: number;
    readonly sold: number;
    /** The epoch of the Redis mirror that decides; null: none was loaded. */
    readonly epoch?: number | null;
    /** The server into which it was loaded, as `redis_epochs` has it; null: not known. */
    readonly loadedInto?: string | null;
  };
  /** The orders of all sales in the database: a lost order may be found under another sale. */
  readonly orders: readonly OrderRow[];
  readonly points: readonly PointsRow[];
  readonly payments: readonly PaymentRow[];
  readonly tasks: readonly TaskRow[];
  /** Units of the sale that were returned or taken again, not yet published to Redis. */
  readonly unpublished: number;
  /** Rows of `stock_units` of the sale that name an order which is not active. */
  readonly heldUnits: number;
}

export interface RedisSnapshot {
  /** Units that Redis would still sell; null: the strategy keeps no count in Redis. */
  readonly remaining: number | null;
  /** Units of customers according to Redis; null like `remaining`. */
  readonly held: number | null;
  /** Reservations that are not acknowledged. */
  readonly unsettled: number;
  /** Whether `unsettled`, or the number of unpublished units, still changed when the audit stopped waiting: too early to judge. */
  readonly settling: boolean;
  /** The epoch of the mirror. */
  readonly epoch?: string | null;
}

/** The contents of the stores after the load, read once the service has stopped. */
export interface StoresSnapshot {
  readonly postgres: PostgresSnapshot | Unreadable;
  readonly redis: RedisSnapshot | Unreadable;
}

/** The input of a check: one sale, whose Postgres has been read. */
export interface Evidence {
  /** Attempts on this sale. */
  readonly history: readonly HistoryRecord[];
  readonly postgres: PostgresSnapshot;
  readonly redis: RedisSnapshot | Unreadable;
  /** The sale's orders that are pending or paid. */
  readonly active: readonly OrderRow[];
  /** Their units. */
  readonly activeUnits: number;
  /** The sale's other orders: cancelled, expired, or to be refunded. */
  readonly closed: readonly OrderRow[];
}

export interface CheckResult {
  /** How many things are wrong; null: the check could not be made. */
  readonly count: number | null;
  /** What is wrong, or why the check could not be made; null when all is well. */
  readonly finding: string | null;
}

export type Check = (evidence: Evidence) => CheckResult;

/** The evidence that checks of counters need; the database may have counted the units of active orders. */
export interface Counts extends Pick<Evidence, 'redis'> {
  readonly postgres: Pick<PostgresSnapshot, 'sale' | 'unpublished'>;
  readonly activeUnits: number;
}

/** One kind of fault: how often it was found, and the words to use if it was. */
export type Fault = readonly [count: number, words: string];

export function isUnreadable<T extends object>(store: T | Unreadable): store is Unreadable {
  return 'unreadable' in store;
}

/** Whether an answer to the customer may name the order. */
export const wasOf = (order: Pick<OrderRow, 'userId' | 'transferredFrom'>, userId: string): boolean =>
  order.userId === userId || order.transferredFrom === userId;

/** Whether the order holds its units. */
export const isActive = ({ status }: Pick<OrderRow, 'status'>): boolean =>
  status === 'pending' || status === 'paid';

/** Sums the faults of a check. */
export function tally(...faults: readonly Fault[]): CheckResult {
  const found = faults.filter(([count]) => count > 0);
  return {
    count: found.reduce((sum, [count]) => sum + count, 0),
    finding: found.length === 0 ? null : found.map(([, words]) => words).join(', '),
  };
}

/**
 * The result of a check that needs both stores. If Redis could not be read, `alone`, the fault that Postgres shows by itself,
 * still counts. While changes between the stores are in flight, the check cannot be made.
 */
export function compareStores(
  { postgres: { unpublished }, redis }: Counts,
  alone: Fault,
  compare: (redis: RedisSnapshot) => readonly Fault[],
): CheckResult {
  if (isUnreadable(redis)) {
    if (alone[0] > 0) return tally(alone);
    return { count: null, finding: `Redis could not be read: ${redis.unreadable}` };
  }
  const { settling, unsettled } = redis;
  const inFlight = tally(
    [unsettled, `${quantity(unsettled, 'reservation was', 'reservations were')} still being settled`],
    [unpublished, `${quantity(unpublished, 'change')} still being published to Redis`],
  ).finding;
  if (!settling || inFlight === null) return tally(alone, ...compare(redis));
  return { count: null, finding: `${inFlight} when the audit stopped waiting` };
}
