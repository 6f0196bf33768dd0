/**
 * Purchase tickets. A ticket names the sale, the customer, and when the customer's turn begins and ends:
 *
 *   v1.<key id>.<sale id>.<turn begins, ms>.<turn ends, ms>.<customer>.<base64url(HMAC-SHA256(key, all before the last dot))>
 *
 * An 'e' behind the first time: the customer's group may buy from then on, also before the sale starts for all.
 *
 * Its bearer may attempt a purchase, for that customer only. It is not used up: a second attempt returns the first one's order.
 * Keys rotate: the first signs, all of them verify. The format and its threat model: docs/reference/tickets.md.
 */
import { createHash, createHmac, hash, timingSafeEqual } from 'node:crypto';

export interface Ticket {
  readonly saleId: number;
  readonly customer: string;
  /** Milliseconds since 1970, by the clock of Postgres. */
  readonly notBeforeMs: number;
  readonly expiresMs: number;
  readonly isEarly?: true;
}

export interface Tickets {
  /** @throws RangeError for a text that would be too long */
  issue(ticket: Ticket): string;
  /** Verifies the signature only. @returns null when no key signed the text */
  read(text: string): Ticket | null;
}

/** Longest signed text, characters. A sale, two times and a customer take at most 114. */
const MAX_SIGNED = 128;
const PREFIX = 'v1.';
const KEY_ID_LENGTH = 6;
/** 32 bytes in base64url. */
const MAC_LENGTH = 43;

/**
 * The keys of one service, so that a service with the same secrets and another audience does not accept its tickets.
 * @param audience AUTH_AUDIENCE, the service's name with its issuer
 */
export const serviceKeys = (secrets: readonly Buffer[], audience: string): Buffer[] =>
  secrets.map((secret) => createHmac('sha256', secret).update(audience).digest());

/** The public name of a key. */
const idOf = (key: Buffer) => createHash('sha256').update(key).digest('base64url').slice(0, KEY_ID_LENGTH);

interface Signer {
  /** @param text ASCII, at most MAX_SIGNED characters */
  macOf(text: string): string;
  /** The text that `macOf` signed last, as a copy that does not keep the request in memory. */
  signed(length: number): string;
}

/** Block size of SHA-256, bytes. */
const BLOCK = 64;

/**
 * HMAC-SHA256 as RFC 2104 defines it, on reused buffers. It takes half the time of `createHmac`, whose objects also cost garbage
 * collection. @throws RangeError for a key longer than a block
 */
function createSigner(key: Buffer): Signer {
  if (key.length > BLOCK) throw new RangeError(`a key of tickets has at most ${BLOCK} bytes`);
  const inner = Buffer.alloc(BLOCK + MAX_SIGNED, 0x36);
  const outer = Buffer.alloc(BLOCK + 32, 0x5c);
  for (const [i, byte] of key.entries()) {
    inner[i]! ^= byte;
    outer[i]! ^= byte;
  }
  return {
    macOf(text) {
      const length = inner.write(text, BLOCK, 'latin1');
      outer.write(hash('sha256', inner.subarray(0, BLOCK + length), 'binary'), BLOCK, 'latin1');
      return hash('sha256', outer, 'base64url');
    },
    signed: (length) => inner.toString('latin1', BLOCK, BLOCK + length),
  };
}

const given = Buffer.alloc(MAC_LENGTH);
const expected = Buffer.alloc(MAC_LENGTH);

/** @param a,b texts of MAC_LENGTH characters */
function areEqual(a: string, b: string): boolean {
  given.write(a, 'latin1');
  expected.write(b, 'latin1');
  return timingSafeEqual(given, expected);
}

/** @param keys 32 to 64 bytes each; newest first, at least one */
export function createTickets(keys: readonly Buffer[]): Tickets {
  const signers = new Map(keys.map((key) => [idOf(key), createSigner(key)]));
  const [newest] = signers;
  const [id, signer] = newest!;
  return {
    issue({ saleId, notBeforeMs, expiresMs, customer, isEarly }) {
      const text = `${PREFIX}${id}.${saleId}.${notBeforeMs}${isEarly === true ? 'e' : ''}.${expiresMs}.${customer}`;
      if (text.length > MAX_SIGNED) throw new RangeError(`a ticket of ${text.length} characters`);
      return `${text}.${signer.macOf(text)}`;
    },
    read(text) {
      const length = text.length - MAC_LENGTH - 1;
      const signer = signers.get(text.slice(PREFIX.length, PREFIX.length + KEY_ID_LENGTH));
      if (signer === undefined || length > MAX_SIGNED || text[length] !== '.') return null;
      const mac = signer.macOf(text.slice(0, length));
      if (!areEqual(mac, text.slice(length + 1))) return null;
      // The signature is valid, so what was signed has the format of `issue`. In latin1 another character can have the same byte.
      const signed = signer.signed(length);
      if (text !== `${signed}.${mac}`) return null;
      const [, , saleId, begins = '', expiresMs, ...customer] = signed.split('.');
      return {
        saleId: Number(saleId),
        notBeforeMs: Number.parseInt(begins, 10),
        expiresMs: Number(expiresMs),
        customer: customer.join('.'),
        ...(begins.endsWith('e') && { isEarly: true }),
      };
    },
  };
}
