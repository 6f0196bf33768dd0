/** Errors as RFC 9457 problems. The slug at the end of `type` is stable and meant for programs. */
import type { Response } from 'express';
import * as z from 'zod';
import { limits } from '../config/limits.ts';
import { taskStates } from '../domain/task.ts';
import { dateTime, orderStatusSchema, pointsEntrySchema } from './answer-schemas.ts';
import { orderIdSchema } from './schemas.ts';

/** What a client does about a problem that a repeat may solve. */
export const repeats = {
  later: 'after `Retry-After`; nothing happened',
  same: 'the same request after `Retry-After`: by then one that is still on its way has no effect. An administrative `POST` without an `Idempotency-Key`: see first whether it took effect',
  defect: 'the same request: it may have taken effect',
  token: 'with a valid token; nothing happened',
  ticket: 'with a ticket of this sale; nothing happened',
  signature: 'with a valid signature; nothing happened',
  proof: 'with the solution of the `challenge`; nothing happened',
  change: 'only after the sale has changed: its events say when it opens, and when units return',
} as const;

export interface Problem {
  readonly status: number;
  readonly title: string;
  /** When it is the answer, and what has happened then; in Markdown. */
  readonly meaning: string;
  /** When to repeat the request; absent: not until something else has changed. */
  readonly repeat?: keyof typeof repeats;
  /** Members of its body beside those of RFC 9457. */
  readonly members?: z.ZodRawShape;
  /** Headers of every response with it. */
  readonly headers?: readonly string[];
}

const reason = z.string().describe('For operators; may change between versions');
const RETRY = { headers: ['Retry-After'] } as const;

/** Every problem by slug. Senders, /openapi.json and docs/reference/api.md agree with this table: by types and by tests. */
export const problems = {
  'invalid-request': {
    meaning:
      'the request is malformed, or an order has more units than its sale allows (`maxPerOrder`); nothing was changed (`errors`: every mistake, with its `path`). The HTTP server below the routes also sends it with 408, 417 and 431',
    status: 400,
    title: 'Invalid request',
    members: {
      errors: z
        .array(z.object({ path: z.string().meta({ example: 'body.userId' }), message: z.string() }))
        .optional()
        .describe('Every mistake in the parameters and the body'),
      maxPerOrder: z.int().optional().describe('Of a purchase: the most units of an order of the sale'),
    },
  },
  unauthorized: {
    meaning:
      "an administrative route without a valid token, where `ADMIN_TOKEN` is set; with `AUTH=jwt`, a customer's route without a token of the issuer or an administrator",
    repeat: 'token',
    status: 401,
    title: 'Token required',
    headers: ['WWW-Authenticate'],
  },
  'invalid-ticket': {
    meaning:
      'a purchase without a valid ticket of this sale (`reason`: `missing`, `unsigned`, `other-sale`, `expired`)',
    repeat: 'ticket',
    status: 401,
    title: 'Ticket of this sale required',
    members: { reason: z.enum(['missing', 'unsigned', 'other-sale', 'expired']) },
  },
  'invalid-signature': {
    meaning:
      'a payment notification with an invalid signature, or whose timestamp is more than 5 minutes away',
    repeat: 'signature',
    status: 401,
    title: 'Signature of the payment notification required',
  },
  forbidden: {
    meaning:
      "an administrative route called from another machine, through a proxy, or by a page of another site, while no `ADMIN_TOKEN` is set; a ticket for an administrator's token",
    status: 403,
    title: 'Not allowed',
  },
  'proof-required': {
    meaning: 'a ticket needs a proof of work (`challenge`, `bits`)',
    repeat: 'proof',
    status: 403,
    title: 'Proof of work required',
    members: {
      challenge: z.string(),
      bits: z.int().min(0).describe('Zero bits that the hash must begin with'),
    },
  },
  'invalid-code': {
    meaning:
      'the sale has not started for all, and no group of it has the `code`, or other customers have all of its uses (`reason`: `unknown`, `used-up`); nothing was changed',
    status: 403,
    title: 'The code does not open this sale',
    members: { reason: z.enum(['unknown', 'used-up']) },
  },
  'not-found': {
    meaning:
      'no such route, or not on this port; what it belongs to is not enabled (`AUTH=jwt`, `EVENTS`); no refund of the sale; the points of another customer',
    status: 404,
    title: 'Not found',
  },
  'unknown-sale': { meaning: 'no such sale', status: 404, title: 'Unknown sale' },
  'unknown-order': {
    meaning: 'no such order, or it expired or was cancelled more than `RETENTION_DAYS` ago',
    status: 404,
    title: 'Unknown order',
  },
  'unknown-task': { meaning: 'no such task', status: 404, title: 'Unknown task' },
  'sold-out': { meaning: 'all units are taken', repeat: 'change', status: 409, title: 'Sold out' },
  'not-enough-units': {
    meaning:
      'fewer units are free than asked for (`remaining`); nothing was reserved, and a smaller order may succeed',
    status: 409,
    title: 'Fewer units left than asked for',
    members: { remaining: z.int().min(1).describe('Units that were left') },
  },
  'customer-limit': {
    meaning:
      'the customer would have more units in the sales of a group than allowed (`limit`, and how many are `left`); nothing was reserved. A cancelled order frees its units',
    status: 409,
    title: 'The customer has as many units as allowed',
    members: {
      limit: z.int().min(1).describe('Units of a customer in active orders of the group'),
      left: z.int().min(0).describe('Those that the customer may still have'),
    },
  },
  'sale-not-open': {
    meaning: 'the sale has not started, has ended, or is paused (`reason`: `not-started`, `ended`, `paused`)',
    repeat: 'change',
    status: 409,
    title: 'Sale not open',
    members: { reason: z.enum(['not-started', 'ended', 'paused']) },
  },
  'too-early': {
    meaning: 'the turn of the ticket begins later (`notBefore`); has `Retry-After`',
    repeat: 'later',
    status: 409,
    title: 'The turn of this ticket has not begun',
    members: { notBefore: dateTime.describe("When the customer's turn begins") },
    ...RETRY,
  },
  'not-sold-out': {
    meaning: 'the sale has units: there is nothing to wait for',
    status: 409,
    title: 'Units are left',
  },
  'below-sold': {
    meaning: 'the cut is larger than the number of free units',
    status: 409,
    title: 'Stock cannot be reduced below the units sold',
  },
  'idempotency-conflict': {
    meaning: 'the same id was used before with different contents (`entry`, for points)',
    status: 409,
    title: 'The id was already used with different contents',
    members: { entry: pointsEntrySchema.optional() },
  },
  'key-reused': {
    meaning: 'the `Idempotency-Key` came with another route or body within 24 hours; nothing was changed',
    status: 422,
    title: 'The Idempotency-Key came with another request before',
  },
  'invalid-transition': {
    meaning:
      'the order or task is in another state (`orderStatus`, `state`), or another refund of the sale runs',
    status: 409,
    title: 'The current state does not allow this',
    members: {
      orderStatus: orderStatusSchema.optional().describe('Only of an order'),
      state: z.enum(taskStates).optional().describe('Only of a task'),
    },
  },
  'beyond-limit': {
    meaning:
      'the order would stay unpaid for longer than MAX_HOLD_S after it was placed; nothing was changed',
    status: 409,
    title: 'The deadline cannot be extended that far',
    members: { latest: dateTime.describe('The latest deadline that the order may have') },
  },
  'has-order': {
    meaning: 'the other customer of a transfer has an active order of the sale; nothing was changed',
    status: 409,
    title: 'The customer has an order',
  },
  'already-transferred': {
    meaning: 'the order was transferred before, which happens once; nothing was changed',
    status: 409,
    title: 'The order was transferred before',
  },
  'not-supported': {
    meaning: 'the strategy, or CONFIRM, does not allow it; nothing was changed',
    status: 409,
    title: 'Not with this configuration',
  },
  'too-large': {
    meaning: 'the body is larger than 4 KiB (purchase) or 16 KiB',
    status: 413,
    title: 'Request body too large',
  },
  'unsupported-media-type': {
    meaning: 'the body is not uncompressed JSON in UTF-8',
    status: 415,
    title: 'The request body must be application/json',
  },
  'too-many-requests': {
    meaning:
      '20 wrong tokens, or administrative requests without one, from an address in a minute, or a limit of an address or customer (`reason`, for streams)',
    repeat: 'later',
    status: 429,
    title: 'Too many requests',
    members: { reason: reason.optional() },
    ...RETRY,
  },
  'internal-error': {
    meaning: 'a defect; the error was logged',
    repeat: 'defect',
    status: 500,
    title: 'Internal error',
  },
  busy: {
    meaning: 'nothing was changed, and this request cannot take effect later (`reason`)',
    repeat: 'later',
    status: 503,
    title: 'Busy: nothing was changed, retry later',
    members: { reason },
    ...RETRY,
  },
  'unknown-outcome': {
    meaning:
      'a store did not respond; the request may have taken effect (`reason`; `orderId`, for a purchase)',
    repeat: 'same',
    status: 503,
    title: 'Unknown outcome: a repeat by the same user resolves it',
    members: {
      reason,
      orderId: orderIdSchema.optional().describe('Of a purchase: the id of the order if it exists'),
    },
    ...RETRY,
  },
} as const satisfies Record<string, Problem>;

export type ProblemSlug = keyof typeof problems;

type Members<P> = P extends { readonly members: infer M extends z.ZodRawShape }
  ? z.input<z.ZodObject<M>>
  : { readonly [name: string]: never };
type MembersOf<S extends ProblemSlug> = Members<(typeof problems)[S]>;
/** An argument: the members, which may be left out if none is required. */
export type MembersArgument<S extends ProblemSlug> =
  Record<never, never> extends MembersOf<S> ? [members?: MembersOf<S>] : [members: MembersOf<S>];

export interface ProblemBody {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail: string;
}

/** The body of a problem. Extension members never replace the standard ones. */
export function problemBody<S extends ProblemSlug>(
  slug: S,
  detail: string,
  ...[members]: MembersArgument<S>
): ProblemBody {
  const { status, title } = problems[slug];
  const common = { type: `/problems/${slug}`, title, status, detail };
  return { ...common, ...members, ...common };
}

/** A problem thrown from inside a handler. */
export class ProblemError<S extends ProblemSlug = ProblemSlug> extends Error {
  override readonly name = 'ProblemError';
  readonly code = 'ERR_STAMPEDE_PROBLEM';
  readonly body: ProblemBody;
  constructor(slug: S, detail: string, ...members: MembersArgument<S>) {
    super(detail);
    this.body = problemBody(slug, detail, ...members);
  }
}

const NOTHING_CHANGED = 'Nothing was changed. Retry after the delay in Retry-After.';
export const busy = (reason: string, detail = NOTHING_CHANGED): ProblemError =>
  new ProblemError('busy', detail, { reason });

/** The problem of a write that happened, and whose result could not be read. */
export function outcomeUnread(): ProblemError {
  const detail = 'A store did not answer; read the state before you repeat the request.';
  return new ProblemError('unknown-outcome', detail, { reason: 'outcome-unread' });
}

export const unknownSale = (saleId: number): ProblemError =>
  new ProblemError('unknown-sale', `Sale ${saleId} does not exist.`);

/** `Retry-After` by the type of a problem, in seconds; others have none, or set it themselves. */
const retryAfterS: Readonly<Record<string, number>> = {
  '/problems/busy': limits.retryAfterS,
  '/problems/unknown-outcome': limits.unknownRetryAfterS,
};

export function sendProblem(res: Response, body: ProblemBody): Response {
  const afterS = retryAfterS[body.type];
  if (afterS !== undefined && !res.hasHeader('Retry-After')) res.setHeader('Retry-After', String(afterS));
  return res.status(body.status).type('application/problem+json').send(JSON.stringify(body));
}

/** A response that is written at once. */
export interface Reply {
  readonly status: number;
  /** Names and values, alternating. */
  readonly headers: string[];
  /** ASCII, so that its length is also its length in bytes. */
  readonly body: string;
}

export const problemReply = <S extends ProblemSlug>(
  slug: S,
  detail: string,
  ...members: MembersArgument<S>
): Reply => replyWith(problemBody(slug, detail, ...members));

/** @param afterS for `Retry-After`, seconds; undefined: the problem has none */
export function replyWith(problem: ProblemBody, afterS = retryAfterS[problem.type]): Reply {
  const body = JSON.stringify(problem);
  return {
    status: problem.status,
    headers: [
      'Content-Type',
      'application/problem+json; charset=utf-8',
      'Content-Length',
      String(Buffer.byteLength(body)),
      ...(afterS === undefined ? [] : ['Retry-After', String(afterS)]),
    ],
    body,
  };
}
