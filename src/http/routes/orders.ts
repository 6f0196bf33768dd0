/** Orders as their customers read them. */
import { Router } from 'express';
import { limits } from '../../config/limits.ts';
import type { OrderTable } from '../../store/orders.ts';
import { ProblemError } from '../problems.ts';
import { parse } from '../requests.ts';
import { orderIdSchema, saleIdSchema, userQuerySchema } from '../schemas.ts';

export function orderRoutes(orders: OrderTable): Router {
  const router = Router();

  router.get('/orders/:orderId', async (req, res) => {
    const orderId = parse(orderIdSchema, req.params.orderId, 'orderId');
    const order = await orders.get(orderId);
    if (order === null) throw new ProblemError('unknown-order', `There is no order ${orderId}.`);
    res.json(order);
  });

  router.get('/sales/:saleId/orders', async (req, res) => {
    const saleId = parse(saleIdSchema, req.params.saleId, 'saleId');
    const { userId } = parse(userQuerySchema, req.query, 'query');
    const order = saleId > limits.maxUnits ? null : await orders.ofUser(saleId, userId);
    if (order === null) throw new ProblemError('unknown-order', `${userId} has no order in sale ${saleId}.`);
    res.json(order);
  });

  return router;
}
