/** The OpenAPI document, generated from the schemas that validate requests. */
import * as z from 'zod';
import { createDocument, type ZodOpenApiPathsObject } from 'zod-openapi';
import * as a from './answer-schemas.ts';
import {
  admin,
  anyone,
  body,
  customer,
  events,
  json,
  keyHeader,
  location,
  nextPage,
  salePath,
  tagged,
  ticket,
} from './openapi-responses.ts';
import { salePaths } from './openapi-sales.ts';
import * as s from './schemas.ts';

const userPath = z.object({ userId: s.userIdSchema });
const order = tagged('Orders');
const points = tagged('Points');
const task = tagged('Tasks');
const service = tagged('Service', []);

const UNCOMMITTED =
  'An order that was accepted with 202 and is not committed yet gives 503 `busy` with Retry-After rather than 404.';

const paths: ZodOpenApiPathsObject = {
  ...salePaths,
  '/sales/{saleId}/tickets': {
    post: order(customer, {
      operationId: 'createTicket',
      summary: 'Get a ticket, with AUTH=jwt',
      description:
        'A purchase needs it. Until the lottery of the sale ends the turn is drawn by lot; later it is the next free one. A repeat returns the same turn until the ticket expires.',
      requestParams: { path: salePath },
      requestBody: { ...body(s.ticketRequestSchema), required: false },
      answers: { '201': json(a.ticketSchema, 'The ticket') },
      problems: ['forbidden', 'not-found', 'proof-required', 'unknown-sale', 'sold-out', 'sale-not-open'],
    }),
  },
  '/sales/{saleId}/orders': {
    post: order(ticket, {
      operationId: 'placeOrder',
      summary: 'Buy one unit, or several at once',
      description:
        'All units or none. A repeat by the same user returns the same order, whatever its quantity. With AUTH=jwt it needs a ticket as Authorization: Bearer, which names the user; `userId` is ignored, and the body may be left out.',
      requestParams: { path: salePath },
      requestBody: { ...body(s.purchaseSchema), required: false },
      answers: {
        '200': json(a.placedOrderSchema, 'The existing order of the user', location('order')),
        '201': json(a.placedOrderSchema, 'The order, committed in Postgres', location('order')),
        '202': json(
          a.placedOrderSchema,
          'With CONFIRM=accepted: the units are reserved; the commit follows',
          location('order'),
        ),
      },
      problems: [
        'invalid-ticket',
        'too-early',
        'unknown-sale',
        'sold-out',
        'not-enough-units',
        'sale-not-open',
      ],
    }),
    get: order(customer, {
      operationId: 'getOrdersOfSale',
      summary:
        'The order of a user in a sale; for administrators, without `userId`, all orders, newest first',
      description: `The active order of the user, or else the last closed one. \`search\` finds orders whose customer has the text, or whose id begins with it. ${UNCOMMITTED}`,
      requestParams: { path: salePath, query: s.userQuerySchema.extend(s.orderListQuerySchema.shape) },
      answers: {
        '200': json(z.union([a.orderSchema, z.array(a.orderSchema)]), 'The order; or orders', {
          Link: nextPage('/sales/{saleId}/orders'),
        }),
      },
      problems: ['forbidden', 'not-found', 'unknown-order', 'unknown-sale'],
    }),
  },
  '/sales/{saleId}/orders.csv': {
    get: order(admin, {
      operationId: 'exportOrders',
      summary: 'All orders of a sale as CSV (RFC 4180), newest first',
      description: 'Streamed. When a store fails meanwhile, the connection is cut.',
      requestParams: { path: salePath, query: s.exportQuerySchema },
      answers: {
        '200': {
          description: 'Orders, after a line with the names of the columns',
          headers: z.object({
            'Content-Disposition': z.string().meta({ description: 'With a name for the file' }),
          }),
          content: { 'text/csv': { schema: z.string() } },
        },
      },
      problems: ['unknown-sale'],
    }),
  },
  '/orders/{orderId}': {
    get: order(customer, {
      operationId: 'getOrder',
      summary: 'One order',
      description: UNCOMMITTED,
      requestParams: { path: z.object({ orderId: s.orderIdSchema }) },
      answers: { '200': json(a.orderSchema, 'The order') },
      problems: ['unknown-order'],
    }),
  },
  '/orders/{orderId}/cancel': {
    post: order(customer, {
      operationId: 'cancelOrder',
      summary: 'Cancel a pending order',
      description: `Releases its units. The customer may buy again. ${UNCOMMITTED}`,
      requestParams: { path: z.object({ orderId: s.orderIdSchema }) },
      answers: { '200': json(a.orderSchema, 'The cancelled order') },
      problems: ['unknown-order', 'invalid-transition'],
    }),
  },
  '/orders/{orderId}/refund': {
    post: order(admin, {
      operationId: 'refundOrder',
      summary: 'Cancel a pending order, or refund a paid one',
      description:
        'A paid order ends as `refund-due`, and a task `refund` pays back what was paid. Its points are reversed. With `"returnUnits": false` the units leave the stock.',
      requestParams: { path: z.object({ orderId: s.orderIdSchema }), header: keyHeader },
      requestBody: { ...body(s.refundSchema), required: false },
      answers: { '200': json(a.orderSchema, 'The order, cancelled or to be refunded') },
      problems: ['unknown-order', 'invalid-transition'],
    }),
  },
  '/payments/notifications': {
    post: order(admin, {
      operationId: 'reportPayment',
      summary: 'Report a payment',
      description:
        'With PAYMENT_WEBHOOK_SECRETS it needs a signature as Standard Webhooks 1.0 defines it; otherwise it is administrative. Safe to repeat. An expired order gets its units again if they are left; otherwise it ends as `refund-due`. A payment that changes no order is recorded: see GET /payments/unmatched.',
      requestParams: { header: s.signatureSchema },
      requestBody: body(s.notificationSchema),
      answers: {
        '200': json(a.paymentAnswerSchema, 'The order after the payment, or why it changed no order'),
      },
      problems: ['invalid-signature'],
    }),
  },
  '/payments/unmatched': {
    get: order(admin, {
      operationId: 'listUnmatchedPayments',
      summary: 'Payments that changed no order, newest first',
      requestParams: { query: s.unmatchedQuerySchema },
      answers: {
        '200': json(z.array(a.unmatchedPaymentSchema), 'Payments', { Link: nextPage('/payments/unmatched') }),
      },
    }),
  },
  '/users/{userId}/points': {
    post: points(admin, {
      operationId: 'awardPoints',
      summary: 'Award points, once per source',
      requestParams: { path: userPath, header: keyHeader },
      requestBody: body(s.awardSchema),
      answers: {
        '201': json(a.pointsEntrySchema, 'The entry'),
        '200': json(a.pointsEntrySchema, 'The existing entry of this source'),
      },
      problems: ['idempotency-conflict'],
    }),
    get: points(customer, {
      operationId: 'getPoints',
      summary: 'Balance and entries, newest first',
      requestParams: { path: userPath },
      answers: { '200': json(a.pointsSchema, 'The account') },
      problems: ['not-found'],
    }),
  },
  '/tasks': {
    get: task(admin, {
      operationId: 'listTasks',
      summary: 'Tasks, newest first',
      requestParams: { query: s.taskQuerySchema },
      answers: { '200': json(z.array(a.taskSchema), 'Tasks') },
    }),
  },
  '/tasks/{taskId}/retry': {
    post: task(admin, {
      operationId: 'retryTask',
      summary: 'Retry a dead task',
      requestParams: { path: z.object({ taskId: s.taskIdSchema }), header: keyHeader },
      answers: { '200': json(a.taskSchema, 'The task, now waiting') },
      problems: ['unknown-task', 'invalid-transition'],
    }),
  },
  '/tasks/{taskId}/discard': {
    post: task(admin, {
      operationId: 'discardTask',
      summary: 'End a dead task without its effect',
      description: 'A discarded event no longer holds up the later ones of its order or sale.',
      requestParams: { path: z.object({ taskId: s.taskIdSchema }), header: keyHeader },
      answers: { '200': json(a.taskSchema, 'The task, now done') },
      problems: ['unknown-task', 'invalid-transition'],
    }),
  },
  '/console/events': {
    get: service(admin, {
      operationId: 'streamConsole',
      summary: 'Stream live figures for the console: server-sent events, one a second',
      description: 'Fields may change between versions. For monitoring, use /metrics.',
      answers: { '200': events(z.looseObject({ now: z.int() }), 'A stream') },
    }),
  },
  '/strategies': {
    get: service(anyone, {
      operationId: 'listStrategies',
      summary: 'Every strategy with its guarantees, and the active one',
      answers: { '200': json(a.strategiesSchema, 'Strategies') },
    }),
  },
  '/healthz': {
    get: service(anyone, {
      operationId: 'getHealth',
      summary: 'Liveness',
      answers: { '200': json(a.livenessSchema, 'The process is alive') },
    }),
  },
  '/readyz': {
    get: service(anyone, {
      operationId: 'getReadiness',
      summary: 'Readiness: the stores, and failing background work',
      answers: {
        '200': json(
          a.readinessSchema,
          'Every store in use answers; `degraded` lists failing background work, tasks that wait for a receiver, masters of a cluster that are down, and a Redis that may evict keys or denies commands',
        ),
        '503': json(a.readinessSchema, 'A store does not answer; of a cluster, no master does'),
      },
    }),
  },
  '/metrics': {
    get: service(anyone, {
      operationId: 'getMetrics',
      summary: 'Metrics for Prometheus',
      answers: { '200': { description: 'Metrics', content: { 'text/plain': { schema: z.string() } } } },
      problems: ['not-found'],
    }),
  },
};

const TAGS = {
  Sales: 'What is sold, how much of it is left, and its administration',
  Orders: 'Tickets, purchases and payments',
  Points: 'Points of customers',
  Tasks: 'External effects of orders',
  Service: 'The state of the service',
};
const bearer = (description: string, format = {}) =>
  ({ type: 'http', scheme: 'bearer', description, ...format }) as const;

/** OpenAPI 3.1. */
export function openApiDocument() {
  return createDocument({
    openapi: '3.1.0',
    info: {
      title: 'Stampede',
      version: '1.0.0',
      description: 'A flash-sale and inventory service. Errors are RFC 9457 problems.',
      license: { name: 'MIT', identifier: 'MIT' },
    },
    // Relative to where the document comes from.
    servers: [{ url: '/', description: 'This service' }],
    tags: Object.entries(TAGS).map(([name, description]) => ({ name, description })),
    paths,
    components: {
      securitySchemes: {
        adminToken: bearer('A token of ADMIN_TOKEN. Without it, clients on the same machine need none'),
        customerToken: bearer('With AUTH=jwt: a token of the issuer', { bearerFormat: 'JWT' }),
        ticket: bearer('With AUTH=jwt: a ticket of this sale and customer'),
      },
    },
  });
}
