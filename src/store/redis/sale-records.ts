/** How a sale is written in Redis: its terms, its reservations and its buyers. See lua/sale/reserve.lua and load.lua. */
import type { Attempt } from '../../domain/order.ts';
import type { Reservation } from '../../domain/outcome.ts';
import type { Offer, SaleTerms, VersionedTerms } from '../../domain/sale.ts';

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
