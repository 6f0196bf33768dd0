/**
 * How an attempt ends. Each outcome is a value; only defects throw.
 *
 *   attempt ──▶ strategy.decide ───┬─▶ reserved ──▶ committer ──┬─▶ accepted   (committed in Postgres)
 *                                  │                            ├─▶ replayed   (the customer had an order already)
 *                                  │                            ├─▶ sold-out   (Postgres rejected it: Redis had one unit too many)
 *                                  │                            ├─▶ customer-limit   (Postgres rejected it; the unit was released)
 *                                  │                            ├─▶ busy       (Postgres was unavailable; the unit was released)
 *                                  │                            └─▶ unknown    (no answer came; the reaper resolves it)
 *                                  ├─▶ accepted   (a strategy of Postgres commits by itself)
 *                                  └─▶ replayed | sold-out | customer-limit | not-open | unknown-sale | busy | unknown
 */
import type { Attempt, Order } from './order.ts';

/** Units that Redis took for an order which Postgres does not have yet. */
export interface Reservation extends Attempt {
  /** By Redis's clock, milliseconds since 1970; the offer, more than one unit and segments follow. See lua/sale/reserve.lua. */
  readonly reservedAt: string;
}

/**
 * The exclusive right to commit or release a reservation: see lua/sale/claim.lua. The process that made the reservation has
 * the first claim; once a claim has ended, another process may claim the reservation.
 */
export interface Claim {
  /** By Redis's clock, milliseconds since 1970. A release names it, and fails once there is a newer claim. */
  readonly claimedAtMs: number;
  /** On `performance.now()`'s clock: no commit under this claim may take effect later. */
  readonly untilMs: number;
  /** False: another process had a claim before, and its statement may still be waiting inside Postgres. */
  readonly isFirst: boolean;
  /**
   * The sale must still be loaded in this epoch when the order is committed (store/redis/epochs.ts). Null: the order is committed in any
   * case, because its customer has a 202.
   */
  readonly epoch: number | null;
}

/** A reservation that this process may commit or release. */
export type ClaimedReservation = Reservation & Claim;

/** The order in an answer. */
export type PlacedOrder = Pick<Order, 'orderId' | 'saleId' | 'userId' | 'status' | 'quantity'>;

/** Too few units are free. */
export type NoUnits =
  | { readonly kind: 'sold-out' }
  /** `remaining`, more than none, are free. */
  | { readonly kind: 'not-enough-units'; readonly remaining: number };

export interface UnknownSale {
  readonly kind: 'unknown-sale';
}

/** Nothing was sold, and nothing changed. */
export type Rejection =
  | NoUnits
  | { readonly kind: 'not-open'; readonly reason: NotOpen }
  | UnknownSale
  /** An order of the sale may have `maxPerOrder` units at most. */
  | { readonly kind: 'over-limit'; readonly maxPerOrder: number }
  | CustomerLimit
  /** No group of the sale has the code, or its uses are other customers'. */
  | { readonly kind: 'invalid-code'; readonly reason: 'unknown' | 'used-up' }
  | Busy;

/** A customer may have `limit` units in active orders of a group of sales, and `left` of them, fewer than asked for, are still to be had. */
export interface CustomerLimit {
  readonly kind: 'customer-limit';
  readonly limit: number;
  readonly left: number;
}

/** Nothing was written; a retry after a moment may help: a queue was full, a lock timed out, or a store was unavailable. */
export interface Busy {
  readonly kind: 'busy';
  readonly reason: string;
  /** `order`: Postgres rejects this order, whatever is committed with it. The others: it had no turn. Absent: a store was unavailable. */
  readonly cause?: 'order' | 'queue-full' | 'waited-too-long';
}

export type NotOpen = 'not-started' | 'ended' | 'paused';

/** Why as many units cannot be taken; null: they can. */
export function shortage(free: number, quantity: number): NoUnits | null {
  if (free <= 0) return { kind: 'sold-out' };
  return free < quantity ? { kind: 'not-enough-units', remaining: free } : null;
}

/** Why a customer cannot have as many units more; null: they can. */
export function beyondLimit(
  { maxPerCustomer, unitsHeld }: { maxPerCustomer?: number | null; unitsHeld?: number | null },
  quantity: number,
): CustomerLimit | null {
  if (maxPerCustomer == null) return null;
  const left = Math.max(0, maxPerCustomer - (unitsHeld ?? 0));
  return quantity > left ? { kind: 'customer-limit', limit: maxPerCustomer, left } : null;
}

/** A write got no answer: it may have happened. A repeat by the same customer resolves it. */
export interface Unknown {
  readonly kind: 'unknown';
  readonly orderId: string;
  readonly reason: string;
}

/** The customer got the units. */
export interface Accepted {
  readonly kind: 'accepted';
  readonly order: PlacedOrder;
  /** Whether it is committed, and replicated where that is configured. */
  readonly durable: boolean;
}

/** The outcome for a customer who got the units. */
export function accepted({ orderId, saleId, userId, quantity }: Attempt): Accepted {
  return { kind: 'accepted', order: { orderId, saleId, userId, status: 'pending', quantity }, durable: true };
}

/** The customer had an order already. */
export interface Replayed extends Omit<Accepted, 'kind'> {
  readonly kind: 'replayed';
}

/** The answer to the customer. */
export type Outcome = Accepted | Replayed | Rejection | Unknown;

/** The state has changed in between, and explains nothing: what decides, decides again. Nothing was written. */
export interface Retry {
  readonly kind: 'retry';
  readonly reason: string;
}

/** The result of a request that got no reply: the store may execute it until `lateUntilMs`, by the store's own clock. */
export interface Unanswered {
  readonly kind: 'unanswered';
  readonly reason: string;
  /** Milliseconds since 1970; 0: it cannot be late. */
  readonly lateUntilMs: number;
}

/** How a decision or a commit ended. */
export type Result = Outcome | Retry;

/** How one try ended. */
export type Step = Result | Unanswered;

/** The same, of one that decides in Redis. */
export type StepInRedis =
  | Step
  /** It took the units of this attempt. */
  | { readonly kind: 'reserved'; readonly reservation: Reservation }
  /** It has an earlier order of the customer. */
  | { readonly kind: 'held'; readonly reservation: Reservation };

/**
 * What a strategy decides. `mayBeAhead`: with CONFIRM=accepted, a 202 may come before the commit, because as many replicas as REDIS_WAIT asks
 * for have the reservation, and Postgres has confirmed that it is in the last copy of the sale.
 */
export type Decision =
  /** Redis took a unit; the order committer commits it. */
  | { readonly kind: 'reserved'; readonly reservation: ClaimedReservation; readonly mayBeAhead: boolean }
  /** Redis has an earlier order of this customer; Postgres has its state. */
  | {
      readonly kind: 'held';
      readonly reservation: Reservation;
      readonly mayBeAhead: boolean;
      /** In which it was found. */
      readonly epoch: number | null;
    }
  | Result;
