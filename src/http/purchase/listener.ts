/**
 * The purchase route on plain node:http, at a tenth of the cost of Express.
 *
 *   request ──▶ POST /sales/<id>/orders, JSON with Content-Length? ──no──▶ Express, which handles every other form
 *                   │           (with a ticket: or no body)
 *                   │ yes
 *                   ▼
 *               read the body ──valid──▶ attempt ──▶ one write
 *                   └──invalid──▶ the schema describes the mistake, as on the Express route
 *
 * Only the common form of the request is handled here. Chunked or compressed bodies, other charsets, queries and paths in
 * another case go to Express unchanged, so that one place answers them. User ids are validated by hand here and by the schema
 * there; a property test checks that both agree.
 */
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { limits } from '../../config/limits.ts';
import type { Outcome } from '../../domain/outcome.ts';
import type { Purchases } from '../../orders/purchase.ts';
import { ProblemError } from '../problems.ts';
import { parse } from '../requests.ts';
import { purchaseSchema } from '../schemas.ts';
import { problemReply, type Reply, replyOf, replyWith, send } from './reply.ts';
import type { TicketGate } from './ticket-gate.ts';

const PREFIX = '/sales/';
const SUFFIX = '/orders';
/** As in saleIdSchema: a double represents no longer number exactly. */
const MAX_DIGITS = 16;

/** Valid characters of a user id, by code. */
const ALLOWED = new Uint8Array(256);
for (const character of 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-') {
  ALLOWED[character.charCodeAt(0)] = 1;
}

/**
 * Handles purchases of the common form and passes every other request to `others`.
 * @param gate with tickets, the ticket names the customer, and a body is ignored; null: the body names the customer
 */
export function purchaseListener(
  purchases: Purchases,
  others: RequestListener,
  onError: (error: unknown, request: { readonly method: string; readonly path: string }) => void,
  gate: TicketGate | null = null,
): RequestListener {
  function answer(res: ServerResponse, saleId: number, outcome: Outcome): void {
    if (!res.destroyed) send(res, replyOf(saleId, outcome));
  }

  function fail(res: ServerResponse, path: string, error: unknown): void {
    onError(error, { method: 'POST', path });
    const detail = 'The error was logged. It is safe to repeat a purchase.';
    if (!res.destroyed && !res.headersSent) send(res, problemReply('internal-error', detail));
  }

  function attempt(
    res: ServerResponse,
    saleId: number,
    customer: () => string | Reply,
    client: string | null,
  ): void {
    try {
      const userId = customer();
      const outcome = typeof userId === 'string' ? purchases.attempt(saleId, userId, client) : null;
      if (outcome === null) send(res, userId as Reply);
      else if (!(outcome instanceof Promise)) answer(res, saleId, outcome);
      else {
        outcome.then(
          (settled) => answer(res, saleId, settled),
          (error) => fail(res, `${PREFIX}${saleId}${SUFFIX}`, error),
        );
      }
    } catch (error) {
      fail(res, `${PREFIX}${saleId}${SUFFIX}`, error);
    }
  }

  return (req, res) => {
    const saleId = req.method === 'POST' ? saleIdOf(req.url!) : 0;
    if (saleId === 0) return others(req, res);
    const form = formOf(req);
    if (form === 'other' || (form === 'empty' && gate === null)) return others(req, res);
    if (gate !== null) {
      // A malformed request emits no `end` and so has no effect.
      req.on('end', () => {
        const customer = () => gate.customerOf(req.headers.authorization, saleId);
        attempt(res, saleId, customer, gate.clientOf(req));
      });
      req.resume();
      return;
    }
    let body: Buffer | null = null;
    req.on('data', (chunk: Buffer) => {
      body = body === null ? chunk : Buffer.concat([body, chunk]);
    });
    // When the client disconnects there is no `end`, and nothing happens.
    req.on('end', () => attempt(res, saleId, () => customerIn(body ?? Buffer.alloc(0)), null));
  };
}

/** The user id in a body, or the answer to an invalid one. */
const customerIn = (body: Buffer): string | Reply => userIdOf(body) ?? invalidBody(body);

/** The id in `/sales/<id>/orders`; 0 for any other URL. */
export function saleIdOf(url: string): number {
  const end = url.length - SUFFIX.length;
  if (!url.startsWith(PREFIX) || !url.endsWith(SUFFIX)) return 0;
  const digits = end - PREFIX.length;
  if (digits < 1 || digits > MAX_DIGITS || url.charCodeAt(PREFIX.length) === 48) return 0;
  let number = 0;
  for (let i = PREFIX.length; i < end; i++) {
    const digit = url.charCodeAt(i) - 48;
    if (digit < 0 || digit > 9) return 0;
    number = number * 10 + digit;
  }
  return Number.isSafeInteger(number) ? number : 0;
}

/**
 * `json`: one Host; uncompressed JSON in UTF-8; a Content-Length within the limit. `empty`: one Host, and no body. Reads the raw
 * headers, because building `req.headers` costs more.
 */
function formOf({ rawHeaders }: IncomingMessage): 'json' | 'empty' | 'other' {
  let isJson = false;
  let length = 0;
  let hosts = 0;
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]!;
    switch (name.length) {
      case 4:
        if (name.toLowerCase() === 'host') hosts++;
        break;
      case 12:
        if (name.toLowerCase() !== 'content-type') break;
        if (isJson || rawHeaders[i + 1] !== 'application/json') return 'other';
        isJson = true;
        break;
      case 14:
        if (name.toLowerCase() !== 'content-length') break;
        if (length !== 0) return 'other';
        length = Number(rawHeaders[i + 1]);
        break;
      case 16:
        if (name.toLowerCase() === 'content-encoding') return 'other';
        break;
      case 17:
        if (name.toLowerCase() === 'transfer-encoding') return 'other';
    }
  }
  if (hosts !== 1) return 'other';
  if (length === 0) return 'empty';
  return isJson && length <= limits.purchaseBodyBytes ? 'json' : 'other';
}

const BEFORE = Buffer.from('{"userId":"');
const AFTER = Buffer.from('"}');

/** The user id of a body that matches purchaseSchema; null for any other body. */
export function userIdOf(body: Buffer): string | null {
  return plainUserIdOf(body) ?? parsedUserIdOf(body);
}

/** Reads the body that JSON.stringify writes; null for any other form, valid or not. */
function plainUserIdOf(body: Buffer): string | null {
  const end = body.length - AFTER.length;
  const length = end - BEFORE.length;
  if (length < 1 || length > limits.userIdLength) return null;
  for (let i = 0; i < BEFORE.length; i++) if (body[i] !== BEFORE[i]) return null;
  for (let i = BEFORE.length; i < end; i++) if (ALLOWED[body[i]!] !== 1) return null;
  return body[end] === AFTER[0] && body[end + 1] === AFTER[1]
    ? body.toString('latin1', BEFORE.length, end)
    : null;
}

function parsedUserIdOf(body: Buffer): string | null {
  let value: unknown;
  try {
    value = JSON.parse(textOf(body));
  } catch {
    return null;
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return null;
  const keys = Object.keys(value);
  if (keys.length !== 1 || keys[0] !== 'userId') return null;
  const { userId } = value as { userId: unknown };
  return typeof userId === 'string' && isUserId(userId) ? userId : null;
}

function isUserId(text: string): boolean {
  if (text.length === 0 || text.length > limits.userIdLength) return false;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (ALLOWED[code] !== 1) return false;
  }
  return true;
}

/** The text without a byte order mark, which Express also removes. */
function textOf(body: Buffer): string {
  const hasMark = body.length >= 3 && body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf;
  return body.toString('utf8', hasMark ? 3 : 0);
}

/** The problem for an invalid body, the same as on the Express route. */
function invalidBody(body: Buffer) {
  let value: unknown;
  try {
    value = JSON.parse(textOf(body));
  } catch {
    return problemReply('invalid-request', 'The body is not valid JSON.');
  }
  try {
    parse(purchaseSchema, value, 'body');
  } catch (error) {
    if (error instanceof ProblemError) return replyWith(error.body);
    throw error;
  }
  throw new Error('userIdOf rejected a body that purchaseSchema accepts');
}
