/** Schemas of requests and responses: they validate requests and describe the API in /openapi.json. */
import { z } from 'zod';
import 'zod-openapi';
import { limits } from '../config/limits.ts';
import { saleStates } from '../domain/sale.ts';
import { taskStates } from '../domain/task.ts';
import { unmatchedReasons } from '../domain/unmatched-payment.ts';
import { LOCK_CAPABILITIES } from '../locks/lock.ts';

const units = z.int().max(limits.maxUnits);

/** Text that Postgres stores unchanged: no NUL or other control characters, no unpaired surrogates. */
const text = (maxLength: number) =>
  z
    .string()
    .max(maxLength)
    .regex(/^[^\p{Cc}\p{Cs}]*$/u, 'must not contain control characters or unpaired surrogates');

/** For the document: a pattern that other languages read too; JSON Schema advises against `\p`. */
const portable = { override: { pattern: String.raw`^[^\x00-\x1f\x7f-\x9f]*$` } };

/** An integer that a double represents exactly; any other would be confused with its neighbor. */
const exactId = z
  .string()
  .regex(/^[1-9]\d{0,15}$/, 'must be a positive integer')
  .transform(Number)
  .refine(Number.isSafeInteger, `must be a positive integer up to ${Number.MAX_SAFE_INTEGER}`);

/** For the document: the integer that the text of a parameter is, and not the pattern of the text. */
const integerTo = (maximum: number, more: { readonly default?: number } = {}) => ({
  override: ({ jsonSchema }: { readonly jsonSchema: { pattern?: string } }) => {
    delete jsonSchema.pattern;
    Object.assign(jsonSchema, { type: 'integer', minimum: 1, maximum, ...more });
  },
});

export const saleIdSchema = exactId.meta({
  ...integerTo(Number.MAX_SAFE_INTEGER),
  description: 'Id of the sale',
});

export const userIdSchema = z
  .string()
  .regex(
    new RegExp(`^[A-Za-z0-9._:-]{1,${limits.userIdLength}}$`),
    `must be 1 to ${limits.userIdLength} characters of A-Z a-z 0-9 . _ : -`,
  )
  .meta({ example: 'user-1' });

/** UUIDs are case-insensitive (RFC 9562): capitals become the form that is stored. */
export const orderIdSchema = z.uuid().toLowerCase().meta({ description: 'A UUIDv7' });

export const purchaseSchema = z.strictObject({ userId: userIdSchema }).meta({ id: 'Purchase' });

/** An instant whose UTC year has four digits: later ones sort wrongly as text, and Postgres rejects earlier ones. */
const instant = z.iso
  .datetime({ offset: true })
  .transform((text) => new Date(text))
  .refine(
    (date) => date.getUTCFullYear() >= 1 && date.getUTCFullYear() <= 9999,
    'must be in the years 1 to 9999',
  )
  .transform((date) => date.toISOString());

const amount = z.int().meta({ description: 'In the smallest unit of CURRENCY, such as cents or yen' });

export const newSaleSchema = z
  .strictObject({
    name: text(limits.saleNameLength).trim().min(1).meta(portable),
    stock: units.min(0),
    priceCents: amount.min(0).max(limits.maxPriceCents),
    startsAt: instant.nullish(),
    endsAt: instant.nullish(),
    spreadS: z
      .int()
      .min(0)
      .max(limits.tickets.maxSpreadS)
      .optional()
      .meta({ description: 'Length of the lottery at the start, in seconds, for customers with tickets' }),
  })
  .refine((sale) => !sale.startsAt || !sale.endsAt || sale.startsAt < sale.endsAt, {
    path: ['endsAt'],
    error: 'must be later than startsAt',
  })
  .meta({ id: 'NewSale' });

export const ticketRequestSchema = z
  .strictObject({
    proof: z
      .strictObject({ challenge: z.string().max(200), nonce: z.string().max(64) })
      .optional()
      .meta({
        description: 'With BOT_CHECK=proof-of-work: the answer to the challenge of a 403 `proof-required`',
      }),
  })
  .meta({ id: 'TicketRequest' });

export const restockSchema = z
  .strictObject({ units: units.min(-limits.maxUnits).refine((n) => n !== 0, 'must not be 0') })
  .meta({ id: 'Restock' });

const source = text(limits.sourceLength).min(1).meta(portable);

/** Source types of the entries that the service itself adds: an award that used one would stop a later change of its order. */
const isReserved = (sourceType: string): boolean => /^order(-|$)/.test(sourceType);

export const awardSchema = z
  .strictObject({
    sourceType: source.refine((type) => !isReserved(type), 'must not be order or begin with order-'),
    sourceId: source,
    points: z.int().min(1).max(limits.maxPoints),
  })
  .meta({ id: 'Award' });

export const notificationSchema = z
  .strictObject({
    notificationId: source,
    orderId: orderIdSchema,
    amountCents: amount.min(0).max(limits.maxPriceCents),
  })
  .meta({ id: 'PaymentNotification' });

export const userQuerySchema = z.object({
  userId: userIdSchema
    .optional()
    .meta({ description: 'Required with AUTH=none; with AUTH=jwt the caller, also as `me`' }),
});

export const taskIdSchema = exactId.meta({
  ...integerTo(Number.MAX_SAFE_INTEGER),
  description: 'Id of the task',
});

export const taskStateSchema = z.enum(taskStates);

const listLimit = z
  .string()
  .regex(/^[1-9]\d{0,3}$/, `must be an integer from 1 to ${limits.listLength}`)
  .transform(Number)
  .refine((n) => n <= limits.listLength, `must be an integer from 1 to ${limits.listLength}`);

/** Headers; see webhook-signature.ts. */
export const signatureSchema = z.object({
  'webhook-id': z.string().optional().meta({ description: 'Id of the message' }),
  'webhook-timestamp': z.string().optional().meta({ description: 'Seconds since 1970' }),
  'webhook-signature': z.string().optional().meta({
    description: 'One or more signatures, separated by spaces',
    example: 'v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=',
  }),
});

export const pageQuerySchema = z.strictObject({
  limit: listLimit.optional().meta(integerTo(limits.listLength, { default: limits.pageLength })),
  before: exactId
    .refine((id) => id <= limits.maxSaleId, 'must be the id of a sale')
    .optional()
    .meta({
      ...integerTo(limits.maxSaleId),
      description: 'Only sales with a smaller id',
    }),
  search: text(limits.saleNameLength)
    .trim()
    .min(1)
    .optional()
    .meta({
      ...portable,
      description: 'Only sales whose name has this text, in any case',
    }),
  state: z.enum(saleStates).optional().meta({ description: 'Only sales in this state' }),
});

export const unmatchedQuerySchema = z.strictObject({
  limit: listLimit.optional().meta(integerTo(limits.listLength, { default: limits.pageLength })),
  before: exactId
    .optional()
    .meta({ ...integerTo(Number.MAX_SAFE_INTEGER), description: 'Only payments with a smaller id' }),
});

export const taskQuerySchema = z.strictObject({
  state: taskStateSchema.optional(),
  limit: listLimit.optional().meta(integerTo(limits.listLength, { default: 100 })),
});

export const dateTime = z.string().meta({ format: 'date-time' });

const unmatchedReason = z
  .enum(unmatchedReasons)
  .meta({ description: '`conflict`: another payment has the same id' });

const unmatchedAnswerSchema = z
  .object({ result: z.literal('unmatched'), reason: unmatchedReason })
  .meta({ id: 'UnmatchedAnswer' });

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
    sold: z.int().meta({ description: 'Active orders; exceeds the stock after an oversell by `unsafe`' }),
    remaining: z.int().meta({ description: 'stock − sold; negative after an oversell' }),
    startsAt: dateTime.nullable(),
    endsAt: dateTime.nullable(),
    spreadS: z.int().optional().meta({ description: 'Only of a sale with a lottery' }),
  })
  .meta({ id: 'Sale' });

export const saleEventSchema = z
  .object({
    now: z.int().meta({ description: 'The clock of Postgres, milliseconds since 1970' }),
    state: z.enum(['scheduled', 'open', 'sold-out', 'ended']),
    stock: z.int(),
    sold: z.int(),
    remaining: z.int(),
    startsAt: dateTime.nullable(),
    endsAt: dateTime.nullable(),
  })
  .meta({ id: 'SaleEvent', description: 'The data of one event' });

export const ticketSchema = z
  .object({
    ticket: z.string().meta({ description: 'Sent with a purchase as Authorization: Bearer' }),
    notBefore: dateTime.meta({ description: "When the customer's turn begins" }),
    expiresAt: dateTime,
  })
  .meta({ id: 'Ticket' });

export const orderStatusSchema = z.enum(['pending', 'paid', 'cancelled', 'expired', 'refund-due']);

export const placedOrderSchema = z
  .object({
    orderId: orderIdSchema,
    saleId: z.int(),
    userId: userIdSchema,
    status: orderStatusSchema,
    replayed: z.boolean().meta({ description: 'True when the order already existed' }),
  })
  .meta({ id: 'PlacedOrder' });

export const orderSchema = z
  .object({
    orderId: orderIdSchema,
    saleId: z.int(),
    userId: userIdSchema,
    status: orderStatusSchema,
    priceCents: amount,
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
