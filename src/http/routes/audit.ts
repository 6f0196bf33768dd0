/** The audit of a sale, and its part of the audit log. */
import * as z from 'zod';
import { limits } from '../../config/limits.ts';
import type { Sale } from '../../domain/sale.ts';
import { compareSale } from '../../orders/drift.ts';
import * as a from '../answer-schemas.ts';
import { json } from '../openapi-responses.ts';
import { busy } from '../problems.ts';
import { tagged } from '../route.ts';
import * as s from '../schemas.ts';
import { knownSale } from './sales.ts';

export const auditSale = tagged('Sales', true)('get /sales/{saleId}/audit', 'admin', {
  summary: 'Compare the stores for one sale',
  description:
    'The comparison of `npm run reconcile -- --check`, and whether more is sold than there was. A difference counts only if it persists for 3 seconds, so the response may take that long.',
  answers: { 200: json(a.auditSchema, 'The differences') },
  setup: () => new Set<number>(),
  async handle({ saleId, res }, { reads, strategy: { mirror } }, running) {
    const sale = await knownSale(reads, saleId);
    if (running.has(saleId)) throw busy('audit-running', `An audit of sale ${saleId} is running.`);
    running.add(saleId);
    try {
      const { differences: found, isMirrored } = await compareSale({ mirror, ...reads }, sale);
      // Not a difference between the stores, so `npm run reconcile` has nothing to say about it.
      const differences = [...oversell((await reads.sales.get(saleId)) ?? sale), ...found];
      const auditedAt = new Date().toISOString();
      res.json({ saleId, agrees: differences.length === 0, differences, isMirrored, auditedAt });
    } finally {
      running.delete(saleId);
    }
  },
});

export const readSaleLog = tagged('Sales')('get /sales/{saleId}/audit-log', 'admin', {
  summary: 'Who changed a sale and its orders',
  description: `Newest first: administrators' requests for the sale, and its orders that were cancelled, refunded or extended. From the last ${limits.auditLogScan.toLocaleString('en')} rows of the audit log.`,
  query: s.limitQuerySchema,
  answers: { 200: json(z.array(a.auditedActSchema), 'Acts') },
  async handle({ saleId, query: { limit }, res }, { reads }) {
    await knownSale(reads, saleId);
    res.json(await reads.auditLog.ofSale(saleId, limit));
  },
});

const oversell = ({ sold, stock }: Sale): readonly string[] =>
  sold > stock ? [`Oversold by ${sold - stock}: ${sold} are sold of a stock of ${stock}`] : [];
