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
import { limits } from '../../config/limits.ts';
import type { Outcome } from '../../domain/outcome.ts';
import type { Purchases } from '../../orders/purchase.ts';
import { type AskedPurchase, openingBy, purchaseIn, quantityIn } from './body.ts';
import { problemReply, type Reply, replyOf, send } from './reply.ts';
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
