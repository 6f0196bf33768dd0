/** Orders: read and cancelled by customers, reported as paid by the payment provider. */
import { type RequestHandler, type Response, Router } from 'express';
import type { WebhookSecret } from '../../config/access.ts';
import { limits } from '../../config/limits.ts';
import type { Order } from '../../domain/order.ts';
import type { Instruments } from '../../metrics/instruments.ts';
import type { Lifecycle } from '../../orders/lifecycle.ts';
import type { PaymentResult } from '../../orders/payments.ts';
import { type Administration, idempotencyKey } from '../admin.ts';
import { type Caller, namedCustomer } from '../callers.ts';
import type { HttpContext } from '../context.ts';
import { busy, outcomeUnread, ProblemError } from '../problems.ts';
import { jsonBody, optionalBody, parse } from '../requests.ts';
import {
  notificationSchema,
  orderIdSchema,
  refundSchema,
  saleIdSchema,
  unmatchedQuerySchema,
  userIdSchema,
  userQuerySchema,
} from '../schemas.ts';
import { signedBy } from '../webhook-signature.ts';

type OrderContext = Pick<HttpContext, 'reads' | 'lifecycle' | 'payments' | 'paymentSecrets' | 'callers'> & {
  readonly instruments: Pick<Instruments, 'paymentNotifications'>;
};

export function orderRoutes(context: OrderContext, admin: Administration): Router {
  const { lifecycle, callers } = context;
  const { orders, uncommitted } = context.reads;
  const router = Router();

  /** The problem for an order that is not in Postgres. */
  async function missing(orderId: string, customer: string | null = null) {
    const isReserved = await uncommitted.has(orderId, customer);
    if (isReserved) return notCommitted(`Order ${orderId}`);
    return new ProblemError('unknown-order', `Order ${orderId} does not exist.`);
  }

  /** @throws ProblemError when there is none that the caller may see */
  async function ownOrder(orderId: string, { customer }: Caller): Promise<Order> {
    const order = await orders.get(orderId);
    if (order === null || (customer !== null && order.userId !== customer))
      throw await missing(orderId, customer);
    return order;
  }

  router.get('/orders/:orderId', async (req, res) => {
    const orderId = parse(orderIdSchema, req.params.orderId, 'orderId');
    res.json(await ownOrder(orderId, await callers.of(req, res)));
  });

  router.get('/sales/:saleId/orders', async (req, res) => {
    const saleId = parse(saleIdSchema, req.params.saleId, 'saleId');
    const { userId: named } = parse(userQuerySchema, req.query, 'query');
    const caller = await callers.of(req, res);
    if (caller.customer === null) parse(userIdSchema, named, 'query.userId');
    const userId = namedCustomer(caller, named);
    if (userId === null) throw new ProblemError('unknown-order', `${named} has no order in sale ${saleId}.`);
    const order = saleId > limits.maxSaleId ? null : await uncommitted.ofUser(saleId, userId);
    if (order === 'uncommitted') throw notCommitted(`The order of ${userId} in sale ${saleId}`);
    if (order === null) throw new ProblemError('unknown-order', `${userId} has no order in sale ${saleId}.`);
    res.json(order);
  });

  router.post('/orders/:orderId/cancel', async (req, res) => {
    const orderId = parse(orderIdSchema, req.params.orderId, 'orderId');
    const caller = await callers.of(req, res);
    if (caller.customer !== null) await ownOrder(orderId, caller);
    const result = await lifecycle.cancel(orderId, caller.actor);
    if (result.kind === 'unknown-order') throw await missing(orderId);
    if (result.kind === 'unknown') throw outcomeUnread();
    if (result.kind === 'invalid-transition') throw notPending(result.order);
    res.json(result.order);
  });

  addRefund(router, lifecycle, admin, missing);
  addPayments(router, context, admin);
  return router;
}

function addRefund(
  router: Router,
  lifecycle: Lifecycle,
  admin: Administration,
  missing: (orderId: string) => Promise<ProblemError>,
): void {
  router.post('/orders/:orderId/refund', ...admin.act(limits.bodyBytes), async (req, res) => {
    const orderId = parse(orderIdSchema, req.params.orderId, 'orderId');
    const given = parse(refundSchema, optionalBody(req), 'body');
    const how = { ...given, actor: `admin:${res.locals.admin}` };
    const result = await lifecycle.refund(orderId, how, idempotencyKey(req, res, given));
    if (result.kind === 'unknown-order') throw await missing(orderId);
    if (result.kind === 'unknown') throw outcomeUnread();
    if (result.kind === 'invalid-transition') throw notActive(result.order);
    res.json(result.order);
  });
}

function addPayments(router: Router, context: OrderContext, admin: Administration): void {
  const { payments, paymentSecrets, instruments, reads } = context;
  const provider = providerOnly(paymentSecrets, admin, instruments);

  router.post('/payments/notifications', ...provider, async (req, res) => {
    const given = parse(notificationSchema, req.body, 'body');
    const provider: string | null = res.locals.provider ?? null;
    const result = await payments.notify({ ...given, provider, actor: actorOf(res) });
    if (result.kind === 'unknown') throw outcomeUnread();
    if (result.kind === 'busy') throw paymentBusy(given.orderId, result);
    res.json(result.kind === 'done' ? result.order : { result: result.kind, reason: result.reason });
  });

  router.get('/payments/unmatched', ...admin.authorize, async (req, res) => {
    const { before = null, limit = limits.pageLength } = parse(unmatchedQuerySchema, req.query, 'query');
    const page = await reads.unmatched.list(limit, before);
    const last = page.at(-1);
    if (last !== undefined && page.length === limit)
      res.setHeader('Link', `</payments/unmatched?before=${last.id}&limit=${limit}>; rel="next"`);
    res.json(page);
  });
}

/** Authorizes a payment report and parses its body: it needs a signature or, without secrets, an administrator. */
function providerOnly(
  secrets: readonly WebhookSecret[],
  admin: Administration,
  { paymentNotifications }: OrderContext['instruments'],
): RequestHandler[] {
  const json = jsonBody(limits.bodyBytes);
  if (secrets.length === 0) return [...admin.authorize, ...json];
  return [...json, signedBy(secrets, (result) => paymentNotifications.inc({ result }))];
}

/** Who reported a payment: a provider, or an administrator. */
const actorOf = ({ locals }: Response): string =>
  locals.admin === undefined ? `payments:${locals.provider ?? ''}` : `admin:${locals.admin}`;

function paymentBusy(orderId: string, { reason }: Extract<PaymentResult, { kind: 'busy' }>): ProblemError {
  if (reason === 'order-not-committed') return notCommitted(`Order ${orderId}`);
  return busy(reason, 'Nothing was changed. Repeat the notification after the delay in Retry-After.');
}

function notActive({ orderId, status }: Order): ProblemError {
  const detail = `Order ${orderId} is ${status}: there is nothing to cancel or refund.`;
  return new ProblemError('invalid-transition', detail, { orderStatus: status });
}

function notPending({ orderId, status }: Order): ProblemError {
  const detail = `Order ${orderId} is ${status}, not pending.`;
  return new ProblemError('invalid-transition', detail, { orderStatus: status });
}

function notCommitted(what: string): ProblemError {
  const detail = `${what} is accepted but not committed yet. Nothing was changed. Retry after the delay in Retry-After.`;
  return busy('order-not-committed', detail);
}
