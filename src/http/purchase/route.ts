/** `POST /sales/{saleId}/orders` on Express, for requests in a form that listener.ts does not handle. */
import { placedOrderSchema } from '../answer-schemas.ts';
import { json, location } from '../openapi-responses.ts';
import { optionalBody, parse } from '../requests.ts';
import { tagged } from '../route.ts';
import { purchaseSchema, ticketPurchaseSchema } from '../schemas.ts';
import { openingBy, replyOf, send, withOpening } from './listener.ts';

export const placeOrder = tagged('Orders')('post /sales/{saleId}/orders', 'ticket', {
  summary: 'Buy one unit, or several at once',
  description:
    'All units or none. A repeat by the same user returns the same order, whatever its quantity. With AUTH=jwt it needs a ticket as Authorization: Bearer, which names the user; `userId` is ignored, and the body may be left out.',
  body: purchaseSchema,
  mayOmitBody: true,
  answers: {
    200: json(placedOrderSchema, 'The existing order of the user', location('order')),
    201: json(placedOrderSchema, 'The order, committed in Postgres', location('order')),
    202: json(
      placedOrderSchema,
      'With CONFIRM=accepted: the units are reserved; the commit follows',
      location('order'),
    ),
  },
  problems: [
    'invalid-ticket',
    'too-early',
    'sold-out',
    'invalid-code',
    'not-enough-units',
    'customer-limit',
    'sale-not-open',
  ],
  async handle({ saleId, req, res }, { purchases, ticketing }) {
    if (ticketing === null) {
      const { userId, quantity, opening } = withOpening(parse(purchaseSchema, req.body, 'body'));
      return send(res, replyOf(saleId, await purchases.attempt(saleId, userId, quantity, null, opening)));
    }
    const { gate } = ticketing;
    const ticket = gate.ticketOf(req.headers.authorization, saleId);
    if ('status' in ticket) return send(res, ticket);
    const { quantity } = parse(ticketPurchaseSchema, optionalBody(req), 'body');
    const { customer } = ticket;
    const asked = [saleId, customer, quantity, gate.clientOf(req), openingBy(ticket)] as const;
    send(res, replyOf(saleId, await purchases.attempt(...asked)));
  },
});
