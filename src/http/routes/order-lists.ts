/** The orders of a sale, for administrators: lists with filters, and the export. */
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { type RequestHandler, Router } from 'express';
import { limits } from '../../config/limits.ts';
import type { Order, OrderQuery } from '../../domain/order.ts';
import { type Administration, isLocal } from '../admin.ts';
import type { HttpContext } from '../context.ts';
import { parse } from '../requests.ts';
import { exportQuerySchema, orderListQuerySchema, saleIdSchema } from '../schemas.ts';
import { unknownSale } from './sales.ts';

type OrderListContext = Pick<HttpContext, 'reads' | 'ticketing' | 'adminTokens'>;

/** The columns of the export, in their order. */
const COLUMNS = [
  ...(['orderId', 'userId', 'status', 'quantity', 'priceCents', 'amountCents'] as const),
  ...(['createdAt', 'expiresAt', 'paidAt', 'closedAt'] as const),
] as const satisfies readonly (keyof Order)[];
/** Orders that the export reads at once. */
const PAGE = 1_000;

export function orderListRoutes(context: OrderListContext, admin: Administration): Router {
  const { orders, sales } = context.reads;
  const router = Router();

  async function knownSale(text: unknown): Promise<number> {
    const saleId = parse(saleIdSchema, text, 'saleId');
    if (saleId > limits.maxSaleId || (await sales.get(saleId)) === null) throw unknownSale(saleId);
    return saleId;
  }

  router.get('/sales/:saleId/orders', unlessOfOne(context), ...admin.authorize, async (req, res) => {
    const query = parse(orderListQuerySchema, req.query, 'query');
    const saleId = await knownSale(req.params.saleId);
    const { limit = limits.pageLength } = query;
    const page = await orders.list(saleId, { ...query, limit });
    const last = page.at(-1);
    if (last !== undefined && page.length === limit) {
      const { status = '', search = '' } = query;
      const next = new URLSearchParams({ before: last.orderId, limit: `${limit}`, status, search });
      for (const [name, value] of [...next]) if (value === '') next.delete(name);
      res.setHeader('Link', `</sales/${saleId}/orders?${next}>; rel="next"`);
    }
    res.json(page);
  });

  router.get('/sales/:saleId/orders.csv', ...admin.authorize, async (req, res) => {
    const filter = parse(exportQuerySchema, req.query, 'query');
    const saleId = await knownSale(req.params.saleId);
    const pages = pagesOf((query) => orders.list(saleId, { ...filter, ...query }));
    const first = await pages.next(); // a store that fails now is answered with a problem
    res.type('text/csv').attachment(`sale-${saleId}-orders.csv`);
    async function* lines() {
      yield `${COLUMNS.join(',')}\r\n`;
      for (let page = first; !page.done; page = await pages.next()) yield page.value.map(lineOf).join('');
    }
    // When a store fails later, the connection is cut: the client must not take a part for the whole.
    await pipeline(Readable.from(lines()), res).catch((error) => res.destroy(error));
  });

  return router;
}

/** Skips requests about one customer: those that name one, and with AUTH=jwt those that are not an administrator's. */
function unlessOfOne({ ticketing, adminTokens }: OrderListContext): RequestHandler {
  return (req, _res, next) => {
    // Where no token is set, an administrator on this machine sends none, and a customer the issuer's.
    const isOpen = adminTokens?.areSet === false && req.headers.authorization === undefined;
    const isAdmin = (isOpen && isLocal(req)) || (adminTokens?.nameOf(req) ?? null) !== null;
    next((ticketing !== null && !isAdmin) || req.query.userId !== undefined ? 'route' : undefined);
  };
}

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
