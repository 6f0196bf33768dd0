/** Who may use the service, as the environment says it: issuers, keys, administrators, proxies. */
import { isIP } from 'node:net';

/** The issuer of the customers' tokens. */
export interface AuthConfig {
  /** Where its public keys are. */
  readonly jwksUrl: string;
  readonly issuer: string;
  readonly audience: string;
}

export interface AdminToken {
  /** Who holds it, for the audit log. */
  readonly name: string;
  readonly token: string;
}

/** What is wrong with a value. */
export class Mistake {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

type Given = Readonly<Record<string, string | undefined>>;

const isLoopback = (host: string) => /^(localhost|127(\.\d{1,3}){3}|::1)$/.test(host);
const ISSUER = ['AUTH_JWKS_URL', 'AUTH_ISSUER', 'AUTH_AUDIENCE'] as const;

/** @returns what is wrong with the variables together */
export function authMistakes({
  AUTH,
  HOST = '127.0.0.1',
  ADMIN_HOST = HOST,
  ...given
}: Given): readonly string[] {
  if (AUTH === 'jwt') {
    const missing = ISSUER.filter((name) => given[name] === undefined);
    return missing.map((name) => `${name} is missing: AUTH=jwt needs ${ISSUER.join(', ')}`);
  }
  // Both listeners sell.
  const open = Object.entries({ HOST, ADMIN_HOST }).find(([, host]) => !isLoopback(host));
  if (AUTH !== undefined || open === undefined) return [];
  return [
    `${open[0]}=${JSON.stringify(open[1])} needs AUTH: with AUTH=jwt customers prove who they are; with AUTH=none anyone who reaches the port can buy, read and cancel as anyone`,
  ];
}

/** @param value the variables, after `authMistakes` found none. @returns null for AUTH=none */
export function authOf(value: {
  readonly AUTH: 'none' | 'jwt';
  readonly AUTH_JWKS_URL?: string | undefined;
  readonly AUTH_ISSUER?: string | undefined;
  readonly AUTH_AUDIENCE?: string | undefined;
}): AuthConfig | null {
  if (value.AUTH === 'none') return null;
  return { jwksUrl: value.AUTH_JWKS_URL!, issuer: value.AUTH_ISSUER!, audience: value.AUTH_AUDIENCE! };
}

const TOKEN = /^(?:(?<name>[a-z][a-z0-9-]{0,31}):)?(?<token>[^\s:]{16,})$/;

/** @param text `token` or `name:token` */
export function parseAdminToken(text: string): AdminToken | Mistake {
  const { name = 'admin', token } = TOKEN.exec(text)?.groups ?? {};
  if (token !== undefined) return { name, token };
  return new Mistake('must be tokens of at least 16 characters, each with an optional name: name:token');
}

const KEY_BYTES = [32, 64] as const;

/** @param text 32 to 64 bytes in base64 */
export function parseTicketKey(text: string): Buffer | Mistake {
  const key = /^[A-Za-z0-9+/]+={0,2}$/.test(text) ? Buffer.from(text, 'base64') : Buffer.alloc(0);
  if (key.length >= KEY_BYTES[0] && key.length <= KEY_BYTES[1]) return key;
  return new Mistake(`must be ${KEY_BYTES.join(' to ')} bytes in base64, such as $(openssl rand -base64 32)`);
}

/** @param text an address, or a subnet such as 10.0.0.0/8 */
export function parseSubnet(text: string): string | Mistake {
  const [, address = '', bits] = /^([0-9a-fA-F.:]+)(?:\/(\d{1,3}))?$/.exec(text) ?? [];
  const version = isIP(address);
  if (version !== 0 && Number(bits ?? 0) <= (version === 4 ? 32 : 128)) return text;
  return new Mistake('must be addresses or subnets such as 10.0.0.0/8');
}
