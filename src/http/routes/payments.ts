/** Payments: reported by the payment provider. */
import type { RequestHandler, Response } from 'express';
import * as z from 'zod';
import { limits } from '../../config/limits.ts';
import type { PaymentResult } from '../../orders/payments.ts';
import * as a from '../answer-schemas.ts';
import { json, nextPage } from '../openapi-responses.ts';
import { busy, outcomeUnread, type ProblemError } from '../problems.ts';
import { jsonBody } from '../requests.ts';
import { linkNext, type RouteContext, tagged } from '../route.ts';
import * as s from '../schemas.ts';
import { signedBy } from '../webhook-signature.ts';
import { notCommitted } from './orders.ts';

const payment = tagged('Orders');

export const paymentRoutes = {
  reportPayment: payment('post /payments/notifications', 'admin', {
    summary: 'Report a payment',
    description:
      'With PAYMENT_WEBHOOK_SECRETS it needs a signature as Standard Webhooks 1.0 defines it; otherwise it is administrative. Safe to repeat. An expired order gets its units again if they are left; otherwise it ends as `refund-due`. A payment that changes no order is recorded: see GET /payments/unmatched.',
    header: s.signatureSchema,
    body: s.notificationSchema,
    answers: { 200: json(a.paymentAnswerSchema, 'The order after the payment, or why it changed no order') },
    problems: ['invalid-signature'],
    isServed: ({ admin, paymentSecrets }) => admin !== null || paymentSecrets.length > 0,
    guards: providerOnly,
    async handle({ body, res }, { payments }) {
      const provider: string | null = res.locals.provider ?? null;
      const result = await payments.notify({ ...body, provider, actor: actorOf(res) });
      if (result.kind === 'unknown') throw outcomeUnread();
      if (result.kind === 'busy') throw paymentBusy(body.orderId, result);
      res.json(result.kind === 'done' ? result.order : { result: result.kind, reason: result.reason });
    },
  }),
  listUnmatchedPayments: payment('get /payments/unmatched', 'admin', {
    summary: 'Payments that changed no order, newest first',
    query: s.unmatchedQuerySchema,
    answers: { 200: json(z.array(a.unmatchedPaymentSchema), 'Payments', nextPage('/payments/unmatched')) },
    async handle({ query, res }, { reads }) {
      const page = await reads.unmatched.list(query.limit, query.before ?? null);
      linkNext(res, '/payments/unmatched', page, query, ({ id }) => id);
      res.json(page);
    },
  }),
};

/** Authorizes a payment report and parses its body: it needs a signature or, without secrets, an administrator. */
function providerOnly({ paymentSecrets, admin, service }: RouteContext): RequestHandler[] {
  const json = jsonBody(limits.bodyBytes);
  if (paymentSecrets.length === 0) return [admin!.authorize, ...json];
  const { paymentNotifications } = service.instruments;
  return [...json, signedBy(paymentSecrets, (result) => paymentNotifications.inc({ result }))];
}

/** Who reported a payment: a provider, or an administrator. */
const actorOf = ({ locals }: Response): string =>
  locals.admin === undefined ? `payments:${locals.provider ?? ''}` : `admin:${locals.admin}`;

function paymentBusy(orderId: string, { reason }: Extract<PaymentResult, { kind: 'busy' }>): ProblemError {
  if (reason === 'order-not-committed') return notCommitted(`Order ${orderId}`);
  return busy(reason, 'Nothing was changed. Repeat the notification after the delay in Retry-After.');
}
