/** The paths of sales in the OpenAPI document. */
import * as z from 'zod';
import type { ZodOpenApiPathsObject } from 'zod-openapi';
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
} from './openapi-responses.ts';
import * as s from './schemas.ts';

const sale = tagged('Sales');

export const salePaths: ZodOpenApiPathsObject = {
  '/sales': {
    get: sale(anyone, {
      operationId: 'listSales',
      summary: 'Sales, newest first',
      description:
        '`search` finds sales whose name has the text, in any case that the locale of the database knows.',
      requestParams: { query: s.pageQuerySchema },
      answers: { '200': json(z.array(a.saleSchema), 'Sales', { Link: nextPage('/sales') }) },
    }),
    post: sale(admin, {
      operationId: 'createSale',
      summary: 'Create a sale',
      description: '`priceCents` is in the smallest unit of CURRENCY.',
      requestParams: { header: keyHeader },
      requestBody: body(s.newSaleSchema),
      answers: { '201': json(a.saleSchema, 'The sale', location('sale')) },
    }),
  },
  '/sales/{saleId}': {
    get: sale(anyone, {
      operationId: 'getSale',
      summary: 'One sale',
      requestParams: { path: salePath },
      answers: { '200': json(a.saleSchema, 'The sale') },
      problems: ['unknown-sale'],
    }),
    patch: sale(admin, {
      operationId: 'changeSale',
      summary: 'Change a sale, or pause it',
      description:
        'Once it is answered, no process sells by the old terms. Orders keep their price and their time to pay, also those answered with 202 that are not committed yet. A repeat changes nothing more.',
      requestParams: { path: salePath },
      requestBody: body(s.saleChangesSchema),
      answers: { '200': json(a.saleSchema, 'The sale') },
      problems: ['unknown-sale'],
    }),
  },
  '/sales/{saleId}/events': {
    get: sale(anyone, {
      operationId: 'streamSale',
      summary: 'Stream the stock of a sale: server-sent events',
      description:
        'The first event is sent immediately, further ones after each change; the last one is repeated after 5 seconds without a change. A slow client may miss intermediate events but always receives the latest.',
      requestParams: { path: salePath },
      answers: { '200': events(a.saleEventSchema, 'A stream; it ends when the service stops') },
      problems: ['unknown-sale'],
    }),
  },
  '/sales/{saleId}/audit': {
    get: sale(admin, {
      operationId: 'auditSale',
      summary: 'Compare the stores for one sale',
      description:
        'The comparison of `npm run reconcile -- --check`, and whether more is sold than there was. A difference counts only if it persists for 3 seconds, so the response may take that long.',
      requestParams: { path: salePath },
      answers: { '200': json(a.auditSchema, 'The differences') },
      problems: ['unknown-sale'],
    }),
  },
  '/sales/{saleId}/waitlist': {
    post: sale(customer, {
      operationId: 'joinWaitlist',
      summary: 'Wait for units of a sold-out sale',
      description:
        'Only with EVENTS that include sale.units-returned. When units become free, the event names as many waiting customers, the first ones first; when they have not bought within 10 minutes, it names the next. No unit is reserved for them. A customer who was named may join again. With AUTH=jwt, the token names the customer.',
      requestParams: { path: salePath },
      requestBody: { ...body(s.waitlistSchema), required: false },
      answers: {
        '201': json(a.waitlistEntrySchema, 'The customer waits'),
        '200': json(a.waitlistEntrySchema, 'The customer waited already, and keeps the place'),
      },
      problems: ['not-found', 'unknown-sale', 'not-sold-out', 'sale-not-open'],
    }),
  },
  '/sales/{saleId}/refund': {
    post: sale(admin, {
      operationId: 'refundSale',
      summary: 'Cancel all unpaid orders of a sale, and refund the paid ones',
      description:
        'It works in the background, through restarts, and covers the orders that exist now: pause the sale first. With `"returnUnits": false` the units leave the stock. A repeat while it runs covers the orders placed since, too.',
      requestParams: { path: salePath, header: keyHeader },
      requestBody: { ...body(s.refundSchema), required: false },
      answers: { '202': json(a.saleRefundSchema, 'Its progress', location('refund')) },
      problems: ['unknown-sale', 'invalid-transition'],
    }),
    get: sale(admin, {
      operationId: 'getSaleRefund',
      summary: 'The progress of the last refund of a sale',
      requestParams: { path: salePath },
      answers: { '200': json(a.saleRefundSchema, 'Its progress') },
      problems: ['unknown-sale'],
    }),
  },
  '/sales/{saleId}/restock': {
    post: sale(admin, {
      operationId: 'restockSale',
      summary: 'Add units, or remove unsold ones',
      description: 'Negative units reduce the stock.',
      requestParams: { path: salePath, header: keyHeader },
      requestBody: body(s.restockSchema),
      answers: { '200': json(a.saleSchema, 'The sale') },
      problems: ['unknown-sale', 'below-sold'],
    }),
  },
};
