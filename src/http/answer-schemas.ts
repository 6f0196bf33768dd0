/** Schemas of responses: they describe the API in /openapi.json. */
import * as z from 'zod';
import 'zod-openapi';
import { orderStatuses } from '../domain/order.ts';
import { saleStates } from '../domain/sale.ts';
import { unmatchedReasons } from '../domain/unmatched-payment.ts';
import { LOCK_CAPABILITIES } from '../locks/lock.ts';
import { amount, orderIdSchema, taskStateSchema, userIdSchema } from './schemas.ts';

export const dateTime = z.string().meta({ format: 'date-time' });

const unmatchedReason = z
  .enum(unmatchedReasons)
  .meta({ description: '`conflict`: another payment has the same id' });

const unmatchedAnswerSchema = z
  .object({ result: z.literal('unmatched'), reason: unmatchedReason })
  .meta({ id: 'UnmatchedAnswer' });

export const waitlistEntrySchema = z
  .object({ saleId: z.int(), userId: z.string(), joinedAt: dateTime })
  .meta({ id: 'WaitlistEntry' });

export const saleRefundSchema = z
  .object({
    saleId: z.int(),
    returnUnits: z.boolean(),
    orders: z.int().min(0).meta({ description: 'Orders that were active when it was requested' }),
    remaining: z.int().min(0).meta({ description: 'Those of them that still are' }),
    requestedAt: dateTime,
    finishedAt: dateTime.nullable(),
  })
  .meta({ id: 'SaleRefund' });

export const unmatchedPaymentSchema = z
  .object({
    id: z.int(),
    notificationId: z.string().meta({ description: 'With the name of the provider, if its secret has one' }),
    orderId: orderIdSchema,
    amountCents: amount,
    reason: unmatchedReason,
    actor: z.string().meta({ description: 'Who reported it first' }),
    times: z.int().meta({ description: 'How often it was reported' }),
    receivedAt: dateTime,
    repeatedAt: dateTime,
  })
  .meta({ id: 'UnmatchedPayment' });

export const saleSchema = z
  .object({
    id: z.int(),
    name: z.string(),
    priceCents: amount,
    stock: z.int(),
    sold: z
      .int()
      .meta({ description: 'Units of active orders; exceeds the stock after an oversell by `unsafe`' }),
    remaining: z.int().meta({ description: 'stock − sold; negative after an oversell' }),
    startsAt: dateTime.nullable(),
    endsAt: dateTime.nullable(),
    maxPerOrder: z.int().meta({ description: 'The most units of an order' }),
    paused: z.boolean().meta({ description: 'An administrator has paused it: it does not sell' }),
    paymentWindowS: z
      .int()
      .nullable()
      .meta({ description: 'Seconds for which an order may stay unpaid; null: PAYMENT_WINDOW_S' }),
    spreadS: z.int().optional().meta({ description: 'Only of a sale with a lottery' }),
  })
  .meta({ id: 'Sale' });

export const saleEventSchema = z
  .object({
    now: z.int().meta({ description: 'The clock of Postgres, milliseconds since 1970' }),
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
  })
  .meta({ id: 'SaleEvent', description: 'The data of one event' });

export const ticketSchema = z
  .object({
    ticket: z.string().meta({ description: 'Sent with a purchase as Authorization: Bearer' }),
    notBefore: dateTime.meta({ description: "When the customer's turn begins" }),
    expiresAt: dateTime,
  })
  .meta({ id: 'Ticket' });

export const orderStatusSchema = z.enum(orderStatuses);

export const placedOrderSchema = z
  .object({
    orderId: orderIdSchema,
    saleId: z.int(),
    userId: userIdSchema,
    status: orderStatusSchema,
    quantity: z.int().meta({ description: 'Units; of a repeat those of the existing order' }),
    replayed: z.boolean().meta({ description: 'True when the order already existed' }),
  })
  .meta({ id: 'PlacedOrder' });

export const orderSchema = z
  .object({
    orderId: orderIdSchema,
    saleId: z.int(),
    userId: userIdSchema,
    status: orderStatusSchema,
    quantity: z.int(),
    priceCents: amount.meta({ description: 'Of one unit' }),
    amountCents: amount.meta({ description: 'To pay: price × quantity' }),
    createdAt: dateTime,
    expiresAt: dateTime,
    paidAt: dateTime.nullable(),
    closedAt: dateTime.nullable(),
  })
  .meta({ id: 'Order' });

/** To a payment notification. */
export const paymentAnswerSchema = z.union([orderSchema, unmatchedAnswerSchema]);

export const taskSchema = z
  .object({
    id: z.int(),
    kind: z.string().meta({ example: 'ship' }),
    key: z.string().nullable().meta({ description: 'Sent as Idempotency-Key' }),
    payload: z.unknown(),
    state: taskStateSchema,
    attempts: z.int(),
    runAt: dateTime.meta({ description: 'Earliest time of the next attempt' }),
    lastError: z.string().nullable(),
    createdAt: dateTime,
    updatedAt: dateTime,
  })
  .meta({ id: 'Task' });

export const pointsEntrySchema = z
  .object({
    id: z.int(),
    sourceType: z.string(),
    sourceId: z.string(),
    points: z.int(),
    createdAt: dateTime,
  })
  .meta({ id: 'PointsEntry' });

export const pointsSchema = z
  .object({ balance: z.int(), entries: z.array(pointsEntrySchema) })
  .meta({ id: 'Points' });

export const strategySchema = z
  .object({
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
  })
  .meta({ id: 'Strategy' });

export const lockSchema = z
  .object({
    name: z.string(),
    summary: z.string(),
    flaw: z.string().nullable(),
    needs: z.string().meta({ description: 'The variable that names its server' }),
    capabilities: z.array(z.enum(LOCK_CAPABILITIES)),
  })
  .meta({ id: 'Lock' });

export const strategiesSchema = z
  .object({
    active: z.string(),
    lock: z.string(),
    strategies: z.array(strategySchema),
    locks: z.array(lockSchema),
  })
  .meta({ id: 'Strategies' });

export const auditSchema = z
  .object({
    saleId: z.int(),
    agrees: z.boolean(),
    differences: z
      .array(z.string())
      .meta({ description: 'One sentence each, an oversell first; empty when the stores agree' }),
    isMirrored: z.boolean().meta({ description: 'Whether Redis has the sale and was compared' }),
    auditedAt: dateTime,
  })
  .meta({ id: 'Audit' });

export const livenessSchema = z.object({ status: z.literal('ok') }).meta({ id: 'Liveness' });

export const readinessSchema = z
  .object({
    status: z
      .enum(['ok', 'degraded', 'unavailable'])
      .meta({ description: 'degraded: both stores answer, but some background work fails' }),
    stores: z
      .record(z.string(), z.string())
      .meta({ description: 'ok, or the error of the store, whose text only an administrator is sent' }),
    degraded: z
      .array(
        z.object({
          what: z.string().meta({ example: 'expiry' }),
          detail: z.string().meta({ example: '1 failing; sale 7: the error' }),
        }),
      )
      .optional(),
  })
  .meta({ id: 'Readiness' });
