/**
 * How an attempt ends. Each of these is a value; only what nobody foresaw throws.
 *
 *   attempt ──▶ strategy.reserve ──┬─▶ reserved ──▶ writer ──┬─▶ accepted   (committed in Postgres)
 *                                  │                         ├─▶ replayed   (the customer had an order already)
 *                                  │                         ├─▶ sold-out   (Postgres refused: Redis had a unit too many)
 *                                  │                         ├─▶ busy       (Postgres could not be asked; the unit went back)
 *                                  │                         └─▶ unknown    (no answer came; recovery settles it)
 *                                  ├─▶ accepted   (a Postgres strategy commits by itself)
 *                                  └─▶ replayed | sold-out | not-open | unknown-sale | busy | unknown
 */
import type { Attempt, Order } from './order.ts';

/** A unit that Redis took for an order which Postgres does not have yet. */
export interface Reservation extends Attempt {
  /** Of the entry that records it, until the reservation is settled: see lua/sale/reserve.lua. */
  readonly reservedAt: string;
}

/**
 * The exclusive right to commit or release a reservation: see lua/sale/claim.lua. Whoever made the reservation has the first
 * claim; once a claim is over, others may make the next.
 */
export interface Claim {
  /** When it was made, by Redis's clock, milliseconds since 1970. A release names it, and fails once there is a newer one. */
  readonly claimedAtMs: number;
  /** On `performance.now()`'s clock: a commit may have no effect after this. */
  readonly untilMs: number;
  /** False: another process had a claim before, and a statement of it may be waiting inside Postgres still. */
  readonly isFirst: boolean;
}

/** A reservation that this process may commit or release. */
export type ClaimedReservation = Reservation & Claim;

/** What an order looks like in an answer. */
export type PlacedOrder = Pick<Order, 'orderId' | 'saleId' | 'userId' | 'status'>;

/** Nothing was sold, and nothing changed. */
export type Refusal =
  | { readonly kind: 'sold-out' }
  | { readonly kind: 'not-open'; readonly reason: 'not-started' | 'ended' }
  | { readonly kind: 'unknown-sale' }
  /** Try again after a moment: a queue was full, a lock was not had in time, or a store did not answer. */
  | { readonly kind: 'busy'; readonly reason: string };

/** A store was asked to write and no answer came: it may have happened. A repeat by the same user settles it. */
export interface Unknown {
  readonly kind: 'unknown';
  readonly orderId: string;
  readonly reason: string;
}

/** What a strategy answers. */
export type ReserveOutcome =
  /** Redis took a unit; `orders/order-committer.ts` commits it. */
  | { readonly kind: 'reserved'; readonly reservation: ClaimedReservation }
  /** Redis knows an earlier order of this customer; Postgres knows its state. */
  | { readonly kind: 'held'; readonly reservation: Reservation }
  /** A Postgres strategy has committed the order. */
  | { readonly kind: 'accepted'; readonly order: PlacedOrder }
  | { readonly kind: 'replayed'; readonly order: PlacedOrder }
  | Refusal
  | Unknown;

/** What the customer is told. */
export type Outcome =
  | { readonly kind: 'accepted'; readonly order: PlacedOrder; readonly durable: boolean }
  | { readonly kind: 'replayed'; readonly order: PlacedOrder }
  | Refusal
  | Unknown;
