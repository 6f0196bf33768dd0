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
 * another case go to Express unchanged, so that one place answers them.
 */
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import type * as z from 'zod';
import type { Ticket } from '../../access/ticket.ts';
import { limits } from '../../config/limits.ts';
import type { Outcome, PlacedOrder } from '../../domain/outcome.ts';
import type { Opening, Purchases } from '../../orders/purchase.ts';
import { busy, ProblemError, problemReply, type Reply, replyWith } from '../problems.ts';
import { parse } from '../requests.ts';
import { purchaseSchema, ticketPurchaseSchema, USER_ID } from '../schemas.ts';
import type { TicketGate } from './ticket-gate.ts';

const PREFIX = '/sales/';
const SUFFIX = '/orders';
/** As in saleIdSchema: a double represents no longer number exactly. */
const MAX_DIGITS = 16;

/**
 * Handles purchases of the common form and passes every other request to `others`.
 * @param gate with tickets, the ticket names the customer, and a body only the quantity; null: the body names both
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
    asked: () => AskedPurchase | Reply,
    client: string | null,
  ): void {
    try {
      const purchase = asked();
      if ('status' in purchase) {
        send(res, purchase);
        return;
      }
      const { userId, quantity, opening } = purchase;
      const outcome = purchases.attempt(saleId, userId, quantity, client, opening);
      if (!(outcome instanceof Promise)) answer(res, saleId, outcome);
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
    let body: Buffer | null = null;
    req.on('data', (chunk: Buffer) => {
      body = body === null ? chunk : Buffer.concat([body, chunk]);
    });
    // When the client disconnects, or the request is malformed, there is no `end`, and nothing happens.
    req.on('end', () => {
      if (gate === null) return attempt(res, saleId, () => purchaseIn(body), null);
      attempt(res, saleId, () => withTicket(gate, req, saleId, body), gate.clientOf(req));
    });
  };
}

function withTicket(
  gate: TicketGate,
  req: IncomingMessage,
  saleId: number,
  body: Buffer | null,
): AskedPurchase | Reply {
  const ticket = gate.ticketOf(req.headers.authorization, saleId);
  if ('status' in ticket) return ticket;
  const quantity = quantityIn(body);
  if (typeof quantity !== 'number') return quantity;
  return { userId: ticket.customer, quantity, opening: openingBy(ticket) };
}

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

/**
 * The purchase in a body. The form that JSON.stringify writes for one unit is read by a pattern, and every other one by the schema, as on
 * the Express route. A property test checks that both agree.
 */
export interface AskedPurchase {
  readonly userId: string;
  readonly quantity: number;
  readonly opening: Opening;
}

/** What the purchase in a body of the schema is. */
export const withOpening = ({ userId, quantity, code }: z.output<typeof purchaseSchema>): AskedPurchase => ({
  userId,
  quantity,
  opening: code === undefined ? null : { code },
});
export const openingBy = ({ isEarly }: Ticket): Opening => (isEarly === true ? 'ticket' : null);

const EMPTY = Buffer.alloc(0);
/** What JSON.stringify writes for a purchase of one unit. */
const PLAIN = new RegExp(`^\\{"userId":"(${USER_ID})"\\}$`);

/** The purchase in a body, or the answer to an invalid one. */
export function purchaseIn(body: Buffer | null): AskedPurchase | Reply {
  const userId = plainUserIdOf(body ?? EMPTY);
  if (userId !== null) return { userId, quantity: 1, opening: null };
  const asked = checked(body ?? EMPTY, purchaseSchema);
  return 'status' in asked ? asked : withOpening(asked);
}

/** The quantity in the body of a purchase with a ticket, which may be empty, or the answer to an invalid one. */
function quantityIn(body: Buffer | null): number | Reply {
  if (body === null || body.length === 0 || plainUserIdOf(body) !== null) return 1;
  const asked = checked(body, ticketPurchaseSchema);
  return 'quantity' in asked ? asked.quantity : asked;
}

/** The user id in the usual form; null for any other form, valid or not. */
const plainUserIdOf = (body: Buffer): string | null => PLAIN.exec(body.toString('latin1'))?.[1] ?? null;

/** The text without a byte order mark, which Express also removes. */
function textOf(body: Buffer): string {
  const hasMark = body.length >= 3 && body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf;
  return body.toString('utf8', hasMark ? 3 : 0);
}

/** What the schema reads in a body, or the problem that it finds: the same as on the Express route. */
function checked<S extends typeof purchaseSchema | typeof ticketPurchaseSchema>(
  body: Buffer,
  schema: S,
): z.output<S> | Reply {
  let value: unknown;
  try {
    value = JSON.parse(textOf(body));
  } catch {
    return problemReply('invalid-request', 'The body is not valid JSON.');
  }
  try {
    return parse(schema, value, 'body') as z.output<S>;
  } catch (error) {
    if (error instanceof ProblemError) return replyWith(error.body);
    throw error;
  }
}

/** Caches of responses that depend only on the sale and the reason; cleared when full. */
const soldOut = new Map<number, Reply>();
const rejections = new Map<string, Reply>();
const MAX_CACHED = 10_000;

function cached<K>(replies: Map<K, Reply>, key: K, make: () => Reply): Reply {
  let reply = replies.get(key);
  if (reply === undefined) {
    if (replies.size >= MAX_CACHED) replies.clear();
    reply = make();
    replies.set(key, reply);
  }
  return reply;
}

export function send(res: ServerResponse, { status, headers, body }: Reply): void {
  res.writeHead(status, headers).end(body);
}

export function replyOf(saleId: number, outcome: Outcome): Reply {
  switch (outcome.kind) {
    case 'accepted':
      return orderReply(outcome.durable ? 201 : 202, outcome.order, false);
    case 'replayed':
      return orderReply(200, outcome.order, true);
    case 'unknown':
    case 'not-enough-units':
    case 'over-limit':
    case 'customer-limit':
      return rejected(saleId, outcome);
    case 'sold-out':
      return cached(soldOut, saleId, () => rejected(saleId, outcome));
  }
  const reason = 'reason' in outcome ? outcome.reason : '';
  return cached(rejections, `${outcome.kind} ${saleId} ${reason}`, () => rejected(saleId, outcome));
}

/** Builds the JSON by hand: ids, states and numbers need no escaping. */
function orderReply(status: number, order: PlacedOrder, replayed: boolean): Reply {
  const { orderId, saleId, userId, quantity } = order;
  const body = `{"orderId":"${orderId}","saleId":${saleId},"userId":"${userId}","status":"${order.status}","quantity":${quantity},"replayed":${replayed}}`;
  const headers = [
    'Content-Type',
    'application/json; charset=utf-8',
    'Content-Length',
    String(body.length),
    'Location',
    `/orders/${orderId}`,
  ];
  return { status, headers, body };
}

function rejected(saleId: number, outcome: Exclude<Outcome, { order: PlacedOrder }>): Reply {
  switch (outcome.kind) {
    case 'sold-out':
      return problemReply('sold-out', `Every unit of sale ${saleId} is sold.`);
    case 'not-enough-units': {
      const { remaining } = outcome;
      const detail = `Sale ${saleId} has ${remaining} left. Ask for fewer; nothing was reserved.`;
      return problemReply('not-enough-units', detail, { remaining });
    }
    case 'over-limit': {
      const { maxPerOrder } = outcome;
      const errors = [{ path: 'body.quantity', message: `must be at most ${maxPerOrder}` }];
      const detail = `An order of sale ${saleId} may have at most ${maxPerOrder} units.`;
      return problemReply('invalid-request', detail, { errors, maxPerOrder });
    }
    case 'customer-limit': {
      const { limit, left } = outcome;
      const detail = `A customer may have ${limit} units of the sales in the group of sale ${saleId}; this one may have ${left} more. Nothing was reserved.`;
      return problemReply('customer-limit', detail, { limit, left });
    }
    case 'not-open': {
      const { reason } = outcome;
      return problemReply('sale-not-open', `Sale ${saleId} ${NOT_OPEN[reason]}.`, { reason });
    }
    case 'invalid-code':
      return problemReply('invalid-code', invalidCode(saleId, outcome.reason), { reason: outcome.reason });
    case 'unknown-sale':
      return problemReply('unknown-sale', `Sale ${saleId} does not exist.`);
    case 'busy':
      return replyWith(busy(outcome.reason).body);
    case 'unknown': {
      const detail =
        'A store did not answer, so the order may or may not have been placed. Repeat the request after the delay in Retry-After: it returns that order or places a new one.';
      const { reason, orderId } = outcome;
      return problemReply('unknown-outcome', detail, { reason, orderId });
    }
  }
}

/** For people. */
export const invalidCode = (saleId: number, reason: 'unknown' | 'used-up'): string =>
  `${reason === 'unknown' ? `No group of sale ${saleId} has this code` : 'Other customers have all uses of this code'}. Nothing was changed.`;

const NOT_OPEN = { 'not-started': 'has not started', ended: 'has ended', paused: 'is paused' } as const;
