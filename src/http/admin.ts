/**
 * Access to the administrative routes: with ADMIN_TOKEN set, every client that sends it; otherwise, every client on this machine
 * that speaks for itself. A proxy on this machine, and a page of another site in a browser on it, come from loopback too: a
 * proxy is recognized by its forwarding headers, and a page by the Host that it was rebound to, its Origin, or Sec-Fetch-Site.
 * (A proxy that adds none of these headers is not recognized: set ADMIN_TOKEN there.)
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { Request, RequestHandler } from 'express';
import { rateLimit } from 'express-rate-limit';
import { ProblemError, sendProblem } from './problems.ts';

/** Wrong tokens per address and minute. */
const MAX_WRONG_TOKENS = 20;

/** @param token null: loopback only */
export function adminOnly(token: string | null): RequestHandler[] {
  if (token === null) {
    return [
      (req, _res, next) => {
        const why = whyNotLocal(req);
        if (why === null) return next();
        throw new ProblemError('forbidden', `${why} Set ADMIN_TOKEN, and send it, to use this route so.`);
      },
    ];
  }
  const expected = digest(token);
  // Only wrong tokens count, so that other clients cannot lock out a holder of the right one.
  const countWrong = rateLimit({
    windowMs: 60_000,
    limit: MAX_WRONG_TOKENS,
    standardHeaders: 'draft-8',
    legacyHeaders: false,
    handler: (_req, res) =>
      sendProblem(res, 'too-many-requests', 'Too many wrong tokens. Retry in a minute.'),
  });
  return [
    (req, res, next) => {
      const given = /^Bearer (.+)$/.exec(req.headers.authorization ?? '')?.[1] ?? '';
      if (timingSafeEqual(digest(given), expected)) return next();
      return countWrong(req, res, () => {
        res.setHeader('WWW-Authenticate', 'Bearer');
        sendProblem(res, 'unauthorized', 'Send the header Authorization: Bearer <ADMIN_TOKEN>.');
      });
    },
  ];
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}

const FORWARDING = ['forwarded', 'via', 'x-forwarded-for', 'x-forwarded-host', 'x-real-ip'] as const;

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
