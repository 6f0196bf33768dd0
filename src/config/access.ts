/** Who may use the service, as the environment says it: issuers, keys, administrators, providers of payments, proxies. */
import { isIP } from 'node:net';
import * as z from 'zod';
import { isLoopback } from './urls/hosts.ts';

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

export interface WebhookSecret {
  /** Scopes the ids of notifications, because two providers may use the same id; null: they are taken as they are. */
  readonly provider: string | null;
  readonly secret: string;
}

type Given = Readonly<Record<string, string | undefined>>;

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

const TOKEN = /^(?:(?<name>[a-z][a-z0-9-]{0,31}):)?(?<token>[^\s:]{16,})$/;

/** `token` or `name:token`. */
export const adminToken = z
  .string()
  .regex(TOKEN, 'must be tokens of at least 16 characters, each with an optional name: name:token')
  .transform((text): AdminToken => {
    const { name = 'admin', token } = TOKEN.exec(text)!.groups!;
    return { name, token: token! };
  });

const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;

/** A key in base64 behind a prefix. */
const keyText = (prefix: string, min: number, max: number) =>
  z.string().refine(
    (text) => {
      const key = text.slice(prefix.length);
      const bytes = Buffer.from(key, 'base64').length;
      return text.startsWith(prefix) && BASE64.test(key) && bytes >= min && bytes <= max;
    },
    {
      error: `must be ${prefix && `${prefix} and `}${min} to ${max} bytes in base64, such as ${prefix}$(openssl rand -base64 32)`,
    },
  );

export const ticketKey = keyText('', 32, 64).transform((text) => Buffer.from(text, 'base64'));

/** As Standard Webhooks writes it. */
export const webhookSecret = keyText('whsec_', 24, 64);

const PROVIDER = /^(?<provider>[a-z0-9-]{1,32}):/;

/** A webhook secret, optionally with `provider:` in front. */
export const paymentSecret = z
  .string()
  .transform((text) => ({
    provider: PROVIDER.exec(text)?.groups?.provider ?? null,
    secret: text.replace(PROVIDER, ''),
  }))
  .pipe(z.object({ provider: z.string().nullable(), secret: webhookSecret }));

/** An address, or a subnet such as 10.0.0.0/8. */
export const subnet = z.string().refine(
  (text) => {
    const [, address = '', bits = '0'] = /^([0-9a-fA-F.:]+)(?:\/(\d{1,3}))?$/.exec(text) ?? [];
    const version = isIP(address);
    return version !== 0 && Number(bits) <= (version === 4 ? 32 : 128);
  },
  { error: 'must be addresses or subnets such as 10.0.0.0/8' },
);
