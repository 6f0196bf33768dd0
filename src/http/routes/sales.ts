/** Sales: create, read, change, restock. */
import { Router } from 'express';
import { limits } from '../../config/limits.ts';
import type { Sale } from '../../domain/sale.ts';
import type { SaleChanges } from '../../store/postgres/sales.ts';
import { type Administration, idempotencyKey } from '../admin.ts';
import type { HttpContext } from '../context.ts';
import { busy, outcomeUnread, ProblemError } from '../problems.ts';
import { optionalBody, parse } from '../requests.ts';
import {
  newSaleSchema,
  pageQuerySchema,
  refundSchema,
  restockSchema,
  saleChangesSchema,
  saleIdSchema,
} from '../schemas.ts';

type SaleContext = Pick<HttpContext, 'refunds' | 'sales' | 'reads' | 'strategy' | 'onStoreError'>;

/** Requests that share a read share its text. */
const texts = new WeakMap<readonly Sale[], string>();

function textOf(page: readonly Sale[]): string {
  const text = texts.get(page) ?? JSON.stringify(page);
  texts.set(page, text);
  return text;
}

export function saleRoutes(context: SaleContext, admin: Administration): Router {
  const router = Router();
  addReads(router, context);
  addChanges(router, context, admin);
  addRefunds(router, context, admin);
  return router;
}

function addChanges(
  router: Router,
  { sales, strategy, onStoreError }: SaleContext,
  admin: Administration,
): void {
  router.post('/sales', ...admin.act(limits.bodyBytes), async (req, res) => {
    const given = parse(newSaleSchema, req.body, 'body');
    const sale = await sales.create(given, idempotencyKey(req, res, given));
    await strategy.load?.(sale);
    res.status(201).location(`/sales/${sale.id}`).json(sale);
  });

  router.patch('/sales/:saleId', ...admin.act(limits.bodyBytes), async (req, res) => {
    const saleId = possibleId(parse(saleIdSchema, req.params.saleId, 'saleId'));
    const changes = parse(saleChangesSchema, req.body, 'body') as SaleChanges;
    const sale = await sales.change(saleId, changes);
    if (sale === null) throw unknownSale(saleId);
    if (sale === 'invalid') {
      const detail = `Sale ${saleId} would end before it begins, or an order would cost more than ${limits.maxAmountCents}.`;
      throw new ProblemError('invalid-request', detail);
    }
    try {
      await strategy.setTerms?.(sale);
    } catch (error) {
      onStoreError('set-terms', error, { saleId });
      throw outcomeUnread(); // Postgres has it; the reaper brings it to Redis
    }
    res.json(sale);
  });

  router.post('/sales/:saleId/restock', ...admin.act(limits.bodyBytes), async (req, res) => {
    const saleId = possibleId(parse(saleIdSchema, req.params.saleId, 'saleId'));
    const given = parse(restockSchema, req.body, 'body');
    const { units } = given;
    const sale = await strategy.restock(saleId, units, idempotencyKey(req, res, given));
    if (sale === null) throw unknownSale(saleId);
    if (sale === 'busy') throw busy('sale-not-loaded');
    if (sale === 'below-sold') {
      const detail =
        units < 0
          ? `Sale ${saleId} has fewer than ${-units} unsold units.`
          : `Sale ${saleId} would have more than ${limits.maxUnits} units.`;
      throw new ProblemError(units < 0 ? 'below-sold' : 'invalid-request', detail);
    }
    res.json(sale);
  });
}

/** All orders of a sale are cancelled or refunded in the background. */
function addRefunds(router: Router, { refunds, reads }: SaleContext, admin: Administration): void {
  router.post('/sales/:saleId/refund', ...admin.act(limits.bodyBytes), async (req, res) => {
    const saleId = possibleId(parse(saleIdSchema, req.params.saleId, 'saleId'));
    const given = parse(refundSchema, optionalBody(req), 'body');
    const how = { ...given, actor: `admin:${res.locals.admin}` };
    const refund = await refunds.request(saleId, how, idempotencyKey(req, res, given));
    if (refund === null) throw unknownSale(saleId);
    if (refund === 'differs') {
      const detail = `A refund of sale ${saleId} is running with returnUnits ${!given.returnUnits}. Wait until it has finished.`;
      throw new ProblemError('invalid-transition', detail);
    }
    res.status(202).location(`/sales/${saleId}/refund`).json(refund);
  });

  router.get('/sales/:saleId/refund', ...admin.authorize, async (req, res) => {
    const saleId = possibleId(parse(saleIdSchema, req.params.saleId, 'saleId'));
    const refund = await reads.refunds.get(saleId);
    if (refund !== null) return void res.json(refund);
    if ((await reads.sales.get(saleId)) === null) throw unknownSale(saleId);
    throw new ProblemError('not-found', `Sale ${saleId} has no refund.`);
  });
}

function addReads(router: Router, { reads }: Pick<SaleContext, 'reads'>): void {
  router.get('/sales', async (req, res) => {
    const { limit = limits.pageLength, ...given } = parse(pageQuerySchema, req.query, 'query');
    const page = await reads.sales.list({ limit, ...given });
    const last = page.at(-1);
    if (last !== undefined && page.length === limit) {
      const { search = '', state = '' } = given;
      const next = new URLSearchParams({ before: `${last.id}`, limit: `${limit}`, search, state });
      for (const [name, value] of [...next]) if (value === '') next.delete(name);
      res.setHeader('Link', `</sales?${next}>; rel="next"`);
    }
    res.type('json').send(textOf(page));
  });

  router.get('/sales/:saleId', async (req, res) => {
    const saleId = possibleId(parse(saleIdSchema, req.params.saleId, 'saleId'));
    const sale = await reads.sales.get(saleId);
    if (sale === null) throw unknownSale(saleId);
    res.json(sale);
  });
}

export function unknownSale(saleId: number): ProblemError {
  return new ProblemError('unknown-sale', `Sale ${saleId} does not exist.`);
}

/** @throws ProblemError for an id beyond those of the database */
function possibleId(saleId: number): number {
  if (saleId > limits.maxSaleId) throw unknownSale(saleId);
  return saleId;
}
