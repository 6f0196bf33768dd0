/** The paths of sales in the OpenAPI document. */
import { z } from 'zod';
import type { ZodOpenApiPathsObject } from 'zod-openapi';
import * as a from './answer-schemas.ts';
import {
  ADMIN,
  admin,
  anyone,
  BODY,
  body,
  CUSTOMER,
  customer,
  events,
  failures,
  json,
  keyHeader,
  location,
  nextPage,
  STORES,
  salePath,
} from './openapi-responses.ts';
import * as s from './schemas.ts';

export const salePaths: ZodOpenApiPathsObject = {
  '/sales': {
    get: {
      operationId: 'listSales',
      summary: 'Sales, newest first',
      description:
        '`search` finds sales whose name has the text, in any case that the locale of the database knows.',
      tags: ['Sales'],
      security: anyone,
      requestParams: { query: s.pageQuerySchema },
      responses: {
        '200': json(z.array(a.saleSchema), 'Sales', { Link: nextPage('/sales') }),
        ...failures(...STORES),
      },
    },
    post: {
      operationId: 'createSale',
      summary: 'Create a sale',
      description: '`priceCents` is in the smallest unit of CURRENCY.',
      tags: ['Sales'],
      security: admin,
      requestParams: { header: keyHeader },
      requestBody: body(s.newSaleSchema),
      responses: {
        '201': json(a.saleSchema, 'The sale', location('sale')),
        ...failures(...BODY, ...ADMIN, 'key-reused', ...STORES),
      },
    },
  },
  '/sales/{saleId}': {
    get: {
      operationId: 'getSale',
      summary: 'One sale',
      tags: ['Sales'],
      security: anyone,
      requestParams: { path: salePath },
      responses: {
        '200': json(a.saleSchema, 'The sale'),
        ...failures('unknown-sale', ...STORES),
      },
    },
    patch: {
      operationId: 'changeSale',
      summary: 'Change a sale, or pause it',
      description:
        'Once it is answered, no process sells by the old terms. Orders keep their price. A repeat changes nothing more.',
      tags: ['Sales'],
      security: admin,
      requestParams: { path: salePath },
      requestBody: body(s.saleChangesSchema),
      responses: {
        '200': json(a.saleSchema, 'The sale'),
        ...failures(...BODY, ...ADMIN, 'unknown-sale', ...STORES),
      },
    },
  },
  '/sales/{saleId}/events': {
    get: {
      operationId: 'streamSale',
      summary: 'Stream the stock of a sale: server-sent events',
      description:
        'The first event is sent immediately, further ones after each change; the last one is repeated after 5 seconds without a change. A slow client may miss intermediate events but always receives the latest.',
      tags: ['Sales'],
      security: anyone,
      requestParams: { path: salePath },
      responses: {
        '200': events(a.saleEventSchema, 'A stream; it ends when the service stops'),
        ...failures('unknown-sale', ...STORES),
      },
    },
  },
  '/sales/{saleId}/audit': {
    get: {
      operationId: 'auditSale',
      summary: 'Compare the stores for one sale',
      description:
        'The comparison of `npm run reconcile -- --check`. A difference counts only if it persists for 3 seconds, so the response may take that long.',
      tags: ['Sales'],
      security: admin,
      requestParams: { path: salePath },
      responses: {
        '200': json(a.auditSchema, 'The differences'),
        ...failures(...ADMIN, 'unknown-sale', ...STORES),
      },
    },
  },
  '/sales/{saleId}/waitlist': {
    post: {
      operationId: 'joinWaitlist',
      summary: 'Wait for units of a sold-out sale',
      description:
        'Only with EVENTS that include sale.units-returned. When units become free, the event names as many waiting customers, the first ones first. No unit is reserved for them. A customer who was named may join again. With AUTH=jwt, the token names the customer.',
      tags: ['Sales'],
      security: customer,
      requestParams: { path: salePath },
      requestBody: { ...body(s.waitlistSchema), required: false },
      responses: {
        '201': json(a.waitlistEntrySchema, 'The customer waits'),
        '200': json(a.waitlistEntrySchema, 'The customer waited already, and keeps the place'),
        ...failures(...BODY, ...CUSTOMER, 'not-found', 'unknown-sale', 'not-sold-out', ...STORES),
      },
    },
  },
  '/sales/{saleId}/refund': {
    post: {
      operationId: 'refundSale',
      summary: 'Cancel all unpaid orders of a sale, and refund the paid ones',
      description:
        'It works in the background, through restarts, and covers the orders that exist now: pause the sale first. With `"returnUnits": false` the units leave the stock. While it runs, a repeat gets its progress.',
      tags: ['Sales'],
      security: admin,
      requestParams: { path: salePath, header: keyHeader },
      requestBody: { ...body(s.refundSchema), required: false },
      responses: {
        '202': json(a.saleRefundSchema, 'Its progress', location('refund')),
        ...failures(...BODY, ...ADMIN, 'unknown-sale', 'invalid-transition', 'key-reused', ...STORES),
      },
    },
    get: {
      operationId: 'getSaleRefund',
      summary: 'The progress of the last refund of a sale',
      tags: ['Sales'],
      security: admin,
      requestParams: { path: salePath },
      responses: {
        '200': json(a.saleRefundSchema, 'Its progress'),
        ...failures(...ADMIN, 'unknown-sale', ...STORES),
      },
    },
  },
  '/sales/{saleId}/restock': {
    post: {
      operationId: 'restockSale',
      summary: 'Add units, or remove unsold ones',
      description: 'Negative units reduce the stock.',
      tags: ['Sales'],
      security: admin,
      requestParams: { path: salePath, header: keyHeader },
      requestBody: body(s.restockSchema),
      responses: {
        '200': json(a.saleSchema, 'The sale'),
        ...failures(...BODY, ...ADMIN, 'unknown-sale', 'below-sold', 'key-reused', ...STORES),
      },
    },
  },
};
