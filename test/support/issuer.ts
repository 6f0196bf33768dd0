/** An issuer of customers' tokens on loopback: it publishes its keys as a JWKS, and rotates them. */

import { exportJWK, exportSPKI, generateKeyPair, type JWTHeaderParameters, SignJWT } from 'jose';
import { openReceiver } from './receiver.ts';

export const ISSUER = 'https://id.example';
export const AUDIENCE = 'shop';

type Keys = Awaited<ReturnType<typeof keysNamed>>;
const keysNamed = async (kid: string) => ({
  kid,
  ...(await generateKeyPair('ES256', { extractable: true })),
});

interface Claims {
  readonly [claim: string]: unknown;
}

export interface Issuer extends AsyncDisposable {
  /** Variables for `AUTH=jwt`. */
  readonly env: Readonly<Record<string, string>>;
  /** A token of a customer that is valid for 5 minutes. @param claims replace the usual ones; undefined omits one */
  token(sub: string, claims?: Claims, signing?: Signing): Promise<string>;
  /** A key that the JWKS does not list. */
  foreignKeys(): Promise<Keys>;
  /** Publishes a new key in place of the last one, and signs with it. */
  rotate(): Promise<void>;
  /** The key that is published. */
  readonly published: Keys;
}

export interface Signing {
  readonly keys?: Keys | Uint8Array;
  readonly header?: Partial<JWTHeaderParameters>;
}

export async function openIssuer(): Promise<Issuer> {
  let published = await keysNamed('key-1');
  let rotations = 1;
  const server = await openReceiver(async (_req, res) => {
    const { kid, publicKey } = published;
    res.end(JSON.stringify({ keys: [{ ...(await exportJWK(publicKey)), kid, alg: 'ES256' }] }));
  });
  return {
    ...server,
    env: { AUTH: 'jwt', AUTH_JWKS_URL: `${server.url}/`, AUTH_ISSUER: ISSUER, AUTH_AUDIENCE: AUDIENCE },
    token(sub, claims = {}, { keys = published, header = {} } = {}) {
      const exp = Math.floor(Date.now() / 1_000) + 300;
      return new SignJWT({ sub, iss: ISSUER, aud: AUDIENCE, exp, ...claims })
        .setProtectedHeader({ alg: 'ES256', kid: published.kid, ...header })
        .sign(keys instanceof Uint8Array ? keys : keys.privateKey);
    },
    foreignKeys: () => keysNamed('foreign'),
    async rotate() {
      published = await keysNamed(`key-${++rotations}`);
    },
    get published() {
      return published;
    },
  };
}

/** The public key as the issuer's PEM file. */
export const publicPem = async ({ publicKey }: Keys): Promise<Uint8Array> =>
  new TextEncoder().encode(await exportSPKI(publicKey));
