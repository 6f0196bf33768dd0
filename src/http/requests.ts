/** Reading a request: every part is validated before anything is done with it. */
import type { Request, RequestHandler } from 'express';
import express from 'express';
import type { z } from 'zod';
import { ProblemError } from './problems.ts';

/**
 * Parses a JSON body of at most `bytes`. A body of another type is 415, a larger one 413, broken JSON 400: see
 * `asProblem` in server.ts. A compressed body is refused rather than inflated.
 */
export function jsonBody(bytes: number): RequestHandler[] {
  return [
    (req, _res, next) => {
      // Absent means that the client said nothing about a body that may be empty; the schema then tells what is missing.
      const type = req.headers['content-type'];
      if (type !== undefined && req.is('application/json') === false) {
        throw new ProblemError('unsupported-media-type', `Send application/json, not ${type.slice(0, 100)}.`);
      }
      if (/charset\s*=/i.test(type ?? '') && !/charset\s*=\s*"?utf-8"?\s*(;|$)/i.test(type ?? '')) {
        throw new ProblemError('unsupported-media-type', 'Send JSON in UTF-8.');
      }
      if (type === undefined && hasBody(req)) {
        throw new ProblemError('unsupported-media-type', 'Send the header Content-Type: application/json.');
      }
      next();
    },
    express.json({ limit: bytes, inflate: false, strict: false, type: () => true }),
  ];
}

function hasBody(req: Request): boolean {
  return req.headers['transfer-encoding'] !== undefined || Number(req.headers['content-length'] ?? 0) > 0;
}

/**
 * Validates one part of a request.
 * @throws ProblemError `invalid-request` naming every mistake
 */
export function parse<T extends z.ZodType>(schema: T, value: unknown, where: string): z.output<T> {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const errors = parsed.error.issues.map((issue) => ({
    path: [where, ...issue.path].filter((part) => part !== '').join('.'),
    message: issue.message,
  }));
  const detail = errors.map((error) => `${error.path}: ${error.message}`).join('; ');
  throw new ProblemError('invalid-request', detail, { errors });
}
