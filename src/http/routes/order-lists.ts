/** The orders of a sale: the order of a customer; for administrators, lists with filters, and the export. */
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { RequestHandler } from 'express';
import * as z from 'zod';
import { limits } from '../../config/limits.ts';
import type { Order, OrderQuery } from '../../domain/order.ts';
import { isLocal } from '../admin.ts';
import * as a from '../answer-schemas.ts';
import { namedCustomer } from '../callers.ts';
import type { HttpContext } from '../context.ts';
import { json, nextPage, response } from '../openapi-responses.ts';
import { ProblemError } from '../problems.ts';
import { parse } from '../requests.ts';
import { linkNext, tagged, undescribed } from '../route.ts';
import * as s from '../schemas.ts';
import { notCommitted, UNCOMMITTED } from './orders.ts';
import { knownSale } from './sales.ts';

/** The columns of the export, in their order. */
const COLUMNS = [
  ...(['orderId', 'userId', 'status', 'quantity', 'priceCents', 'amountCents'] as const),
  ...(['createdAt', 'expiresAt', 'paidAt', 'closedAt'] as const),
] as const satisfies readonly (keyof Order)[];
/** Orders that the export reads at once. */
const PAGE = 1_000;

const order = tagged('Orders');

export const orderListRoutes = {
  getOrdersOfSale: order('get /sales/{saleId}/orders', 'customer', {
    summary: 'The order of a user in a sale; for administrators, without `userId`, all orders, newest first',
    description: `The active order of the user, or else the last closed one. \`search\` finds orders whose customer or id has the text. ${UNCOMMITTED}`,
    query: s.userQuerySchema,
    otherQuery: s.orderListQuerySchema,
    answers: {
      200: json(
        z.union([a.orderSchema, z.array(a.orderSchema)]),
        'The order; or orders',
        nextPage('/sales/{saleId}/orders'),
      ),
    },
    problems: ['forbidden', 'not-found', 'unknown-order'],
    guards: (context) => [unlessOfAll(context)],
    async handle({ saleId, query: { userId: named }, caller, res }, { reads }) {
      if (caller.customer === null) parse(s.userIdSchema, named, 'query.userId');
      const userId = namedCustomer(caller, named);
      if (userId === null) throw noOrder(saleId, named!);
      const found = saleId > limits.maxSaleId ? null : await reads.uncommitted.ofUser(saleId, userId);
      if (found === 'uncommitted') throw notCommitted(`The order of ${userId} in sale ${saleId}`);
      if (found === null) throw noOrder(saleId, userId);
      res.json(found);
    },
  }),
  listOrders: undescribed('get /sales/{saleId}/orders', 'admin', {
    query: s.orderListQuerySchema,
    async handle({ saleId, query, res }, { reads }) {
      await knownSale(reads, saleId);
      const page = await reads.orders.list(saleId, query);
      linkNext(res, `/sales/${saleId}/orders`, page, query, ({ orderId }) => orderId);
      res.json(page);
    },
  }),
  exportOrders: order('get /sales/{saleId}/orders.csv', 'admin', {
    summary: 'All orders of a sale as CSV (RFC 4180), newest first',
    description: 'Streamed. When a store fails meanwhile, the connection is cut.',
    query: s.exportQuerySchema,
    answers: {
      200: response('text/csv', z.string(), 'Orders, after a line with the names of the columns', {
        'Content-Disposition': z.string().describe('With a name for the file'),
      }),
    },
    async handle({ saleId, query: filter, res }, { reads }) {
      await knownSale(reads, saleId);
      const pages = pagesOf((query) => reads.orders.list(saleId, { ...filter, ...query }));
      const first = await pages.next(); // a store that fails now is answered with a problem
      res.type('text/csv').attachment(`sale-${saleId}-orders.csv`);
      async function* lines() {
        yield `${COLUMNS.join(',')}\r\n`;
        for (let page = first; !page.done; page = await pages.next()) yield page.value.map(lineOf).join('');
      }
      // When a store fails later, the connection is cut: the client must not take a part for the whole.
      await pipeline(Readable.from(lines()), res).catch((error) => res.destroy(error));
    },
  }),
};

/**
 * Skips requests about all customers, which are for administrators: those that name none, and with AUTH=jwt are an administrator's.
 * A server without administrative routes has none.
 */
function unlessOfAll({ ticketing, adminTokens }: HttpContext): RequestHandler {
  return (req, _res, next) => {
    if (adminTokens === null) return next();
    // Where no token is set, an administrator on this machine sends none, and a customer the issuer's.
    const isOpen = !adminTokens.areSet && req.headers.authorization === undefined;
    const isAdmin = (isOpen && isLocal(req)) || adminTokens.nameOf(req) !== null;
    next(req.query.userId === undefined && (ticketing === null || isAdmin) ? 'route' : undefined);
  };
}

const noOrder = (saleId: number, userId: string): ProblemError =>
  new ProblemError('unknown-order', `${userId} has no order in sale ${saleId}.`);

async function* pagesOf(
  read: (query: OrderQuery) => Promise<readonly Order[]>,
): AsyncGenerator<readonly Order[]> {
  let before: string | undefined;
  for (;;) {
    const page = await read({ limit: PAGE, before });
    if (page.length > 0) yield page;
    if (page.length < PAGE) return;
    before = page.at(-1)!.orderId;
  }
}

/** No value needs quotes: ids, words, numbers and instants. */
const lineOf = (order: Order): string => `${COLUMNS.map((column) => order[column] ?? '').join(',')}\r\n`;
