/** Errors as RFC 9457 problems. The slug at the end of `type` is stable and meant for programs. */
import type { Response } from 'express';
import { limits } from '../config/limits.ts';

/** Every problem by slug. */
export const problems = {
  'invalid-request': { status: 400, title: 'Invalid request' },
  unauthorized: { status: 401, title: 'Token required' },
  'invalid-ticket': { status: 401, title: 'Ticket of this sale required' },
  'invalid-signature': { status: 401, title: 'Signature of the payment notification required' },
  forbidden: { status: 403, title: 'Not allowed' },
  'proof-required': { status: 403, title: 'Proof of work required' },
  'not-found': { status: 404, title: 'Not found' },
  'unknown-sale': { status: 404, title: 'Unknown sale' },
  'unknown-order': { status: 404, title: 'Unknown order' },
  'unknown-task': { status: 404, title: 'Unknown task' },
  'sold-out': { status: 409, title: 'Sold out' },
  'sale-not-open': { status: 409, title: 'Sale not open' },
  'too-early': { status: 409, title: 'The turn of this ticket has not begun' },
  'below-sold': { status: 409, title: 'Stock cannot be reduced below the units sold' },
  'idempotency-conflict': { status: 409, title: 'The id was already used with different contents' },
  'invalid-transition': { status: 409, title: 'The current state does not allow this' },
  'amount-mismatch': { status: 409, title: 'The amount differs from the price of the order' },
  'too-large': { status: 413, title: 'Request body too large' },
  'unsupported-media-type': { status: 415, title: 'The request body must be application/json' },
  'too-many-requests': { status: 429, title: 'Too many requests' },
  'internal-error': { status: 500, title: 'Internal error' },
  busy: { status: 503, title: 'Busy: nothing was changed, retry later' },
  'unknown-outcome': {
    status: 503,
    title: 'Unknown outcome: a repeat by the same user resolves it',
  },
} as const;

export type ProblemSlug = keyof typeof problems;

/** A problem thrown from inside a handler. */
export class ProblemError extends Error {
  override readonly name = 'ProblemError';
  readonly code = 'ERR_STAMPEDE_PROBLEM';
  readonly slug: ProblemSlug;
  readonly members: object;
  constructor(slug: ProblemSlug, detail: string, members: object = {}) {
    super(detail);
    this.slug = slug;
    this.members = members;
  }
}

/** The problem of a write that happened, and whose result could not be read. */
export function outcomeUnread(res: Response): ProblemError {
  res.setHeader('Retry-After', String(limits.retryAfterS));
  const detail = 'A store did not answer; read the state before you repeat the request.';
  return new ProblemError('unknown-outcome', detail, { reason: 'outcome-unread' });
}

/** The body of a problem. Extension members never replace the standard ones. */
export function problemBody(slug: ProblemSlug, detail: string, members: object = {}) {
  const { status, title } = problems[slug];
  const common = { type: `/problems/${slug}`, title, status, detail };
  return { ...common, ...members, ...common };
}

/** Sends a problem. */
export function sendProblem(
  res: Response,
  slug: ProblemSlug,
  detail: string,
  members: object = {},
): Response {
  return res
    .status(problems[slug].status)
    .type('application/problem+json')
    .send(JSON.stringify(problemBody(slug, detail, members)));
}
