/** Schemas of responses: they describe the API in /openapi.json. */
import * as z from 'zod';
import 'zod-openapi';
import { orderStatuses } from '../domain/order.ts';
import { saleStates } from '../domain/sale.ts';
import { unmatchedReasons } from '../domain/unmatched-payment.ts';
import { LOCK_CAPABILITIES } from '../locks/lock.ts';
import { amount, orderIdSchema, taskStateSchema, userIdSchema } from './schemas.ts';

/** An object that the document names. */
const component = <S extends z.ZodRawShape>(id: string, shape: S) => z.object(shape).meta({ id });

export const dateTime = z.string().meta({ format: 'date-time' });

const unmatchedReason = z.enum(unmatchedReasons).describe('`conflict`: another payment has the same id');

const unmatchedAnswerSchema = component('UnmatchedAnswer', {
  result: z.literal('unmatched'),
  reason: unmatchedReason,
});

export const waitlistEntrySchema = component('WaitlistEntry', {
  saleId: z.int(),
  userId: z.string(),
  quantity: z.int().describe('Units that the customer waits for, all or none'),
  joinedAt: dateTime,
  place: z
    .int()
    .nullable()
    .describe(
      '1 is the first; 1,001: after the first thousand, who are counted; null: the customer was named',
    ),
  namedAt: dateTime.nullable().describe('When as many units were free'),
  orderId: orderIdSchema
    .nullable()
    .describe("The customer's active order: with `waitlist: hold` the list places it"),
});

export const saleRefundSchema = component('SaleRefund', {
  saleId: z.int(),
  returnUnits: z.boolean(),
  orders: z.int().min(0).describe('Orders that were active when it was requested'),
  remaining: z.int().min(0).describe('Those of them that still are'),
  requestedAt: dateTime,
  finishedAt: dateTime.nullable(),
});

export const refundPreviewSchema = component('RefundPreview', {
  unpaid: z.int().min(0).describe('Orders that it would cancel'),
  paid: z.int().min(0).describe('Orders that it would refund'),
  paidCents: z.int().min(0).describe('What their customers have paid'),
  last: saleRefundSchema.nullable().describe('Null: there was none'),
});

export const unmatchedPaymentSchema = component('UnmatchedPayment', {
  id: z.int(),
  notificationId: z.string().describe('With the name of the provider, if its secret has one'),
  orderId: orderIdSchema,
  amountCents: amount,
  reason: unmatchedReason,
  actor: z.string().describe('Who reported it first'),
  times: z.int().describe('How often it was reported'),
  receivedAt: dateTime,
  repeatedAt: dateTime,
});

export const saleSchema = component('Sale', {
  id: z.int(),
  name: z.string(),
  description: z.string().nullable(),
  imageUrl: z.string().nullable(),
  currency: z.string().describe('ISO 4217'),
  priceCents: amount,
  stock: z.int(),
  sold: z.int().describe('Units of active orders; exceeds the stock after an oversell by `unsafe`'),
  remaining: z.int().describe('stock − sold; negative after an oversell'),
  startsAt: dateTime.nullable(),
  endsAt: dateTime.nullable(),
  maxPerOrder: z.int().describe('The most units of an order'),
  paused: z.boolean().describe('An administrator has paused it: it does not sell'),
  paymentWindowS: z
    .int()
    .nullable()
    .describe('Seconds for which an order may stay unpaid; null: PAYMENT_WINDOW_S'),
  waitlist: z.enum(['notify', 'hold']).describe('What a returned unit does for the first waiting customer'),
  waitlistHoldS: z.int().nullable().describe('Seconds for which an order of the waitlist may stay unpaid'),
  spreadS: z.int().optional().describe('Only of a sale with a lottery'),
  limitGroup: z.string().optional().describe('Only of a sale that limits the units of a customer'),
  maxPerCustomer: z
    .int()
    .optional()
    .describe('The most units of a customer in active orders of all sales with this limitGroup'),
});

export const saleGroupSchema = component('SaleGroup', {
  saleId: z.int(),
  name: z.string(),
  opensAt: dateTime,
  codes: z
    .object({
      count: z.int(),
      uses: z.int().describe('Of all codes'),
      taken: z.int().describe('Those that customers have'),
    })
    .nullable()
    .describe('Null: a group of tokens'),
});

export const saleEventSchema = z
  .object({
    now: z.int().describe('The clock of Postgres, milliseconds since 1970'),
    state: z.enum(saleStates),
    stock: z.int(),
    sold: z.int(),
    remaining: z.int(),
    startsAt: dateTime.nullable(),
    endsAt: dateTime.nullable(),
    paused: z.boolean(),
    maxPerOrder: z.int(),
    name: z.string(),
    priceCents: z.int(),
    currency: z.string(),
  })
  .meta({ id: 'SaleEvent', description: 'The data of one event' });

export const ticketSchema = component('Ticket', {
  ticket: z.string().describe('Sent with a purchase as Authorization: Bearer'),
  notBefore: dateTime.describe("When the customer's turn begins"),
  expiresAt: dateTime,
});

export const orderStatusSchema = z.enum(orderStatuses);

export const placedOrderSchema = component('PlacedOrder', {
  orderId: orderIdSchema,
  saleId: z.int(),
  userId: userIdSchema,
  status: orderStatusSchema,
  quantity: z.int().describe('Units; of a repeat those of the existing order'),
  replayed: z.boolean().describe('True when the order already existed'),
});

export const orderSchema = component('Order', {
  orderId: orderIdSchema,
  saleId: z.int(),
  userId: userIdSchema,
  status: orderStatusSchema,
  quantity: z.int(),
  priceCents: amount.describe('Of one unit'),
  amountCents: amount.describe('To pay: price × quantity'),
  createdAt: dateTime,
  expiresAt: dateTime,
  paidAt: dateTime.nullable(),
  closedAt: dateTime.nullable(),
});

/** To a payment notification. */
export const paymentAnswerSchema = z.union([orderSchema, unmatchedAnswerSchema]);

export const taskSchema = component('Task', {
  id: z.int(),
  kind: z.string().meta({ example: 'ship' }),
  key: z.string().nullable().describe('Sent as Idempotency-Key'),
  payload: z.unknown(),
  state: taskStateSchema,
  attempts: z.int(),
  runAt: dateTime.describe('Earliest time of the next attempt'),
  lastError: z.string().nullable(),
  createdAt: dateTime,
  updatedAt: dateTime,
});

export const pointsEntrySchema = component('PointsEntry', {
  id: z.int(),
  sourceType: z.string(),
  sourceId: z.string(),
  points: z.int(),
  createdAt: dateTime,
});

export const pointsSchema = component('Points', { balance: z.int(), entries: z.array(pointsEntrySchema) });

export const strategySchema = component('Strategy', {
  name: z.string(),
  summary: z.string(),
  store: z.enum(['redis', 'postgres']),
  usesLock: z.boolean(),
  roundTrips: z.int(),
  guarantees: z.object({
    neverOversells: z.boolean(),
    neverLoses: z.boolean(),
    onePerCustomer: z.boolean(),
    neverStrands: z.boolean(),
    pointsOnce: z.boolean(),
    survivesRedisLoss: z.boolean(),
  }),
});

export const lockSchema = component('Lock', {
  name: z.string(),
  summary: z.string(),
  flaw: z.string().nullable(),
  needs: z.string().describe('The variable that names its server'),
  capabilities: z.array(z.enum(LOCK_CAPABILITIES)),
});

export const strategiesSchema = component('Strategies', {
  active: z.string(),
  lock: z.string(),
  strategies: z.array(strategySchema),
  locks: z.array(lockSchema),
});

export const auditSchema = component('Audit', {
  saleId: z.int(),
  agrees: z.boolean(),
  differences: z
    .array(z.string())
    .describe('One sentence each, an oversell first; empty when the stores agree'),
  isMirrored: z.boolean().describe('Whether Redis has the sale and was compared'),
  auditedAt: dateTime,
});

export const auditedActSchema = component('AuditedAct', {
  at: dateTime,
  actor: z.string().meta({ example: 'admin:ann' }),
  action: z
    .string()
    .describe('A request, such as `PATCH /sales/7`, or what became of an order, such as `order.cancelled`'),
  subject: z.string().meta({ example: 'order 0190c2f4-0000-7000-8000-000000000000' }),
  details: z.looseObject({}).describe('The body of the request, or facts about the order'),
  status: z
    .int()
    .nullable()
    .describe('How the request was answered; null: it is no request, or has no answer yet'),
});

export const livenessSchema = component('Liveness', { status: z.literal('ok') });

export const readinessSchema = component('Readiness', {
  status: z
    .enum(['ok', 'degraded', 'unavailable', 'stopping'])
    .describe(
      'degraded: both stores answer, but some background work fails; stopping: send requests to another process',
    ),
  stores: z
    .record(z.string(), z.string())
    .describe('ok, or the error of the store, whose text only an administrator is sent'),
  degraded: z
    .array(
      z.object({
        what: z.string().meta({ example: 'expiry' }),
        detail: z.string().meta({ example: '1 failing; sale 7: the error' }),
      }),
    )
    .optional(),
});
