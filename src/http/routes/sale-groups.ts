/** Groups of customers who may buy before a sale starts for all. */
import * as z from 'zod';
import * as a from '../answer-schemas.ts';
import { json } from '../openapi-responses.ts';
import { ProblemError, unknownSale } from '../problems.ts';
import { tagged } from '../route.ts';
import * as s from '../schemas.ts';
import { knownSale } from './sales.ts';

const sale = tagged('Sales');

export const saleGroupRoutes = {
  addGroup: sale('post /sales/{saleId}/groups', 'admin', {
    summary: 'Let a group of customers buy earlier',
    description:
      'A customer of the group may buy from `opensAt` on. With codes: who presents one of them with a purchase or, with AUTH=jwt, with the request for a ticket. Without: with AUTH=jwt, whose token has the name in its claim `groups`. The same name again adds codes.',
    body: s.groupSchema,
    answers: { 201: json(a.saleGroupSchema, 'The group') },
    problems: ['idempotency-conflict'],
    async handle({ saleId, body, key, res }, { groups, ticketing }) {
      if (body.codes === undefined && ticketing === null)
        throw new ProblemError('invalid-request', 'With AUTH=none there are no tokens: a group needs codes.');
      const group = await groups.add(saleId, body, key);
      if (group === null) throw unknownSale(saleId);
      if (group === 'late') {
        const detail = `opensAt must be earlier than the start of sale ${saleId}.`;
        throw new ProblemError('invalid-request', detail);
      }
      if (group === 'differs') {
        const detail = `Sale ${saleId} has this group with another opensAt, or one of the codes in another group or with other uses. Nothing was changed.`;
        throw new ProblemError('idempotency-conflict', detail);
      }
      res.status(201).json(group);
    },
  }),
  listGroups: sale('get /sales/{saleId}/groups', 'admin', {
    summary: 'The groups of a sale',
    description: 'The first to buy first.',
    answers: { 200: json(z.array(a.saleGroupSchema), 'Groups') },
    async handle({ saleId, res }, { reads }) {
      await knownSale(reads, saleId);
      res.json(await reads.groups.list(saleId));
    },
  }),
};
