/**
 * Access to the administrative routes: with ADMIN_TOKEN set, every client that sends it; otherwise, every loopback client.
 * (Behind a proxy on the same machine every client is a loopback client: set ADMIN_TOKEN there.)
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { RequestHandler } from 'express';
import { rateLimit } from 'express-rate-limit';
import { ProblemError, sendProblem } from './problems.ts';

/** Wrong tokens per address and minute. */
const MAX_WRONG_TOKENS = 20;

/** @param token null: loopback only */
export function adminOnly(token: string | null): RequestHandler[] {
  if (token === null) {
    return [
      (req, _res, next) => {
        if (isLoopback(req.socket.remoteAddress)) return next();
        throw new ProblemError('forbidden', 'Set ADMIN_TOKEN to allow other machines to use this route.');
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

function isLoopback(address: string | undefined): boolean {
  return address !== undefined && /^(::1|(::ffff:)?127\.)/.test(address);
}
