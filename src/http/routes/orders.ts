/** Orders: read and cancelled by customers, refunded by administrators. */
import type { Order } from '../../domain/order.ts';
import type { CloseResult, NotChanged, TransferResult } from '../../orders/lifecycle.ts';
import * as a from '../answer-schemas.ts';
import type { Caller } from '../callers.ts';
import { json } from '../openapi-responses.ts';
import { busy, outcomeUnread, ProblemError } from '../problems.ts';
import type { Reads } from '../reads.ts';
import { tagged } from '../route.ts';
import * as s from '../schemas.ts';

export const UNCOMMITTED =
  'An order that was accepted with 202 and is not committed yet gives 503 `busy` with Retry-After rather than 404.';

const order = tagged('Orders');

const NOT_TRANSFERRED: Partial<Record<TransferResult['kind'], ConstructorParameters<typeof ProblemError>>> = {
  'same-customer': ['invalid-request', 'The order belongs to toUserId. Nothing was changed.'],
  'already-transferred': ['already-transferred', 'The order was transferred before. Nothing was changed.'],
  'has-order': ['has-order', 'toUserId has an active order of the sale. Nothing was changed.'],
  'not-supported': ['not-supported', 'Orders cannot be transferred with CONFIRM=accepted.'],
};

export const orderRoutes = {
  getOrder: order('get /orders/{orderId}', 'customer', {
    summary: 'One order',
    description: UNCOMMITTED,
    answers: { 200: json(a.orderSchema, 'The order') },
    handle: async ({ orderId, caller, res }, { reads }) => res.json(await ownOrder(reads, orderId, caller)),
  }),
  cancelOrder: order('post /orders/{orderId}/cancel', 'customer', {
    summary: 'Cancel a pending order',
    description: `Releases its units. The customer may buy again. ${UNCOMMITTED}`,
    answers: { 200: json(a.orderSchema, 'The cancelled order') },
    problems: ['invalid-transition'],
    async handle({ orderId, caller, res }, { reads, lifecycle }) {
      if (caller.customer !== null) await ownOrder(reads, orderId, caller);
      const result = await lifecycle.cancel(orderId, caller.actor, caller.customer);
      res.json(await changed(reads, orderId, result, ', not pending.'));
    },
  }),
  extendOrder: order('post /orders/{orderId}/extend', 'admin', {
    summary: 'Hold the units of a pending order for longer',
    description: `While a payment runs. The order expires after \`seconds\` from now, and never earlier than before, so that a repeat changes little; at most MAX_HOLD_S after it was placed. ${UNCOMMITTED}`,
    body: s.extendSchema,
    answers: { 200: json(a.orderSchema, 'The order with its new `expiresAt`') },
    problems: ['invalid-transition', 'beyond-limit'],
    async handle({ orderId, body: { seconds }, caller: { actor }, key, res }, { reads, lifecycle }) {
      const result = await lifecycle.extend(orderId, seconds, actor, key);
      if (result.kind === 'beyond-limit') {
        const latest = result.latest.toISOString();
        const detail = `Order ${orderId} may stay unpaid until ${latest} (MAX_HOLD_S). Nothing was changed.`;
        throw new ProblemError('beyond-limit', detail, { latest });
      }
      res.json(await changed(reads, orderId, result, ', not pending.'));
    },
  }),
  transferOrder: order('post /orders/{orderId}/transfer', 'admin', {
    summary: 'Pass an order to another customer',
    description: `A pending or paid order passes once, with its points; it keeps its price, deadline and units, and its first customer may buy again. A repeat changes nothing. Not with CONFIRM=accepted where Redis decides. ${UNCOMMITTED}`,
    body: s.transferSchema,
    answers: { 200: json(a.orderSchema, 'The order with its new `userId`') },
    problems: ['invalid-transition', 'already-transferred', 'has-order', 'customer-limit', 'not-supported'],
    async handle({ orderId, body: { toUserId }, caller: { actor }, key, res }, { reads, lifecycle }) {
      const result = await lifecycle.transfer(orderId, toUserId, actor, key);
      if (result.kind === 'customer-limit') {
        const detail = `toUserId may have ${result.left} more units in the sales of the group. Nothing was changed.`;
        throw new ProblemError('customer-limit', detail, { limit: result.limit, left: result.left });
      }
      const refusal = NOT_TRANSFERRED[result.kind];
      if (refusal !== undefined) throw new ProblemError(...refusal);
      res.json(await changed(reads, orderId, result as NotChanged, ', neither pending nor paid.'));
    },
  }),
  refundOrder: order('post /orders/{orderId}/refund', 'admin', {
    summary: 'Cancel a pending order, or refund a paid one',
    description:
      'A paid order ends as `refund-due`, and a task `refund` pays back what was paid. Its points are reversed. With `"returnUnits": false` the units leave the stock.',
    body: s.refundSchema,
    mayOmitBody: true,
    answers: { 200: json(a.orderSchema, 'The order, cancelled or to be refunded') },
    problems: ['invalid-transition'],
    async handle({ orderId, body, caller: { actor }, key, res }, { reads, lifecycle }) {
      const result = await lifecycle.refund(orderId, { ...body, actor }, key);
      res.json(await changed(reads, orderId, result, ': there is nothing to cancel or refund.'));
    },
  }),
};

/** @throws ProblemError when there is none that the caller may see */
async function ownOrder(reads: Reads, orderId: string, { customer }: Caller): Promise<Order> {
  const order = await reads.orders.get(orderId);
  if (order === null || (customer !== null && order.userId !== customer))
    throw await missing(reads, orderId, customer);
  return order;
}

/** The problem for an order that is not in Postgres. */
async function missing(
  { uncommitted }: Reads,
  orderId: string,
  customer: string | null,
): Promise<ProblemError> {
  if (await uncommitted.has(orderId, customer)) return notCommitted(`Order ${orderId}`);
  return new ProblemError('unknown-order', `Order ${orderId} does not exist.`);
}

/** The order that was changed. @param why the rest of a sentence about its status, which does not allow the change */
async function changed(
  reads: Reads,
  orderId: string,
  result:
    | NotChanged
    | Extract<CloseResult, { kind: 'unknown' }>
    | { readonly kind: string; readonly order: Order },
  why: string,
): Promise<Order> {
  if (!('order' in result))
    throw result.kind === 'unknown' ? outcomeUnread() : await missing(reads, orderId, null);
  if (result.kind !== 'invalid-transition') return result.order;
  const { status } = result.order;
  throw new ProblemError('invalid-transition', `Order ${orderId} is ${status}${why}`, {
    orderStatus: status,
  });
}

export function notCommitted(what: string): ProblemError {
  const detail = `${what} is accepted but not committed yet. Nothing was changed. Retry after the delay in Retry-After.`;
  return busy('order-not-committed', detail);
}
