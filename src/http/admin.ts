/**
 * Access to the administrative routes: with ADMIN_TOKEN set, every client that sends it; otherwise, every client on this machine
 * that connects directly. A proxy on this machine, and a page of another site in a browser on it, come from loopback too: a
 * proxy is recognized by its forwarding headers, and a page by the Host that it was rebound to, its Origin, or Sec-Fetch-Site.
 * (A proxy that adds none of these headers is not recognized: set ADMIN_TOKEN there.)
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { Request, RequestHandler, Response } from 'express';
import { rateLimit } from 'express-rate-limit';
import { uuidv7 } from 'uuidv7';
import type { AdminToken } from '../config/access.ts';
import type { Instruments } from '../metrics/instruments.ts';
import type { AuditEvent } from '../store/postgres/audit-log.ts';
import type { IdempotencyKey } from '../store/postgres/idempotency.ts';
import { ProblemError } from './problems.ts';
import { keySchema } from './schemas.ts';

/** Wrong tokens per address and minute. */
const MAX_WRONG_TOKENS = 20;

/** The administrators' tokens that a server accepts. */
export interface AdminTokens {
  /** Whether there are any. */
  readonly areSet: boolean;
  /** The name of the token that a request sends; null: it is none of them. */
  nameOf(req: Request): string | null;
  /**
   * Counts a wrong one, of all routes together. Only these count, so that other clients cannot lock out a holder of the right one.
   * @throws ProblemError `too-many-requests` when the address has sent too many
   */
  countWrong(req: Request, res: Response): Promise<void>;
}

export function createAdminTokens(tokens: readonly AdminToken[]): AdminTokens {
  const count = rateLimit({
    windowMs: 60_000,
    limit: MAX_WRONG_TOKENS,
    standardHeaders: 'draft-8',
    legacyHeaders: false,
    validate: { xForwardedForHeader: false }, // it logs a stack; clients are counted by the address that connects
    handler: (_req, _res, next) =>
      next(new ProblemError('too-many-requests', 'Too many wrong tokens. Retry in a minute.')),
  });
  return {
    areSet: tokens.length > 0,
    nameOf: ({ headers }) => tokenName(tokens, headers.authorization),
    countWrong: (req, res) =>
      new Promise((resolve, reject) => {
        void count(req, res, (error?: unknown) => (error === undefined ? resolve() : reject(error)));
      }),
  };
}

/** Whether administrative routes would accept a request. A wrong token counts; a route that does not need one answers all the same. */
export async function isAdministrator(tokens: AdminTokens, req: Request, res: Response): Promise<boolean> {
  if (!tokens.areSet) return isLocal(req);
  if (tokens.nameOf(req) !== null) return true;
  if (req.headers.authorization === undefined) return false;
  await tokens.countWrong(req, res).catch(() => {}); // too many
  for (const name of ['RateLimit', 'RateLimit-Policy', 'Retry-After']) res.removeHeader(name); // the answer is no refusal
  return false;
}

/** The handlers of administrative routes. */
export interface Administration {
  /** Lets administrators pass, and puts who it is into `res.locals.admin`. */
  readonly authorize: RequestHandler;
  /** For a route that changes something, after the parser of its body: records the act before and its answer after it. */
  readonly recordAct: RequestHandler;
}

/**
 * The Idempotency-Key of an administrator's request; null: it has none.
 * @param body as it was parsed: what was left out and its default are the same request
 * @throws ProblemError `invalid-request`
 */
export function idempotencyKey(req: Request, res: Response, body?: object): IdempotencyKey | null {
  const key = req.get('idempotency-key');
  if (key === undefined) return null;
  if (!keySchema.safeParse(key).success) {
    const message = 'must be 1 to 255 visible ASCII characters';
    throw new ProblemError('invalid-request', `Idempotency-Key: ${message}`, {
      errors: [{ path: 'header.Idempotency-Key', message }],
    });
  }
  const request = digest(`${req.method} ${req.path}\n${JSON.stringify(body)}`).toString('hex');
  return { id: `${res.locals.admin}:${key}`, request };
}

/** Records an event; it throws what Postgres throws. @param path of the request */
export type RecordEvent = (event: AuditEvent, path: string) => Promise<void>;

/**
 * @param tokens none: loopback only
 * @param onError receives failures to record an answer; a failure before the act refuses it
 */
export function administration(
  tokens: AdminTokens,
  record: RecordEvent,
  onError: (error: unknown) => void,
  { refusals, adminActs }: Pick<Instruments, 'refusals' | 'adminActs'>,
): Administration {
  const onRefused = (reason: string) => refusals.inc({ reason });
  const authorize = tokens.areSet ? tokenOnly(tokens, onRefused) : localOnly(onRefused);
  const recordAct: RequestHandler = async (req, res, next) => {
    const actor = `admin:${res.locals.admin}`;
    const subject = `request ${uuidv7()}`;
    // As the route has it: the path may be in capitals, or encoded where it need not be.
    const path = (req.route.path as string).replace(/:(\w+)/g, (_, name) =>
      encodeURIComponent(String(req.params[name])),
    );
    const action = `${req.method} ${path}`;
    await record({ actor, action, subject, details: (req.body as object | undefined) ?? {} }, path);
    adminActs.inc({ route: `${req.method} ${req.route.path}` });
    const recordAnswer = () => {
      const details = { status: res.writableFinished ? res.statusCode : null };
      record({ actor, action: 'answered', subject, details }, path).catch(onError);
    };
    // The client may have left meanwhile.
    if (res.closed) recordAnswer();
    else res.on('close', recordAnswer);
    next();
  };
  return { authorize, recordAct };
}

function localOnly(onRefused: (reason: string) => void): RequestHandler {
  return (req, res, next) => {
    const why = whyNotLocal(req);
    if (why !== null) {
      onRefused('admin-not-local');
      throw new ProblemError('forbidden', `${why} To allow it, set ADMIN_TOKEN and send the token.`);
    }
    res.locals.admin = 'loopback';
    next();
  };
}

/** Takes the same time for each of them. */
function tokenName(tokens: readonly AdminToken[], authorization = ''): string | null {
  const given = digest(/^Bearer (.+)$/i.exec(authorization)?.[1] ?? '');
  let name: string | null = null;
  for (const one of tokens) if (timingSafeEqual(given, digest(one.token))) name = one.name;
  return name;
}

function tokenOnly(tokens: AdminTokens, onRefused: (reason: string) => void): RequestHandler {
  return async (req, res, next) => {
    const name = tokens.nameOf(req);
    if (name !== null) {
      res.locals.admin = name;
      return next();
    }
    onRefused(req.headers.authorization === undefined ? 'admin-token-missing' : 'admin-token-wrong');
    await tokens.countWrong(req, res);
    res.setHeader('WWW-Authenticate', 'Bearer');
    throw new ProblemError('unauthorized', 'Send the header Authorization: Bearer <ADMIN_TOKEN>.');
  };
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}

const FORWARDING = ['forwarded', 'via', 'x-forwarded-for', 'x-forwarded-host', 'x-real-ip'] as const;

/** Whether administrative routes would accept the request if no token were set. */
export const isLocal = (req: Request): boolean => whyNotLocal(req) === null;

/** Why a request may speak for a client on another machine, or for another site; null: it does not. */
function whyNotLocal({ socket, headers }: Request): string | null {
  if (!/^(::1$|(::ffff:)?127\.)/.test(socket.remoteAddress ?? ''))
    return 'The request came from another machine.';
  if (FORWARDING.some((name) => name in headers)) return 'The request came through a proxy.';
  const { host = '', origin, 'sec-fetch-site': site } = headers;
  if (!/^(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?$/i.test(host))
    return 'The Host of the request is not loopback.';
  const isOwn = origin === undefined || origin === `http://${host}`;
  const isFromHere = site === undefined || site === 'same-origin' || site === 'none';
  return isOwn && isFromHere ? null : 'A page of another site sent the request.';
}
