/**
 * The audit trusts the stores, not the answers. A check is a pure function of the answers that clients received (the history) and
 * of what the stores hold afterwards (the snapshot); it counts what is wrong and says it in words.
 */
import type { HistoryRecord } from '../kit/history.ts';
import { quantity } from '../kit/text.ts';

/** One row of `orders`. */
export interface OrderRow {
  readonly id: string;
  readonly saleId: number;
  readonly userId: string;
  /** pending and paid are active. */
  readonly status: string;
}

/** One row of `points_entries` whose source is an order. */
export interface PointsRow {
  readonly userId: string;
  /** Earned, taken back when the order was closed, or given again when it was paid after it had expired. */
  readonly sourceType: string;
  /** The order's id. */
  readonly sourceId: string;
  /** A reversal's are negative. */
  readonly points: number;
}

/** One row of `payment_notifications`. */
export interface PaymentRow {
  readonly id: string;
  readonly orderId: string;
  /** What it did: paid, revived, refund-due or none. */
  readonly result: string;
}

/** One row of `tasks` that is about an order: ship, award or refund. */
export interface TaskRow {
  readonly kind: string;
  /** Null: its payload names none. */
  readonly orderId: string | null;
  /** A dead one is not tried again. */
  readonly state: string;
}

/** A store that could not be read, with the reason. */
export interface Unreadable {
  readonly unreadable: string;
}

export interface PostgresSnapshot {
  readonly sale: { readonly id: number; readonly stock: number; readonly sold: number };
  /** The orders of all sales in the database: a lost order may be found under another sale. */
  readonly orders: readonly OrderRow[];
  readonly points: readonly PointsRow[];
  readonly payments: readonly PaymentRow[];
  readonly tasks: readonly TaskRow[];
  /** Units of the sale that were returned or taken again, not yet published to Redis. */
  readonly untold: number;
  /** Rows of `stock_units` of the sale that name an order which is not active. */
  readonly heldUnits: number;
}

export interface RedisSnapshot {
  /** Units that Redis would still sell; null: the strategy keeps no count in Redis. */
  readonly remaining: number | null;
  /** Customers with a unit according to Redis; null like `remaining`. */
  readonly buyers: number | null;
  /** Reservations that are not settled. */
  readonly unsettled: number;
  /**
   * Whether their number, or that of the units not yet published to Redis, still changed when the audit stopped
   * waiting: then it is too early to judge.
   */
  readonly settling: boolean;
}

/** What the stores hold after the load, read once the service has stopped. */
export interface StoresSnapshot {
  readonly postgres: PostgresSnapshot | Unreadable;
  readonly redis: RedisSnapshot | Unreadable;
}

/** Everything a check may look at; `postgres` has been read. */
export interface Evidence {
  readonly history: readonly HistoryRecord[];
  readonly postgres: PostgresSnapshot;
  readonly redis: RedisSnapshot | Unreadable;
  /** The sale's orders that are pending or paid. */
  readonly active: readonly OrderRow[];
  /** The sale's orders that are neither: cancelled, expired, or to be refunded. */
  readonly closed: readonly OrderRow[];
}

export interface CheckResult {
  /** How many things are wrong; null: the check could not be made. */
  readonly count: number | null;
  /** What is wrong, or why the check could not be made; null when all is well. */
  readonly finding: string | null;
}

export type Check = (evidence: Evidence) => CheckResult;

export function isUnreadable<T extends object>(store: T | Unreadable): store is Unreadable {
  return 'unreadable' in store;
}

/** Whether the order holds a unit. */
export function isActive({ status }: OrderRow): boolean {
  return status === 'pending' || status === 'paid';
}

/** Why it is too early to compare Redis with Postgres; null: nothing is in flight between them. */
export function underWay({ untold }: PostgresSnapshot, redis: RedisSnapshot): string | null {
  if (!redis.settling) return null;
  const left = [
    redis.unsettled > 0
      ? `${quantity(redis.unsettled, 'reservation was', 'reservations were')} still being settled`
      : '',
    untold > 0 ? `Redis was still being told of ${quantity(untold, 'unit')}` : '',
  ];
  const words = listed(left);
  return words === '' ? null : `${words} when the audit stopped waiting`;
}

export function groupBy<K, V>(rows: readonly V[], keyOf: (row: V) => K): Map<K, V[]> {
  const groups = new Map<K, V[]>();
  for (const row of rows) {
    const key = keyOf(row);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [row]);
    else group.push(row);
  }
  return groups;
}

/** What there is to say, with commas between; empty texts are left out. */
export function listed(findings: readonly string[]): string {
  return findings.filter((finding) => finding !== '').join(', ');
}

/** `count` things wrong, described by `finding`; nothing is said when nothing is wrong. */
export function counted(count: number, finding: string): CheckResult {
  return { count, finding: count === 0 ? null : finding };
}
