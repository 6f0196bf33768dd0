/** Errors as RFC 9457 problems. The slug at the end of `type` is stable and meant for programs. */
import type { Response } from 'express';
import { z } from 'zod';
import { limits } from '../config/limits.ts';
import { taskStates } from '../domain/task.ts';
import { dateTime, orderStatusSchema, pointsEntrySchema } from './answer-schemas.ts';
import { orderIdSchema } from './schemas.ts';

export interface Problem {
  readonly status: number;
  readonly title: string;
  /** Members of its body beside those of RFC 9457. */
  readonly members?: z.ZodRawShape;
  /** Headers of every response with it. */
  readonly headers?: readonly string[];
}

const reason = z.string().meta({ description: 'For operators; may change between versions' });
const RETRY = { headers: ['Retry-After'] } as const;

/** Every problem by slug. Senders, /openapi.json and docs/reference/api.md agree with this table: by types and by tests. */
export const problems = {
  'invalid-request': {
    status: 400,
    title: 'Invalid request',
    members: {
      errors: z
        .array(z.object({ path: z.string().meta({ example: 'body.userId' }), message: z.string() }))
        .optional()
        .meta({ description: 'Every mistake in the parameters and the body' }),
    },
  },
  unauthorized: { status: 401, title: 'Token required', headers: ['WWW-Authenticate'] },
  'invalid-ticket': {
    status: 401,
    title: 'Ticket of this sale required',
    members: { reason: z.enum(['missing', 'unsigned', 'other-sale', 'expired']) },
  },
  'invalid-signature': { status: 401, title: 'Signature of the payment notification required' },
  forbidden: { status: 403, title: 'Not allowed' },
  'proof-required': {
    status: 403,
    title: 'Proof of work required',
    members: {
      challenge: z.string(),
      bits: z.int().min(0).meta({ description: 'Zero bits that the hash must begin with' }),
    },
  },
  'not-found': { status: 404, title: 'Not found' },
  'unknown-sale': { status: 404, title: 'Unknown sale' },
  'unknown-order': { status: 404, title: 'Unknown order' },
  'unknown-task': { status: 404, title: 'Unknown task' },
  'sold-out': { status: 409, title: 'Sold out' },
  'not-enough-units': {
    status: 409,
    title: 'Fewer units left than asked for',
    members: { remaining: z.int().min(1).meta({ description: 'Units that were left' }) },
  },
  'sale-not-open': {
    status: 409,
    title: 'Sale not open',
    members: { reason: z.enum(['not-started', 'ended', 'paused']) },
  },
  'too-early': {
    status: 409,
    title: 'The turn of this ticket has not begun',
    members: { notBefore: dateTime.meta({ description: "When the customer's turn begins" }) },
    ...RETRY,
  },
  'not-sold-out': { status: 409, title: 'Units are left' },
  'below-sold': { status: 409, title: 'Stock cannot be reduced below the units sold' },
  'idempotency-conflict': {
    status: 409,
    title: 'The id was already used with different contents',
    members: { entry: pointsEntrySchema.optional() },
  },
  'key-reused': { status: 422, title: 'The Idempotency-Key came with another request before' },
  'invalid-transition': {
    status: 409,
    title: 'The current state does not allow this',
    members: {
      orderStatus: orderStatusSchema.optional().meta({ description: 'Only of an order' }),
      state: z.enum(taskStates).optional().meta({ description: 'Only of a task' }),
    },
  },
  'too-large': { status: 413, title: 'Request body too large' },
  'unsupported-media-type': { status: 415, title: 'The request body must be application/json' },
  'too-many-requests': {
    status: 429,
    title: 'Too many requests',
    members: { reason: reason.optional() },
    ...RETRY,
  },
  'internal-error': { status: 500, title: 'Internal error' },
  busy: { status: 503, title: 'Busy: nothing was changed, retry later', members: { reason }, ...RETRY },
  'unknown-outcome': {
    status: 503,
    title: 'Unknown outcome: a repeat by the same user resolves it',
    members: {
      reason,
      orderId: orderIdSchema
        .optional()
        .meta({ description: 'Of a purchase: the id of the order if it exists' }),
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

/** The problem of a write that happened, and whose result could not be read. */
export function outcomeUnread(res: Response): ProblemError {
  res.setHeader('Retry-After', String(limits.retryAfterS));
  const detail = 'A store did not answer; read the state before you repeat the request.';
  return new ProblemError('unknown-outcome', detail, { reason: 'outcome-unread' });
}

export const sendProblem = (res: Response, body: ProblemBody): Response =>
  res.status(body.status).type('application/problem+json').send(JSON.stringify(body));
