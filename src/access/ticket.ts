/**
 * Purchase tickets. A ticket names the sale, the customer, and when the customer's turn begins and ends:
 *
 *   v1.<key id>.<sale id>.<turn begins, ms>.<turn ends, ms>.<customer>.<base64url(HMAC-SHA256(key, all before the last dot))>
 *
 * Its bearer may attempt a purchase, for that customer only. It is not used up: a second attempt returns the first one's order.
 * Keys rotate: the first signs, all of them verify. The format and its threat model: docs/reference/tickets.md.
 */
import { createHash, createHmac, createSecretKey, type KeyObject, timingSafeEqual } from 'node:crypto';

export interface Ticket {
  readonly saleId: number;
  readonly customer: string;
  /** Milliseconds since 1970, by the clock of the service. */
  readonly notBeforeMs: number;
  readonly expiresMs: number;
}

export interface Tickets {
  issue(ticket: Ticket): string;
  /** Verifies the signature only. @returns null when no key signed the text */
  read(text: string): Ticket | null;
}

/** Longer texts are no tickets. */
const MAX_LENGTH = 256;

/** The public name of a key. */
const idOf = (key: Buffer) => createHash('sha256').update(key).digest('base64url').slice(0, 6);

const macOf = (key: KeyObject, text: string) => createHmac('sha256', key).update(text).digest('base64url');

const equal = (a: string, b: string) =>
  a.length === b.length && timingSafeEqual(Buffer.from(a, 'latin1'), Buffer.from(b, 'latin1'));

/** @param keys 32 bytes or more each; newest first, at least one */
export function createTickets(keys: readonly Buffer[]): Tickets {
  const byId = new Map(keys.map((key) => [idOf(key), createSecretKey(key)]));
  const [newest] = byId;
  const [id, key] = newest!;
  return {
    issue({ saleId, notBeforeMs, expiresMs, customer }) {
      const text = `v1.${id}.${saleId}.${notBeforeMs}.${expiresMs}.${customer}`;
      return `${text}.${macOf(key, text)}`;
    },
    read(text) {
      if (text.length > MAX_LENGTH) return null;
      const end = text.lastIndexOf('.');
      const signed = text.slice(0, end);
      const [version, keyId, saleId, notBeforeMs, expiresMs, ...customer] = signed.split('.');
      const key = version === 'v1' ? byId.get(keyId ?? '') : undefined;
      if (key === undefined || !equal(macOf(key, signed), text.slice(end + 1))) return null;
      return {
        saleId: Number(saleId),
        notBeforeMs: Number(notBeforeMs),
        expiresMs: Number(expiresMs),
        customer: customer.join('.'),
      };
    },
  };
}
