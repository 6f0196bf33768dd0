/** The waitlist of a sold-out sale. */
import { Router } from 'express';
import { limits } from '../../config/limits.ts';
import type { HttpContext } from '../context.ts';
import { ProblemError } from '../problems.ts';
import { jsonBody, optionalBody, parse } from '../requests.ts';
import { saleIdSchema, userIdSchema, waitlistSchema } from '../schemas.ts';
import { unknownSale } from './sales.ts';

export function waitlistRoutes({ callers, waitlist }: Pick<HttpContext, 'callers' | 'waitlist'>): Router {
  const router = Router();
  if (waitlist === null) return router;

  router.post('/sales/:saleId/waitlist', ...jsonBody(limits.bodyBytes), async (req, res) => {
    const saleId = parse(saleIdSchema, req.params.saleId, 'saleId');
    const { userId: named } = parse(waitlistSchema, optionalBody(req), 'body');
    const { customer } = await callers.of(req, res);
    const userId = customer ?? parse(userIdSchema, named, 'body.userId');
    const result = saleId > limits.maxSaleId ? null : await waitlist.join(saleId, userId);
    if (result === null) throw unknownSale(saleId);
    if (result === 'ended')
      throw new ProblemError('sale-not-open', `Sale ${saleId} has ended.`, { reason: result });
    if (result === 'units-left')
      throw new ProblemError(
        'not-sold-out',
        `Sale ${saleId} has units left, or orders that are being committed: buy, or join again.`,
      );
    res.status(result.kind === 'joined' ? 201 : 200).json(result.entry);
  });

  return router;
}
