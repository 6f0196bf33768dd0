/** `POST /sales/{saleId}/orders` on Express, for requests in a form that purchase-listener.ts does not handle. */
import { Router } from 'express';
import { limits } from '../config/limits.ts';
import type { Purchases } from '../orders/purchase.ts';
import { replyOf, send } from './purchase-reply.ts';
import { jsonBody, parse } from './requests.ts';
import { purchaseSchema, saleIdSchema } from './schemas.ts';

export function purchaseRoute(purchases: Purchases): Router {
  const router = Router();
  router.post('/sales/:saleId/orders', ...jsonBody(limits.purchaseBodyBytes), async (req, res) => {
    const saleId = parse(saleIdSchema, req.params.saleId, 'saleId');
    const { userId } = parse(purchaseSchema, req.body, 'body');
    send(res, replyOf(saleId, await purchases.attempt(saleId, userId)));
  });
  return router;
}
