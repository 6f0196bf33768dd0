/** `POST /sales/{saleId}/orders`: the hot route. One attempt in, one outcome out. */

import type { Response } from 'express';
import { Router } from 'express';
import { limits } from '../config/limits.ts';
import type { Outcome, PlacedOrder } from '../domain/outcome.ts';
import type { Purchases } from '../orders/purchase.ts';
import { sendProblem } from './problems.ts';
import { jsonBody, parse } from './requests.ts';
import { purchaseSchema, saleIdSchema } from './schemas.ts';

export function purchaseRoute(purchases: Purchases): Router {
  const router = Router();
  router.post('/sales/:saleId/orders', ...jsonBody(limits.purchaseBodyBytes), async (req, res) => {
    const saleId = parse(saleIdSchema, req.params.saleId, 'saleId');
    const { userId } = parse(purchaseSchema, req.body, 'body');
    // A number that no sale can have is asked of no store.
    const known = saleId <= limits.maxUnits;
    answer(res, saleId, known ? await purchases.attempt(saleId, userId) : { kind: 'unknown-sale' });
  });
  return router;
}

function answer(res: Response, saleId: number, outcome: Outcome): Response {
  switch (outcome.kind) {
    case 'accepted':
      return placed(res.status(outcome.durable ? 201 : 202), outcome.order, false);
    case 'replayed':
      return placed(res.status(200), outcome.order, true);
    case 'sold-out':
      return sendProblem(res, 'sold-out', `Every unit of sale ${saleId} is sold.`);
    case 'not-open':
      return sendProblem(
        res,
        'sale-not-open',
        outcome.reason === 'ended' ? `Sale ${saleId} has ended.` : `Sale ${saleId} has not started.`,
        { reason: outcome.reason },
      );
    case 'unknown-sale':
      return sendProblem(res, 'unknown-sale', `There is no sale ${saleId}.`);
    case 'busy':
      res.setHeader('Retry-After', String(limits.retryAfterS));
      return sendProblem(res, 'busy', 'Nothing was changed. Try again after a moment.', {
        reason: outcome.reason,
      });
    case 'unknown':
      res.setHeader('Retry-After', String(limits.retryAfterS));
      return sendProblem(
        res,
        'unknown-outcome',
        'A store did not answer, so it is not known whether the order was placed. Repeat the request: it gets the same order, or a new one.',
        { reason: outcome.reason, orderId: outcome.orderId },
      );
  }
}

function placed(res: Response, order: PlacedOrder, replayed: boolean): Response {
  const { orderId, saleId, userId, status } = order;
  res.setHeader('Location', `/orders/${orderId}`);
  return res.json({ orderId, saleId, userId, status, replayed });
}
