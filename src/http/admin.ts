/**
 * Who may use the administrative routes: whoever has the token, or, where none is set, whoever comes from this
 * machine. (Behind a proxy on the same machine everybody does: set ADMIN_TOKEN there.)
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { RequestHandler } from 'express';
import { rateLimit } from 'express-rate-limit';
import { ProblemError, sendProblem } from './problems.ts';

/** Wrong tokens that one address may send in a minute. */
const WRONG_TOKENS = 20;

/** @param token null: loopback only */
export function adminOnly(token: string | null): RequestHandler[] {
  if (token === null) {
    return [
      (req, _res, next) => {
        if (isLoopback(req.socket.remoteAddress)) return next();
        throw new ProblemError('forbidden', 'Set ADMIN_TOKEN to use this route from another machine.');
      },
    ];
  }
  const expected = digest(token);
  // Only wrong tokens are counted: whoever has the right one is never kept out by others.
  const countWrong = rateLimit({
    windowMs: 60_000,
    limit: WRONG_TOKENS,
    standardHeaders: 'draft-8',
    legacyHeaders: false,
    handler: (_req, res) =>
      sendProblem(res, 'too-many-requests', 'Too many wrong tokens. Try again in a minute.'),
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

function isLoopback(address: string | undefined): boolean {
  return address !== undefined && /^(::1|(::ffff:)?127\.)/.test(address);
}
