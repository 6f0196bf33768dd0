/**
 * What a customer has to prove before a ticket is issued. The check runs there and nowhere else: a purchase has no time for it.
 *
 * The proof of work is Hashcash with a signed challenge (A. Back, "Hashcash", 2002): the client searches a nonce for which
 * SHA-256 of `<challenge>.<nonce>` begins with `proofBits` zero bits. It makes many accounts expensive; it does not recognize
 * a person. Another check (a CAPTCHA, a device attestation) implements the same interface.
 */
import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { limits } from '../config/limits.ts';

export interface Candidate {
  readonly saleId: number;
  readonly customer: string;
  /** As the client sent it; null: none. */
  readonly proof: { readonly challenge: string; readonly nonce: string } | null;
}

/** What the client gets to pass the next time, as members of the problem. */
export interface Challenge {
  readonly challenge: string;
  readonly bits: number;
}

export interface BotCheck {
  /** @returns null: passed */
  check(candidate: Candidate, nowMs: number): Promise<Challenge | null>;
}

/** Accepts everybody. */
export const acceptEverybody: BotCheck = { check: async () => null };

const MAX_NONCE = 64;

/**
 * @param keys sign the challenges; newest first
 * @param onResult receives the result of each check
 */
export function proofOfWork(
  keys: readonly Buffer[],
  onResult: (result: 'passed' | 'challenged' | 'failed') => void,
): BotCheck {
  const { proofBits: bits, proofMs } = limits.tickets;
  const macOf = (key: Buffer, expires: string, salt: string, { saleId, customer }: Candidate) =>
    createHmac('sha256', key).update(`proof.${expires}.${salt}.${saleId}.${customer}`).digest('base64url');

  function isOurs(challenge: string, candidate: Candidate, nowMs: number): boolean {
    const [expires = '', salt = '', mac = ''] = challenge.split('.');
    if (!(Number(expires) > nowMs)) return false;
    const given = Buffer.from(mac);
    return keys.some((key) => {
      const expected = Buffer.from(macOf(key, expires, salt, candidate));
      return given.length === expected.length && timingSafeEqual(given, expected);
    });
  }

  return {
    async check(candidate, nowMs) {
      const { proof } = candidate;
      if (
        proof !== null &&
        proof.nonce.length <= MAX_NONCE &&
        isOurs(proof.challenge, candidate, nowMs) &&
        zeroBits(createHash('sha256').update(`${proof.challenge}.${proof.nonce}`).digest()) >= bits
      ) {
        onResult('passed');
        return null;
      }
      onResult(proof === null ? 'challenged' : 'failed');
      const expires = String(nowMs + proofMs);
      const salt = randomBytes(12).toString('base64url');
      return { challenge: `${expires}.${salt}.${macOf(keys[0]!, expires, salt, candidate)}`, bits };
    },
  };
}

/** How many zero bits a hash begins with. */
export function zeroBits(hash: Buffer): number {
  const first = hash.findIndex((byte) => byte !== 0);
  return first === -1 ? hash.length * 8 : first * 8 + Math.clz32(hash[first]!) - 24;
}
