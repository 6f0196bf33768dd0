/**
 * The audit trusts the stores, not the answers. A check is a pure function of what clients were told (the history) and
 * of what the stores hold afterwards (the snapshot); it counts what is wrong and says it in words.
 */
import type { HistoryRecord } from '../history.ts';

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
  /** The order's id. */
  readonly sourceId: string;
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
}

export interface RedisSnapshot {
  /** Units that Redis would still sell; null: the strategy keeps no count in Redis. */
  readonly remaining: number | null;
  /** Reservations that are not settled. */
  readonly unsettled: number;
  /** Whether their number still went down when the audit stopped waiting: then it is too early to judge. */
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

/** `count` things wrong, described by `finding`; nothing is said when nothing is wrong. */
export function counted(count: number, finding: string): CheckResult {
  return { count, finding: count === 0 ? null : finding };
}

/** "1 order", "1,213 orders". */
export function quantity(count: number, one: string, many = `${one}s`): string {
  return `${number(count)} ${count === 1 ? one : many}`;
}

/** 1213 → "1,213". */
export function number(value: number): string {
  return value.toLocaleString('en-US');
}
