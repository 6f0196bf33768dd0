/** The OpenAPI document, generated from the schemas that validate requests. */
import { z } from 'zod';
import { createDocument, type ZodOpenApiPathsObject } from 'zod-openapi';
import { type ProblemSlug, problems } from './problems.ts';
import * as s from './schemas.ts';

const json = (schema: z.ZodType, description: string) => ({
  description,
  content: { 'application/json': { schema } },
});
const body = (schema: z.ZodType) => ({ required: true, content: { 'application/json': { schema } } });

/** Problem responses, grouped by status. */
function failures(...slugs: ProblemSlug[]) {
  const byStatus = new Map<number, ProblemSlug[]>();
  for (const slug of slugs) {
    const { status } = problems[slug];
    byStatus.set(status, [...(byStatus.get(status) ?? []), slug]);
  }
  return Object.fromEntries(
    [...byStatus].map(([status, members]) => [
      String(status),
      {
        description: members.map((slug) => `\`${slug}\`: ${problems[slug].title}`).join('. '),
        content: { 'application/problem+json': { schema: s.problemSchema } },
      },
    ]),
  );
}

/** Any route that uses a store may answer with these and `Retry-After`. */
const STORES: ProblemSlug[] = ['busy', 'unknown-outcome'];
const BODY: ProblemSlug[] = ['invalid-request', 'too-large', 'unsupported-media-type'];
const ADMIN: ProblemSlug[] = ['unauthorized', 'forbidden', 'too-many-requests'];
const PAYMENT: ProblemSlug[] = [
  'invalid-signature',
  'unknown-order',
  'amount-mismatch',
  'idempotency-conflict',
];
const CUSTOMER: ProblemSlug[] = ['unauthorized', 'too-many-requests'];
const admin = [{ adminToken: [] }, {}];
const customer = [{ customerToken: [] }, {}];
const salePath = z.object({ saleId: s.saleIdSchema });
const userPath = z.object({ userId: s.userIdSchema });

const salePaths: ZodOpenApiPathsObject = {
  '/sales': {
    get: {
      summary: 'Sales, newest first',
      description: 'The header Link names the next page.',
      tags: ['Sales'],
      requestParams: { query: s.pageQuerySchema },
      responses: {
        '200': json(z.array(s.saleSchema), 'Sales'),
        ...failures('invalid-request', 'too-many-requests', ...STORES),
      },
    },
    post: {
      summary: 'Create a sale',
      tags: ['Sales'],
      security: admin,
      requestBody: body(s.newSaleSchema),
      responses: { '201': json(s.saleSchema, 'The sale'), ...failures(...BODY, ...ADMIN, ...STORES) },
    },
  },
  '/sales/{saleId}': {
    get: {
      summary: 'One sale',
      tags: ['Sales'],
      requestParams: { path: salePath },
      responses: {
        '200': json(s.saleSchema, 'The sale'),
        ...failures('invalid-request', 'unknown-sale', ...STORES),
      },
    },
  },
  '/sales/{saleId}/events': {
    get: {
      summary: 'Stream the stock of a sale: server-sent events',
      description:
        'The first event is sent immediately, further ones after each change; the last one is repeated after 5 seconds without a change. A slow client may miss intermediate events but always receives the latest.',
      tags: ['Sales'],
      requestParams: { path: salePath },
      responses: {
        '200': {
          description: 'A stream; it ends when the service stops',
          content: { 'text/event-stream': { schema: s.saleEventSchema } },
        },
        ...failures('invalid-request', 'unknown-sale', 'too-many-requests', ...STORES),
      },
    },
  },
  '/sales/{saleId}/audit': {
    get: {
      summary: 'Compare the stores for one sale',
      description:
        'The comparison of `npm run reconcile -- --check`. A difference counts only if it persists for 3 seconds, so the response may take that long.',
      tags: ['Sales'],
      security: admin,
      requestParams: { path: salePath },
      responses: {
        '200': json(s.auditSchema, 'The differences'),
        ...failures('invalid-request', ...ADMIN, 'unknown-sale', ...STORES),
      },
    },
  },
  '/sales/{saleId}/restock': {
    post: {
      summary: 'Add units, or remove unsold ones',
      tags: ['Sales'],
      security: admin,
      requestParams: { path: salePath },
      requestBody: body(s.restockSchema),
      responses: {
        '200': json(s.saleSchema, 'The sale'),
        ...failures(...BODY, ...ADMIN, 'unknown-sale', 'below-sold', ...STORES),
      },
    },
  },
};

const ticketPaths: ZodOpenApiPathsObject = {
  '/sales/{saleId}/tickets': {
    post: {
      summary: 'Get a ticket, with AUTH=jwt',
      description:
        'A purchase needs it. Before the start of the sale the turn is drawn by lot; later it is the next free one. A repeat returns the same turn.',
      tags: ['Orders'],
      security: customer,
      requestParams: { path: salePath },
      requestBody: { required: false, content: { 'application/json': { schema: s.ticketRequestSchema } } },
      responses: {
        '201': json(s.ticketSchema, 'The ticket'),
        ...failures(
          ...BODY,
          ...CUSTOMER,
          'forbidden',
          'proof-required',
          'unknown-sale',
          'sold-out',
          'sale-not-open',
          ...STORES,
        ),
      },
    },
  },
};

const UNCOMMITTED =
  'An order that was accepted with 202 and is not committed yet gives 503 `busy` with Retry-After rather than 404.';

const orderPaths: ZodOpenApiPathsObject = {
  '/sales/{saleId}/orders': {
    post: {
      summary: 'Buy one unit',
      description:
        'A repeat by the same user returns the same order. With AUTH=jwt it needs a ticket as Authorization: Bearer, which names the user; the body is ignored.',
      tags: ['Orders'],
      requestParams: { path: salePath },
      requestBody: body(s.purchaseSchema),
      responses: {
        '200': json(s.placedOrderSchema, 'The existing order of the user'),
        '201': json(s.placedOrderSchema, 'The order, committed in Postgres'),
        '202': json(s.placedOrderSchema, 'With CONFIRM=accepted: a unit is reserved; the commit follows'),
        ...failures(
          ...BODY,
          'invalid-ticket',
          'too-early',
          'too-many-requests',
          'unknown-sale',
          'sold-out',
          'sale-not-open',
          ...STORES,
        ),
      },
    },
    get: {
      summary: 'The order of a user in a sale',
      description: UNCOMMITTED,
      tags: ['Orders'],
      requestParams: { path: salePath, query: s.userQuerySchema },
      responses: {
        '200': json(s.orderSchema, 'The order'),
        ...failures('invalid-request', ...CUSTOMER, 'unknown-order', ...STORES),
      },
    },
  },
  '/orders/{orderId}': {
    get: {
      summary: 'One order',
      description: UNCOMMITTED,
      tags: ['Orders'],
      requestParams: { path: z.object({ orderId: s.orderIdSchema }) },
      responses: {
        '200': json(s.orderSchema, 'The order'),
        ...failures('invalid-request', ...CUSTOMER, 'unknown-order', ...STORES),
      },
    },
  },
  '/orders/{orderId}/cancel': {
    post: {
      summary: 'Cancel a pending order',
      description: `Releases the unit. The customer may buy again. ${UNCOMMITTED}`,
      tags: ['Orders'],
      requestParams: { path: z.object({ orderId: s.orderIdSchema }) },
      responses: {
        '200': json(s.orderSchema, 'The cancelled order'),
        ...failures('invalid-request', ...CUSTOMER, 'unknown-order', 'invalid-transition', ...STORES),
      },
    },
  },
  '/payments/notifications': {
    post: {
      summary: 'Report a payment',
      description:
        'With PAYMENT_WEBHOOK_SECRETS it needs a signature as Standard Webhooks 1.0 defines it (headers webhook-id, webhook-timestamp, webhook-signature); otherwise it is administrative. Safe to repeat. An expired order gets a unit again if one is left; otherwise it ends as `refund-due`.',
      tags: ['Orders'],
      security: admin,
      requestBody: body(s.notificationSchema),
      responses: {
        '200': json(s.orderSchema, 'The order after the payment'),
        ...failures(...BODY, ...ADMIN, ...PAYMENT, ...STORES),
      },
    },
  },
};

const pointPaths: ZodOpenApiPathsObject = {
  '/users/{userId}/points': {
    post: {
      summary: 'Award points, once per source',
      tags: ['Points'],
      security: admin,
      requestParams: { path: userPath },
      requestBody: body(s.awardSchema),
      responses: {
        '201': json(s.pointsEntrySchema, 'The entry'),
        '200': json(s.pointsEntrySchema, 'The existing entry of this source'),
        ...failures(...BODY, ...ADMIN, 'idempotency-conflict', ...STORES),
      },
    },
    get: {
      summary: 'Balance and entries, newest first',
      tags: ['Points'],
      requestParams: { path: userPath },
      responses: {
        '200': json(s.pointsSchema, 'The account'),
        ...failures('invalid-request', ...CUSTOMER, 'not-found', ...STORES),
      },
    },
  },
};

const taskPaths: ZodOpenApiPathsObject = {
  '/tasks': {
    get: {
      summary: 'Tasks, newest first',
      tags: ['Tasks'],
      security: admin,
      requestParams: { query: s.taskQuerySchema },
      responses: {
        '200': json(z.array(s.taskSchema), 'Tasks'),
        ...failures('invalid-request', ...ADMIN, ...STORES),
      },
    },
  },
  '/tasks/{taskId}/retry': {
    post: {
      summary: 'Retry a dead task',
      tags: ['Tasks'],
      security: admin,
      requestParams: { path: z.object({ taskId: s.taskIdSchema }) },
      responses: {
        '200': json(s.taskSchema, 'The task, now waiting'),
        ...failures('invalid-request', ...ADMIN, 'unknown-task', 'invalid-transition', ...STORES),
      },
    },
  },
};

const servicePaths: ZodOpenApiPathsObject = {
  '/console/events': {
    get: {
      summary: 'Stream live figures for the console: server-sent events, one a second',
      description: 'Fields may change between versions. For monitoring, use /metrics.',
      tags: ['Service'],
      security: admin,
      responses: {
        '200': {
          description: 'A stream',
          content: { 'text/event-stream': { schema: z.looseObject({ now: z.int() }) } },
        },
        ...failures(...ADMIN),
      },
    },
  },
  '/strategies': {
    get: {
      summary: 'Every strategy with its guarantees, and the active one',
      tags: ['Service'],
      responses: { '200': json(s.strategiesSchema, 'Strategies') },
    },
  },
  '/healthz': {
    get: {
      summary: 'Liveness',
      tags: ['Service'],
      responses: { '200': { description: 'The process is alive' } },
    },
  },
  '/readyz': {
    get: {
      summary: 'Readiness: the stores, and failing background work',
      tags: ['Service'],
      responses: {
        '200': json(s.readinessSchema, 'Both stores answer; `degraded` lists failing background work'),
        '503': json(s.readinessSchema, 'A store does not answer'),
      },
    },
  },
  '/metrics': {
    get: {
      summary: 'Metrics for Prometheus',
      tags: ['Service'],
      responses: { '200': { description: 'Metrics' } },
    },
  },
};

/** OpenAPI 3.1. */
export function openApiDocument() {
  return createDocument({
    openapi: '3.1.0',
    info: {
      title: 'Stampede',
      version: '0.1.0',
      description: 'A flash-sale and inventory service. Errors are RFC 9457 problems.',
      license: { name: 'MIT', identifier: 'MIT' },
    },
    paths: { ...salePaths, ...ticketPaths, ...orderPaths, ...pointPaths, ...taskPaths, ...servicePaths },
    components: {
      securitySchemes: {
        adminToken: { type: 'http', scheme: 'bearer' },
        customerToken: { type: 'http', scheme: 'bearer', bearerFormat: 'JWT' },
      },
    },
  });
}
