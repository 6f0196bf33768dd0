/** Errors as RFC 9457 problems. The slug at the end of `type` is the stable name; the rest is for people. */
import type { Response } from 'express';
import { limits } from '../config/limits.ts';

/** Every problem that Stampede answers with, and what a person may do about it. */
export const problems = {
  'invalid-request': { status: 400, title: 'The request is not valid' },
  unauthorized: { status: 401, title: 'This route needs the administrator’s token' },
  forbidden: { status: 403, title: 'This route answers on loopback only' },
  'not-found': { status: 404, title: 'There is nothing here' },
  'unknown-sale': { status: 404, title: 'There is no such sale' },
  'unknown-order': { status: 404, title: 'There is no such order' },
  'unknown-task': { status: 404, title: 'There is no such task' },
  'sold-out': { status: 409, title: 'Every unit of this sale is sold' },
  'sale-not-open': { status: 409, title: 'This sale does not sell now' },
  'below-sold': { status: 409, title: 'The stock cannot be cut below what is sold' },
  'idempotency-conflict': { status: 409, title: 'The same id came before with other contents' },
  'invalid-transition': { status: 409, title: 'The state it is in does not allow this' },
  'amount-mismatch': { status: 409, title: 'The amount is not the price of the order' },
  'too-large': { status: 413, title: 'The body is too large' },
  'unsupported-media-type': { status: 415, title: 'The body must be application/json' },
  'too-many-requests': { status: 429, title: 'Too many failed attempts' },
  'internal-error': { status: 500, title: 'Something went wrong here' },
  busy: { status: 503, title: 'Busy: nothing was changed, try again' },
  'unknown-outcome': {
    status: 503,
    title: 'It is not known whether this happened: a repeat by the same user settles it',
  },
} as const;

export type ProblemSlug = keyof typeof problems;

/** A problem as a thrown value, for what stands deep in a handler. */
export class ProblemError extends Error {
  override readonly name = 'ProblemError';
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

/** The body of a problem. What is said beside must not have the names that every problem has. */
export function problemBody(slug: ProblemSlug, detail: string, members: object = {}) {
  const { status, title } = problems[slug];
  const common = { type: `/problems/${slug}`, title, status, detail };
  return { ...common, ...members, ...common };
}

/** Answers with a problem. */
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
