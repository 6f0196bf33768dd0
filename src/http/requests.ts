/** Parsing and validation of requests. */
import type { Request, RequestHandler } from 'express';
import express from 'express';
import type * as z from 'zod';
import { ProblemError } from './problems.ts';

/**
 * Parses a JSON body of at most `bytes`. Another type is answered with 415, a larger body with 413, invalid JSON and deep JSON with 400:
 * see `errorHandler` in app.ts. A compressed body is rejected rather than inflated.
 */
export function jsonBody(bytes: number): RequestHandler[] {
  return [
    (req, _res, next) => {
      // Without a Content-Type the body may be empty; the schema then reports what is missing.
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
    express.json({ limit: bytes, inflate: false, strict: false, type: () => true, verify: keepRaw }),
    (req, _res, next) => {
      if (isDeep(req.body)) throw new ProblemError('invalid-request', 'The JSON is nested too deeply.');
      next();
    },
  ];
}

/** No body has more than two levels; what walks through thousands, such as JSON.stringify for the audit log, runs out of stack. */
const MAX_LEVELS = 8;

function isDeep(body: unknown): boolean {
  let level = [body];
  for (let n = 0; n <= MAX_LEVELS; n++) {
    level = level.flatMap((value) =>
      typeof value === 'object' && value !== null ? Object.values(value) : [],
    );
    if (level.length === 0) return false;
  }
  return true;
}

const rawBodies = new WeakMap<object, Buffer>();
const keepRaw = (req: object, _res: unknown, body: Buffer) => void rawBodies.set(req, body);

/** The bytes that `jsonBody` parsed, for a signature; empty: there was no body. */
export const rawBody = (req: Request): Buffer => rawBodies.get(req) ?? Buffer.alloc(0);

function hasBody(req: Request): boolean {
  return req.headers['transfer-encoding'] !== undefined || Number(req.headers['content-length'] ?? 0) > 0;
}

/** The body of a request that may have none. */
export const optionalBody = (req: Request): unknown => (req.body === undefined ? {} : req.body);

/**
 * Validates one part of a request.
 * @throws ProblemError `invalid-request` with every mistake
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
