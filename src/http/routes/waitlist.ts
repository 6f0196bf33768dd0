/** The waitlist of a sold-out sale. */
import * as z from 'zod';
import { limits } from '../../config/limits.ts';
import * as a from '../answer-schemas.ts';
import { namedCustomer } from '../callers.ts';
import { json } from '../openapi-responses.ts';
import { ProblemError, unknownSale } from '../problems.ts';
import type { Reads } from '../reads.ts';
import { parse } from '../requests.ts';
import { tagged } from '../route.ts';
import * as s from '../schemas.ts';
import { knownSale } from './sales.ts';

const sale = tagged('Sales');

/** Also for another customer's entry. */
const notWaiting = (userId: string, saleId: number) =>
  new ProblemError('not-found', `${userId} is not on the waitlist of sale ${saleId}.`);

const NOT_SOLD_OUT = {
  'units-left': 'has as many units left, or orders that are being committed: buy, or join again',
  'not-started': 'has not started, and has as many units: join when they are sold',
  paused: 'is paused, and has as many units left: join when they are sold',
};

/** @throws ProblemError for a sale that does not exist */
async function existing(reads: Reads, saleId: number): Promise<void> {
  if (saleId > limits.maxSaleId) throw unknownSale(saleId);
  await knownSale(reads, saleId);
}

export const waitlistRoutes = {
  joinWaitlist: sale('post /sales/{saleId}/waitlist', 'customer', {
    summary: 'Wait for units of a sold-out sale',
    description:
      'When units become free, waiting customers are named, the first ones first: their entries have `namedAt`, and the event `sale.units-returned` has their ids. A customer who waits for more units than are free keeps the place. When those who were named have not bought within 10 minutes, the next are named. No unit is reserved for them. A customer who was named may join again. With AUTH=jwt, the token names the customer.',
    body: s.waitlistSchema,
    mayOmitBody: true,
    answers: {
      201: json(a.waitlistEntrySchema, 'The customer waits'),
      200: json(a.waitlistEntrySchema, 'The customer waited already, and keeps the place'),
    },
    problems: ['not-sold-out', 'sale-not-open'],
    async handle({ saleId, body: { quantity, ...body }, caller, res }, { waitlist }) {
      const userId = caller.customer ?? parse(s.userIdSchema, body.userId, 'body.userId');
      const result = saleId > limits.maxSaleId ? null : await waitlist.join(saleId, userId, quantity);
      if (result === null) throw unknownSale(saleId);
      if (result === 'ended')
        throw new ProblemError('sale-not-open', `Sale ${saleId} has ended.`, { reason: result });
      if (typeof result === 'string')
        throw new ProblemError('not-sold-out', `Sale ${saleId} ${NOT_SOLD_OUT[result]}.`);
      if (result.kind === 'over-limit')
        throw new ProblemError(
          'invalid-request',
          `An order of sale ${saleId} may have at most ${result.maxPerOrder} units.`,
        );
      res.status(result.kind === 'joined' ? 201 : 200).json(result.entry);
    },
  }),
  listWaitlist: sale('get /sales/{saleId}/waitlist', 'admin', {
    summary: 'Who waits for units of a sale',
    description: 'In the order in which they joined; those who were named have `namedAt`.',
    query: s.limitQuerySchema,
    answers: { 200: json(z.array(a.waitlistEntrySchema), 'Entries') },
    async handle({ saleId, query: { limit }, res }, { reads }) {
      await knownSale(reads, saleId);
      res.json(await reads.waitlist.list(saleId, limit));
    },
  }),
  getWaitlistEntry: sale('get /sales/{saleId}/waitlist/{userId}', 'customer', {
    summary: "A customer's place in the waitlist",
    description: '`me` is the customer of the token.',
    answers: { 200: json(a.waitlistEntrySchema, 'The entry') },
    problems: ['not-found'],
    async handle({ saleId, userId: named, caller, res }, { reads }) {
      const userId = namedCustomer(caller, named);
      await existing(reads, saleId);
      const entry = userId === null ? null : await reads.waitlist.find(saleId, userId);
      if (entry === null) throw notWaiting(named, saleId);
      res.json(entry);
    },
  }),
  leaveWaitlist: sale('delete /sales/{saleId}/waitlist/{userId}', 'customer', {
    summary: 'Leave the waitlist',
    answers: { 204: { description: 'The customer is not on the waitlist' } },
    problems: ['not-found'],
    async handle({ saleId, userId: named, caller, res }, { reads, waitlist }) {
      const userId = namedCustomer(caller, named);
      await existing(reads, saleId);
      if (userId === null) throw notWaiting(named, saleId);
      await waitlist.leave(saleId, userId);
      res.status(204).end();
    },
  }),
};
