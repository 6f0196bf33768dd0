/** Schemas of requests: they validate them, and describe the API in /openapi.json. */
import * as z from 'zod';
import 'zod-openapi';
import { limits } from '../config/limits.ts';
import { currencyCode, privateUrl } from '../config/values.ts';
import { orderStatuses } from '../domain/order.ts';
import { saleStates } from '../domain/sale.ts';
import { taskStates } from '../domain/task.ts';

const units = z.int().max(limits.maxUnits);

/** A body that the document names. */
const component = <S extends z.ZodRawShape>(id: string, shape: S) => z.strictObject(shape).meta({ id });

/** Text that Postgres stores unchanged: no NUL or other control characters, no unpaired surrogates. */
const text = (maxLength: number) =>
  z
    .string()
    .max(maxLength)
    .regex(/^[^\p{Cc}\p{Cs}]*$/u, 'must not contain control characters or unpaired surrogates');

/** For the document: a pattern that other languages read too; JSON Schema advises against `\p`. */
const portable = { override: { pattern: String.raw`^[^\x00-\x1f\x7f-\x9f]*$` } };

/** Several lines of it. */
const lines = (maxLength: number) =>
  z
    .string()
    .max(maxLength)
    .regex(/^(?:[^\p{Cc}\p{Cs}]|[\t\n])*$/u, 'must contain no control characters but tabs and line feeds')
    .meta({ override: { pattern: String.raw`^[^\x00-\x08\x0b-\x1f\x7f-\x9f]*$` } });

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

const idOf = (what: string) =>
  exactId.meta({ ...integerTo(Number.MAX_SAFE_INTEGER), description: `Id of the ${what}` });
export const saleIdSchema = idOf('sale');
export const taskIdSchema = idOf('task');

/** As a pattern. */
export const USER_ID = `[A-Za-z0-9._:-]{1,${limits.userIdLength}}`;

export const userIdSchema = z
  .string()
  .regex(new RegExp(`^${USER_ID}$`), `must be 1 to ${limits.userIdLength} characters of A-Z a-z 0-9 . _ : -`)
  .meta({ example: 'user-1' });

/** UUIDs are case-insensitive (RFC 9562): capitals become the form that is stored. */
export const orderIdSchema = z.uuid().toLowerCase().describe('A UUIDv7');

const quantity = z
  .int()
  .min(1)
  .max(limits.maxPerOrder)
  .default(1)
  .describe('Units, all or none; at most `maxPerOrder` of the sale');

const code = z
  .string()
  .regex(new RegExp(`^${USER_ID}$`), `must be 1 to ${limits.userIdLength} characters of A-Z a-z 0-9 . _ : -`);
const ofGroup = code.optional().describe('Of a group of the sale that may buy earlier');

export const purchaseSchema = component('Purchase', { userId: userIdSchema, quantity, code: ofGroup });

/** With a ticket, which names the customer. */
export const ticketPurchaseSchema = z.strictObject({ userId: z.unknown().optional(), quantity });

/** An instant whose UTC year has four digits: later ones sort wrongly as text, and Postgres rejects earlier ones. */
const instant = z.iso
  .datetime({ offset: true })
  .transform((text) => new Date(text))
  .refine(
    (date) => date.getUTCFullYear() >= 1 && date.getUTCFullYear() <= 9999,
    'must be in the years 1 to 9999',
  )
  .transform((date) => date.toISOString());

export const amount = z.int().describe('In the smallest unit of the currency, such as cents or yen');

/** As the browser has it. Its host becomes part of the page's policy, so it has no character with a meaning there, as `*` and `;` have. */
const imageUrl = privateUrl
  .transform((text) => new URL(text))
  .refine(({ username, password }) => username + password === '', 'must have no user name and password')
  .refine(({ hostname }) => /^([a-z\d._-]+|\[[\da-f:.]+\])$/.test(hostname), 'must have a plain host name')
  .transform(({ href }) => href)
  .refine(
    ({ length }) => length <= limits.imageUrlLength,
    `must have at most ${limits.imageUrlLength} characters`,
  )
  .meta({ format: 'uri', example: 'https://cdn.example.com/shoe.webp' });

/** What an administrator may change later. */
const terms = z.strictObject({
  name: text(limits.saleNameLength).trim().min(1).meta(portable),
  description: lines(limits.descriptionLength).trim().min(1).nullable().describe('Plain text'),
  imageUrl: imageUrl
    .nullable()
    .describe('A picture for the pages: `https:`, or `http:` on loopback. Browsers load it from there'),
  currency: currencyCode
    .meta({ override: { pattern: '^[A-Z]{3}$' }, example: 'EUR' })
    .describe('ISO 4217. A sale with orders keeps it'),
  priceCents: amount.min(0).max(limits.maxPriceCents),
  startsAt: instant.nullable(),
  endsAt: instant.nullable(),
  maxPerOrder: z.int().min(1).max(limits.maxPerOrder).describe('The most units of an order'),
  paymentWindowS: z
    .int()
    .min(1)
    .max(limits.maxPaymentWindowS)
    .nullable()
    .describe('Seconds for which an order may stay unpaid; null: PAYMENT_WINDOW_S'),
  limitGroup: userIdSchema
    .nullable()
    .meta({ example: 'console-2026' })
    .describe('With maxPerCustomer: names the sales over which a customer is limited; null: no limit'),
  maxPerCustomer: units
    .min(1)
    .nullable()
    .describe('The most units of a customer in active orders of all sales with this limitGroup'),
  waitlist: z
    .enum(['notify', 'hold'])
    .describe('What a returned unit does for the first waiting customer: `hold` places the order'),
  waitlistHoldS: z
    .int()
    .min(1)
    .max(limits.maxPaymentWindowS)
    .describe('Seconds for which such an order may stay unpaid; left out: as other orders'),
});

interface Terms {
  readonly startsAt?: string | null | undefined;
  readonly endsAt?: string | null | undefined;
  readonly priceCents: number;
  readonly maxPerOrder: number;
  readonly limitGroup: string | null;
  readonly maxPerCustomer: number | null;
}
const isOrdered = ({ startsAt, endsAt }: Pick<Terms, 'startsAt' | 'endsAt'>) =>
  !startsAt || !endsAt || startsAt < endsAt;
const WINDOW = { path: ['endsAt'], error: 'must be later than startsAt' };
const AMOUNT = {
  path: ['maxPerOrder'],
  error: `times priceCents must be at most ${limits.maxAmountCents}`,
};

export const newSaleSchema = z
  .strictObject({
    ...terms.shape,
    stock: units.min(0),
    description: terms.shape.description.optional(),
    imageUrl: terms.shape.imageUrl.optional(),
    currency: terms.shape.currency.optional().describe('ISO 4217; left out: CURRENCY'),
    startsAt: terms.shape.startsAt.default(null),
    endsAt: terms.shape.endsAt.default(null),
    maxPerOrder: terms.shape.maxPerOrder.default(1),
    paymentWindowS: terms.shape.paymentWindowS.default(null),
    limitGroup: terms.shape.limitGroup.default(null),
    maxPerCustomer: terms.shape.maxPerCustomer.default(null),
    waitlist: terms.shape.waitlist.default('notify'),
    waitlistHoldS: terms.shape.waitlistHoldS.optional(),
    spreadS: z
      .int()
      .min(0)
      .max(limits.tickets.maxSpreadS)
      .default(0)
      .describe('Length of the lottery at the start, in seconds, for customers with tickets'),
  })
  .refine(isOrdered, WINDOW)
  .refine((sale: Terms) => sale.priceCents * sale.maxPerOrder <= limits.maxAmountCents, AMOUNT)
  .refine((sale: Terms) => sale.limitGroup !== null || sale.maxPerCustomer === null, {
    path: ['limitGroup'],
    error: 'is required with maxPerCustomer',
  })
  .refine((sale: Terms) => sale.limitGroup === null || sale.maxPerCustomer !== null, {
    path: ['maxPerCustomer'],
    error: 'is required with limitGroup',
  })
  .meta({ id: 'NewSale' });

export const saleChangesSchema = terms
  .extend({ paused: z.boolean().describe('A paused sale does not sell') })
  .partial()
  .refine(isOrdered, WINDOW)
  .refine((changes) => Object.keys(changes).length > 0, 'must change something')
  .meta({ id: 'SaleChanges' });

export const groupSchema = component('NewGroup', {
  name: code.meta({ example: 'members' }),
  opensAt: instant.describe('Before `startsAt` of the sale'),
  codes: z
    .array(
      z.strictObject(
        { code, uses: units.min(1).describe('By how many customers') },
        {
          error: ({ code }) =>
            code === 'invalid_type'
              ? 'must be an object such as {"code":"early-7f3a","uses":100}'
              : undefined,
        },
      ),
    )
    .min(1)
    .refine(
      (codes) => new Set(codes.map((one) => one.code)).size === codes.length,
      'must not have a code twice',
    )
    .optional()
    .describe('Missing, with AUTH=jwt: the customers whose token has the name in its claim `groups`'),
});

export const ticketRequestSchema = component('TicketRequest', {
  code: ofGroup,
  proof: z
    .strictObject({ challenge: z.string().max(200), nonce: z.string().max(64) })
    .optional()
    .describe('With BOT_CHECK=proof-of-work: the answer to the challenge of a 403 `proof-required`'),
});

export const restockSchema = component('Restock', {
  units: units.min(-limits.maxUnits).refine((n) => n !== 0, 'must not be 0'),
});

export const waitlistSchema = component('WaitlistRequest', {
  userId: z.unknown().optional().describe('As in a purchase; with AUTH=jwt ignored'),
  quantity,
});

export const refundSchema = component('Refund', {
  returnUnits: z
    .boolean()
    .default(true)
    .describe('Whether the units can be sold again; otherwise they leave the stock'),
});

export const extendSchema = component('Extend', {
  seconds: z
    .int()
    .min(1)
    .max(limits.maxPaymentWindowS)
    .describe('The order stays unpaid for at least so long from now'),
});

export const transferSchema = component('Transfer', {
  toUserId: userIdSchema.describe('The customer who gets the order'),
});

const source = text(limits.sourceLength).min(1).meta(portable);

/** Source types of the entries that the service itself adds: an award that used one would stop a later change of its order. */
const isReserved = (sourceType: string): boolean => /^order(-|$)/.test(sourceType);

export const awardSchema = component('Award', {
  sourceType: source.refine((type) => !isReserved(type), 'must not be order or begin with order-'),
  sourceId: source,
  points: z.int().min(1).max(limits.maxPoints),
});

export const notificationSchema = component('PaymentNotification', {
  notificationId: source,
  orderId: orderIdSchema,
  amountCents: amount
    .min(0)
    .max(limits.maxAmountCents)
    .describe('Of the order: price × quantity, in the smallest unit of the currency'),
});

export const userQuerySchema = z.object({
  userId: userIdSchema.optional().describe('Required with AUTH=none; with AUTH=jwt the caller, also as `me`'),
});

export const taskStateSchema = z.enum(taskStates);

/** The length of a list. @param usual where the query names none */
const listLimit = (usual: number) =>
  z
    .string()
    .regex(/^[1-9]\d{0,3}$/, `must be an integer from 1 to ${limits.listLength}`)
    .transform(Number)
    .refine((n) => n <= limits.listLength, `must be an integer from 1 to ${limits.listLength}`)
    .default(usual)
    .meta(integerTo(limits.listLength, { default: usual }));

/** Of a list that is read from its beginning only. */
export const limitQuerySchema = z.strictObject({ limit: listLimit(limits.pageLength) });

/** A text that a list is searched for. */
const searched = (maxLength: number, description: string) =>
  text(maxLength)
    .trim()
    .min(1)
    .optional()
    .meta({ ...portable, description });

/** Of an Idempotency-Key. */
export const keySchema = z
  .string()
  .regex(/^[!-~]{1,255}$/)
  .optional()
  .describe(
    'Repeats with the same key and the same body have one effect, and get the same answer, for 24 hours. A refusal changes nothing, and a repeat of it is judged again.',
  );

/** Headers; see webhook-signature.ts. */
export const signatureSchema = z.object({
  'webhook-id': z.string().optional().describe('Id of the message'),
  'webhook-timestamp': z.string().optional().describe('Seconds since 1970'),
  'webhook-signature': z.string().optional().meta({
    description: 'One or more signatures, separated by spaces',
    example: 'v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=',
  }),
});

export const pageQuerySchema = z.strictObject({
  limit: listLimit(limits.pageLength),
  before: exactId
    .refine((id) => id <= limits.maxSaleId, 'must be the id of a sale')
    .optional()
    .meta({
      ...integerTo(limits.maxSaleId),
      description: 'Only sales with a smaller id',
    }),
  search: searched(limits.saleNameLength, 'Only sales whose name has this text, in any case'),
  state: z.enum(saleStates).optional().describe('Only sales in this state'),
});

/** Which orders of a sale an administrator lists. */
const orderFilter = {
  status: z.enum(orderStatuses).optional().describe('Only orders in this status'),
  search: searched(
    limits.userIdLength,
    'Only orders whose customer or id has this text; the short number on a page is a part of the id',
  ),
};
export const exportQuerySchema = z.strictObject(orderFilter);
export const orderListQuerySchema = z.strictObject({
  ...orderFilter,
  limit: listLimit(limits.pageLength),
  before: orderIdSchema.optional().describe('Only orders that are older than this one'),
});

export const unmatchedQuerySchema = z.strictObject({
  limit: listLimit(limits.pageLength),
  before: exactId
    .optional()
    .meta({ ...integerTo(Number.MAX_SAFE_INTEGER), description: 'Only payments with a smaller id' }),
});

export const taskQuerySchema = z.strictObject({
  state: taskStateSchema.optional(),
  limit: listLimit(100),
});
