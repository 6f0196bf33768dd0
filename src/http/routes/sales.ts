/** Sales: create, read, change, restock. */
import * as z from 'zod';
import { limits } from '../../config/limits.ts';
import type { Sale } from '../../domain/sale.ts';
import type { RefusedChange, SaleChanges } from '../../store/postgres/sales.ts';
import type { Strategy } from '../../strategies/strategy.ts';
import * as a from '../answer-schemas.ts';
import { json, location, nextPage } from '../openapi-responses.ts';
import { busy, outcomeUnread, ProblemError, unknownSale } from '../problems.ts';
import type { Reads } from '../reads.ts';
import { linkNext, tagged } from '../route.ts';
import * as s from '../schemas.ts';

const sale = tagged('Sales');

/** Requests that share a read share its text. */
const texts = new WeakMap<readonly Sale[], string>();

function textOf(page: readonly Sale[]): string {
  const text = texts.get(page) ?? JSON.stringify(page);
  texts.set(page, text);
  return text;
}

/** @throws ProblemError for a sale that does not exist */
export async function knownSale({ sales }: Pick<Reads, 'sales'>, saleId: number): Promise<Sale> {
  const sale = await sales.get(saleId);
  if (sale === null) throw unknownSale(saleId);
  return sale;
}

function uncheckable(): ProblemError {
  const detail =
    'CONFIRM=accepted answers before the commit, which checks the limit of a customer: a sale has no limitGroup there.';
  return new ProblemError('not-supported', detail);
}

/** @throws ProblemError when Redis decides: it would show a unit free between its release and the next order */
function refuseHold(
  { mirror }: Pick<Strategy, 'mirror'>,
  { waitlist }: { readonly waitlist?: string | undefined },
) {
  if (waitlist === 'hold' && mirror !== null)
    throw new ProblemError('not-supported', '`waitlist: hold` needs a strategy that decides in Postgres.');
}

const REFUSED_CHANGE: Readonly<Record<RefusedChange, string>> = {
  'ends-before-start': 'would end before it starts: endsAt must be later than startsAt',
  'too-dear': `would have orders of more than ${limits.maxAmountCents}, its maxPerOrder times its priceCents`,
  'half-limit': 'would have one of limitGroup and maxPerCustomer without the other',
  'group-fixed':
    'has active orders, which are counted in its limitGroup. Change maxPerCustomer alone, or cancel them first',
  'currency-fixed': 'has orders, whose amounts are in its currency',
};

export const saleRoutes = {
  listSales: sale('get /sales', 'anyone', {
    summary: 'Sales, newest first',
    description:
      '`search` finds sales whose name has the text, in any case that the locale of the database knows.',
    query: s.pageQuerySchema,
    answers: { 200: json(z.array(a.saleSchema), 'Sales', nextPage('/sales')) },
    async handle({ query, res }, { reads }) {
      const page = await reads.sales.list(query);
      linkNext(res, '/sales', page, query, ({ id }) => id);
      res.type('json').send(textOf(page));
    },
  }),
  createSale: sale('post /sales', 'admin', {
    summary: 'Create a sale',
    description: '`priceCents` is in the smallest unit of the currency.',
    body: s.newSaleSchema,
    answers: { 201: json(a.saleSchema, 'The sale', location('sale')) },
    problems: ['not-supported'],
    async handle({ body, key, res }, { sales, strategy, confirm }) {
      if (confirm === 'accepted' && body.limitGroup !== null) throw uncheckable();
      refuseHold(strategy, body);
      const sale = await sales.create(body, key);
      await strategy.load?.(sale);
      res.status(201).location(`/sales/${sale.id}`).json(sale);
    },
  }),
  getSale: sale('get /sales/{saleId}', 'anyone', {
    summary: 'One sale',
    description: 'A browser, whose `Accept` prefers `text/html`, gets the page of the sale.',
    answers: { 200: json(a.saleSchema, 'The sale') },
    handle: async ({ saleId, res }, { reads }) => res.json(await knownSale(reads, saleId)),
  }),
  changeSale: sale('patch /sales/{saleId}', 'admin', {
    summary: 'Change a sale, or pause it',
    description:
      'Once it is answered, no process sells by the old terms. Orders keep their price and their time to pay, also those answered with 202 that are not committed yet. `limitGroup` changes only while the sale has no active orders; a lower `maxPerCustomer` touches none. A repeat changes nothing more.',
    body: s.saleChangesSchema,
    answers: { 200: json(a.saleSchema, 'The sale') },
    problems: ['not-supported'],
    async handle({ saleId, body, res }, { sales, strategy, confirm, onStoreError }) {
      if (
        confirm === 'accepted' &&
        ((body as SaleChanges).limitGroup ?? (await sales.get(saleId))?.limitGroup)
      )
        throw uncheckable();
      refuseHold(strategy, body);
      const sale = await sales.change(saleId, body as SaleChanges, strategy.mirror !== null);
      if (sale === null) throw unknownSale(saleId);
      if (typeof sale === 'string')
        throw new ProblemError('invalid-request', `Sale ${saleId} ${REFUSED_CHANGE[sale]}.`);
      try {
        await strategy.setTerms?.(sale);
      } catch (error) {
        onStoreError('set-terms', error, { saleId });
        throw outcomeUnread(); // Postgres has it; the reaper brings it to Redis
      }
      res.json(sale);
    },
  }),
};

/** All orders of a sale are cancelled or refunded in the background. */
export const saleRefundRoutes = {
  refundSale: sale('post /sales/{saleId}/refund', 'admin', {
    summary: 'Cancel all unpaid orders of a sale, and refund the paid ones',
    description:
      'It works in the background, through restarts, and covers the orders that exist now: pause the sale first. With `"returnUnits": false` the units leave the stock. A repeat while it runs covers the orders placed since, too.',
    body: s.refundSchema,
    mayOmitBody: true,
    answers: { 202: json(a.saleRefundSchema, 'Its progress', location('refund')) },
    problems: ['invalid-transition'],
    async handle({ saleId, body, caller: { actor }, key, res }, { refunds }) {
      const refund = await refunds.request(saleId, { ...body, actor }, key);
      if (refund === null) throw unknownSale(saleId);
      if (refund === 'differs') {
        const detail = `A refund of sale ${saleId} is running with returnUnits ${!body.returnUnits}. Wait until it has finished.`;
        throw new ProblemError('invalid-transition', detail);
      }
      res.status(202).location(`/sales/${saleId}/refund`).json(refund);
    },
  }),
  getSaleRefund: sale('get /sales/{saleId}/refund', 'admin', {
    summary: 'The progress of the last refund of a sale',
    answers: { 200: json(a.saleRefundSchema, 'Its progress') },
    async handle({ saleId, res }, { reads }) {
      const refund = await reads.refunds.get(saleId);
      if (refund !== null) return res.json(refund);
      await knownSale(reads, saleId);
      throw new ProblemError('not-found', `Sale ${saleId} has no refund.`);
    },
  }),
  previewSaleRefund: sale('get /sales/{saleId}/refund/preview', 'admin', {
    summary: 'What a refund of a sale would close now, and its last one',
    answers: { 200: json(a.refundPreviewSchema, 'Numbers of orders') },
    async handle({ saleId, res }, { reads }) {
      await knownSale(reads, saleId);
      res.json(await reads.refunds.preview(saleId));
    },
  }),
};

export const restockSale = sale('post /sales/{saleId}/restock', 'admin', {
  summary: 'Add units, or remove unsold ones',
  description: 'Negative units reduce the stock.',
  body: s.restockSchema,
  answers: { 200: json(a.saleSchema, 'The sale') },
  problems: ['below-sold'],
  async handle({ saleId, body: { units }, key, res }, { strategy }) {
    const sale = await strategy.restock(saleId, units, key);
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
  },
});
