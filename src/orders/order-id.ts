/**
 * The id of an order: a UUIDv7 whose last four bytes are the number of its sale. So an order that is not in Postgres yet is looked for in
 * one sale, and an id that never existed costs as little. 42 random bits are left for the orders of a sale within a millisecond.
 */
import { uuidv7obj } from 'uuidv7';

const SALE_AT = 12;
/** Hexadecimal digits of the sale. */
const DIGITS = 8;

/** @param saleId below 2^32 */
export function newOrderId(saleId: number): string {
  const id = uuidv7obj();
  new DataView(id.bytes.buffer, id.bytes.byteOffset).setUint32(SALE_AT, saleId);
  return id.toString();
}

/** The sale that an order id names; earlier versions and other programs make ids that name any sale, or none. */
export const saleOf = (orderId: string): number => Number.parseInt(orderId.slice(-DIGITS), 16);
