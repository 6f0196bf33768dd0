/** `POST /sales/{saleId}/orders` on Express, for requests in a form that purchase-listener.ts does not handle. */
import { Router } from 'express';
import { limits } from '../../config/limits.ts';
import type { Purchases } from '../../orders/purchase.ts';
import { jsonBody, optionalBody, parse } from '../requests.ts';
import { purchaseSchema, saleIdSchema, ticketPurchaseSchema } from '../schemas.ts';
import { replyOf, send } from './reply.ts';
import type { TicketGate } from './ticket-gate.ts';

/** @param gate null: the body names the customer */
export function purchaseRoute(purchases: Purchases, gate: TicketGate | null): Router {
  const router = Router();
  const json = jsonBody(limits.purchaseBodyBytes);
  if (gate !== null) {
    router.post('/sales/:saleId/orders', ...json, async (req, res) => {
      const saleId = parse(saleIdSchema, req.params.saleId, 'saleId');
      const customer = gate.customerOf(req.headers.authorization, saleId);
      if (typeof customer !== 'string') return send(res, customer);
      const { quantity } = parse(ticketPurchaseSchema, optionalBody(req), 'body');
      send(res, replyOf(saleId, await purchases.attempt(saleId, customer, quantity, gate.clientOf(req))));
    });
    return router;
  }
  router.post('/sales/:saleId/orders', ...json, async (req, res) => {
    const saleId = parse(saleIdSchema, req.params.saleId, 'saleId');
    const { userId, quantity } = parse(purchaseSchema, req.body, 'body');
    send(res, replyOf(saleId, await purchases.attempt(saleId, userId, quantity)));
  });
  return router;
}
