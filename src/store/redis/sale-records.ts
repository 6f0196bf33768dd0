/**
 * How a sale is written in Redis: its keys, its terms, its reservations and its buyers. See lua/sale/reserve.lua and load.lua. What the keys
 * hold: docs/reference/data.md.
 */
import { limits } from '../../config/limits.ts';
import type { Attempt } from '../../domain/order.ts';
import type { ClaimedReservation, Reservation } from '../../domain/outcome.ts';
import type { Offer, SaleTerms, VersionedTerms } from '../../domain/sale.ts';

/** The keys of one sale; they share a hash tag, and so a cluster slot. */
export interface SaleKeys {
  /** Hash: remaining, startsMs, endsMs, epoch, loadedMs, generation, and the fences of locks. */
  readonly state: string;
  /** The hash that counts the units: the state, or `segments`. */
  readonly counters: string;
  /** Hash: segment → units, for a strategy with segments. */
  readonly segments: string;
  /** Hash: user id → "<order id> <reserved at>". */
  readonly buyers: string;
  /** Sorted set of reservations that Postgres does not have yet: "<user id> <order id> <reserved at>", scored by their claims. */
  readonly reservations: string;
  /** Set: numbers of the restocks that Redis has applied. */
  readonly restocks: string;
}

/** Sales whose keys are cached. */
const MAX_CACHED_KEYS = 10_000;

/**
 * Every attempt needs the keys of its sale. They are cached; the cache is emptied when it is full.
 * @param segments how many counters a sale has; 0 for a single one
 */
export function keysWith(segments: number): (saleId: number) => SaleKeys {
  const cached = new Map<number, SaleKeys>();
  return (saleId) => {
    let made = cached.get(saleId);
    if (made === undefined) {
      if (cached.size >= MAX_CACHED_KEYS) cached.clear();
      made = keysOf(saleId, segments);
      cached.set(saleId, made);
    }
    return made;
  };
}

function keysOf(saleId: number, segments: number): SaleKeys {
  const prefix = `stampede:{sale:${saleId}}`;
  const keys = {
    state: `${prefix}:state`,
    segments: `${prefix}:segments`,
    buyers: `${prefix}:buyers`,
    reservations: `${prefix}:reservations`,
    restocks: `${prefix}:restocks`,
  };
  return { ...keys, counters: segments > 0 ? keys.segments : keys.state };
}

/** What changes when a unit is taken or returned. */
export const unitKeys = (keys: SaleKeys) =>
  [keys.state, keys.counters, keys.buyers, keys.reservations] as const;

/** A sale, and the epoch in which it must have been loaded. */
export interface SaleInEpoch {
  readonly keys: SaleKeys;
  readonly epoch: number;
}

/** Groups sales by script call: all in one or, in a cluster, where a script may name keys of one slot only, one each. */
export function callsFor<S>(sales: readonly S[], isCluster: boolean): readonly (readonly S[])[] {
  return isCluster ? sales.map((sale) => [sale]) : [sales];
}

/** Sales of one call are on one server. The last one has its newest epoch: in an older one no sale is loaded. */
export const lastEpochOf = (sales: readonly { readonly epoch: number }[]): number => sales.at(-1)!.epoch;

/**
 * The terms of a sale as Redis has them, without their version (see lua/lib/terms.lua), joined by spaces: instants in milliseconds since
 * 1970, or ''; '1' while it is paused, or ''; the limit; the offer.
 */
export function termsOf(terms: SaleTerms): string {
  const { startsAt, endsAt, paused, maxPerOrder, priceCents, paymentWindowS } = terms;
  const instants = [startsAt, endsAt].map((at) => (at === null ? '' : Date.parse(at)));
  const offer = `@${priceCents}${paymentWindowS === null ? '' : `/${paymentWindowS}`}`;
  return [...instants, paused ? '1' : '', maxPerOrder, offer].join(' ');
}

/** The offer at which a reservation was made; null: an earlier version made it, which did not record it. */
export function offerOf({ reservedAt }: Pick<Reservation, 'reservedAt'>): Offer | null {
  const at = reservedAt.indexOf('@');
  if (at < 0) return null;
  const priceCents = Number.parseInt(reservedAt.slice(at + 1), 10);
  const slash = reservedAt.indexOf('/', at);
  return { priceCents, paymentWindowS: slash < 0 ? null : Number.parseInt(reservedAt.slice(slash + 1), 10) };
}

export const versionedTerms = (terms: VersionedTerms): string => `${termsOf(terms)} ${terms.version}`;

/** A member of `reservations`. No part of it contains a space: see userIdOf in http/purchase/listener.ts. */
export function memberOf({ userId, orderId, reservedAt }: Reservation): string {
  return `${userId} ${orderId} ${reservedAt}`;
}

/** A reservation from its record in Redis, which also says of how many units it is. */
export function reservationOf(
  { saleId, userId }: Pick<Reservation, 'saleId' | 'userId'>,
  orderId: string,
  reservedAt: string,
): Reservation {
  return { saleId, userId, orderId, quantity: unitsOf(reservedAt), reservedAt };
}

/** See lua/sale/reserve.lua. */
function unitsOf(reservedAt: string): number {
  if (!reservedAt.includes('x') && !reservedAt.includes(',')) return 1;
  let sum = 0;
  for (const place of reservedAt.slice(reservedAt.indexOf(':') + 1).split(',')) {
    const at = place.indexOf('x');
    sum += at < 0 ? 1 : Number(place.slice(at + 1));
  }
  return sum;
}

/** How a buyer is recorded whose order Postgres has. */
export const recordOf = ({ orderId, quantity }: Pick<Attempt, 'orderId' | 'quantity'>): string =>
  `${orderId} ${quantity === 1 ? '0' : `0x${quantity}`}`;

/** The reservation that a member of `reservations` records. */
export function readMember(saleId: number, member: string): Reservation {
  const [userId, orderId, reservedAt] = member.split(' ') as [string, string, string];
  return reservationOf({ saleId, userId }, orderId, reservedAt);
}

/** When a reservation was made, milliseconds since 1970. */
export function madeAtMs({ reservedAt }: Pick<Reservation, 'reservedAt'>): number {
  return Number.parseInt(reservedAt, 10);
}

/** The end of a claim made by a command that is sent after this call, on `performance.now()`'s clock. */
export function claimEndMs(): number {
  return performance.now() + limits.claimMs - limits.claimMarginMs;
}

/** A reservation with the first claim: that of the attempt that made it. @param epoch in which it was made */
export function withFirstClaim(
  reservation: Reservation,
  untilMs: number,
  epoch: number | null = null,
): ClaimedReservation {
  const { saleId, userId, orderId, quantity, reservedAt } = reservation; // on the hot path, where a spread is slow
  const claimedAtMs = madeAtMs(reservation);
  return { saleId, userId, orderId, quantity, reservedAt, claimedAtMs, untilMs, isFirst: true, epoch };
}
