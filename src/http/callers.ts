/**
 * Who sent a request for a customer's orders or points. With AUTH=none callers are trusted, and may name any customer. With AUTH=jwt
 * a customer sends the issuer's token and reaches only what is the customer's own; anything else does not exist (404). An
 * administrator's token reaches everything.
 */
import type { Request, Response } from 'express';
import type { Customer, Identity } from '../access/identity.ts';
import type { SharedLimits } from '../access/shared-limits.ts';
import type { AdminTokens } from './admin.ts';
import { busy, ProblemError } from './problems.ts';

export interface Caller {
  /** For the audit log. */
  readonly actor: string;
  /** Null: any customer's data may be used. */
  readonly customer: string | null;
  /** Of the customer's token: see store/postgres/sale-groups.ts. */
  readonly groups?: readonly string[];
}

export interface Callers {
  /** @throws ProblemError `unauthorized`, `too-many-requests`, or `busy` while the issuer does not answer */
  of(req: Request, res: Response): Promise<Caller>;
}

export interface CallersContext {
  /** Null: AUTH=none. */
  readonly identity: Identity | null;
  /** Null: the server accepts none. */
  readonly adminTokens: AdminTokens | null;
  readonly sharedLimits: SharedLimits;
  readonly onRefused: (reason: string) => void;
  readonly onError: (operation: string, error: unknown) => void;
}

const JWT = /^[\w-]+\.[\w-]+\.[\w-]+$/;
const TRUSTED: Caller = { actor: 'caller', customer: null };

export function createCallers(context: CallersContext): Callers {
  const { identity, adminTokens, sharedLimits } = context;
  return {
    async of(req, res) {
      if (identity === null) return TRUSTED;
      const administrator = adminTokens?.nameOf(req) ?? null;
      if (administrator !== null) return { actor: `admin:${administrator}`, customer: null };
      const { id: customer, groups } = await customerOf(identity, req, res, context);
      const waitS = await sharedLimits.use('request', customer);
      if (waitS !== null) throw tooMany(res, waitS, 'Too many requests of this customer.');
      return { actor: `customer:${customer}`, customer, groups };
    },
  };
}

async function customerOf(
  identity: Identity,
  req: Request,
  res: Response,
  { adminTokens, onRefused, onError }: CallersContext,
): Promise<Customer> {
  const token = /^Bearer (.+)$/i.exec(req.headers.authorization ?? '')?.[1];
  const result =
    token === undefined
      ? ({ kind: 'unauthorized', detail: 'it is missing' } as const)
      : await identity.customerOf(token);
  if (result.kind === 'customer') return result;
  if (result.kind === 'unauthorized') {
    onRefused('unauthorized');
    // What does not look like a token of the issuer is a guess of an administrator's.
    if (token !== undefined && !JWT.test(token)) await adminTokens?.countWrong(req, res);
    res.setHeader('WWW-Authenticate', 'Bearer');
    const detail = `Send the header Authorization: Bearer <token of the issuer>: ${result.detail}.`;
    throw new ProblemError('unauthorized', detail);
  }
  onError('read-issuer-keys', result.error);
  const detail =
    'The keys of the issuer cannot be read. Nothing was changed. Retry after the delay in Retry-After.';
  throw busy('issuer-unreachable', detail);
}

/** @param waitS for `Retry-After`, seconds */
export function tooMany(res: Response, waitS: number, detail: string): ProblemError {
  res.setHeader('Retry-After', String(waitS));
  return new ProblemError('too-many-requests', `${detail} Retry after the delay in Retry-After.`);
}

/** The customer that a request names; `me`, or none, is the caller. @returns null: not a customer whom the caller may name */
export function namedCustomer({ customer }: Caller, named: string | undefined): string | null {
  if (customer === null) return named ?? null;
  return named === undefined || named === 'me' || named === customer ? customer : null;
}
