/**
 * Who a customer is, with AUTH=jwt: the subject of a token that the configured issuer signed for this service.
 *
 *   token ──▶ signature by a key of the issuer, its algorithm, issuer, audience, times ──▶ the customer's id
 *                 └─ none of its keys: the keys are fetched again, at most every `keysCooldownMs`
 *
 *   keys ──older than `keysMaxAgeMs`──▶ renewed in the background: a customer does not wait for it, and an issuer that is down for
 *                                       hours refuses no customer whose key is known
 */
import { createHash } from 'node:crypto';
import { createRemoteJWKSet, errors, type JWKSCacheInput, jwksCache, jwtVerify } from 'jose';
import type { AuthConfig } from '../config/access.ts';
import { limits } from '../config/limits.ts';

/** Signatures that the issuer alone can make; a token cannot choose another kind. */
const ALGORITHMS = ['RS256', 'PS256', 'ES256', 'ES384', 'EdDSA', 'Ed25519'];

/** Why a token names no customer. */
export type Rejection =
  | { readonly kind: 'unauthorized'; readonly detail: string }
  /** The issuer's keys cannot be read. */
  | { readonly kind: 'unavailable'; readonly error: unknown };

/** See `limits.identity`. */
interface Ages {
  readonly keysMaxAgeMs: number;
  readonly keysKeptMs: number;
}

export interface Customer {
  readonly kind: 'customer';
  readonly id: string;
  /** The names in the claim `groups`. */
  readonly groups: readonly string[];
}

export interface Identity {
  /** Verifies a token. Never throws. */
  customerOf(token: string): Promise<Customer | Rejection>;
}

/**
 * A customer's id: a hash of issuer and subject, in the alphabet of user ids. Subjects have other alphabets, and two issuers may
 * use the same one. 192 bits: a subject with another customer's id cannot be found.
 */
export const customerId = (issuer: string, subject: string): string =>
  createHash('sha256')
    .update(JSON.stringify([issuer, subject]))
    .digest('base64url')
    .slice(0, 32);

/** @param onUnrenewed receives why known keys could not be renewed */
export function createIdentity(
  { jwksUrl, issuer, audience }: AuthConfig,
  onUnrenewed: (error: unknown) => void = () => {},
  { keysMaxAgeMs, keysKeptMs }: Ages = limits.identity,
): Identity {
  const fetched: JWKSCacheInput = {};
  const keys = createRemoteJWKSet(new URL(jwksUrl), {
    cacheMaxAge: keysKeptMs,
    cooldownDuration: limits.identity.keysCooldownMs,
    timeoutDuration: limits.identity.keysTimeoutMs,
    [jwksCache]: fetched,
  });
  let notBeforeMs = 0; // on `performance.now()`'s clock
  function renewIfDue(): void {
    const ageMs = Date.now() - (fetched.uat ?? Number.NaN);
    const isYoung = ageMs >= 0 && ageMs < keysMaxAgeMs; // not one from the future: the clock was set back
    const nowMs = performance.now();
    if (fetched.uat === undefined || isYoung || nowMs < notBeforeMs) return;
    notBeforeMs = nowMs + limits.identity.keysCooldownMs;
    keys.reload().catch(onUnrenewed);
  }
  const options = {
    issuer,
    audience,
    algorithms: ALGORITHMS,
    requiredClaims: ['sub', 'exp'],
    clockTolerance: limits.identity.clockToleranceS,
  };
  return {
    async customerOf(token) {
      if (token.length > limits.identity.tokenLength)
        return { kind: 'unauthorized', detail: 'the token is too long' };
      renewIfDue();
      try {
        const { payload } = await jwtVerify(token, keys, options);
        const { sub, groups } = payload;
        if (typeof sub === 'string' && sub !== '')
          return { kind: 'customer', id: customerId(issuer, sub), groups: namesIn(groups) };
        return { kind: 'unauthorized', detail: 'the token has no subject' };
      } catch (error) {
        return isOfToken(error)
          ? { kind: 'unauthorized', detail: (error as Error).message }
          : { kind: 'unavailable', error };
      }
    },
  };
}

const namesIn = (claim: unknown): string[] =>
  Array.isArray(claim) ? claim.filter((name) => typeof name === 'string') : [];

/** Whether the token is at fault, not the issuer. */
function isOfToken(error: unknown): boolean {
  const { JWKSTimeout, JWKSInvalid, JWKInvalid } = errors;
  if (!(error instanceof errors.JOSEError) || error.code === 'ERR_JOSE_GENERIC') return false;
  return ![JWKSTimeout, JWKSInvalid, JWKInvalid].some((kind) => error instanceof kind);
}
