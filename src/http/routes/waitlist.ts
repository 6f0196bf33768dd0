/** The waitlist of a sold-out sale. */
import { limits } from '../../config/limits.ts';
import * as a from '../answer-schemas.ts';
import { json } from '../openapi-responses.ts';
import { ProblemError, unknownSale } from '../problems.ts';
import { parse } from '../requests.ts';
import { tagged } from '../route.ts';
import * as s from '../schemas.ts';

export const joinWaitlist = tagged('Sales')('post /sales/{saleId}/waitlist', 'customer', {
  summary: 'Wait for units of a sold-out sale',
  description:
    'Only with EVENTS that include sale.units-returned. When units become free, the event names as many waiting customers, the first ones first; when they have not bought within 10 minutes, it names the next. No unit is reserved for them. A customer who was named may join again. With AUTH=jwt, the token names the customer.',
  body: s.waitlistSchema,
  mayOmitBody: true,
  answers: {
    201: json(a.waitlistEntrySchema, 'The customer waits'),
    200: json(a.waitlistEntrySchema, 'The customer waited already, and keeps the place'),
  },
  problems: ['not-found', 'not-sold-out', 'sale-not-open'],
  isServed: ({ waitlist }) => waitlist !== null,
  async handle({ saleId, body, caller, res }, { waitlist }) {
    const userId = caller.customer ?? parse(s.userIdSchema, body.userId, 'body.userId');
    const result = saleId > limits.maxSaleId ? null : await waitlist!.join(saleId, userId);
    if (result === null) throw unknownSale(saleId);
    if (result === 'ended')
      throw new ProblemError('sale-not-open', `Sale ${saleId} has ended.`, { reason: result });
    if (result === 'units-left')
      throw new ProblemError(
        'not-sold-out',
        `Sale ${saleId} has units left, or orders that are being committed: buy, or join again.`,
      );
    res.status(result.kind === 'joined' ? 201 : 200).json(result.entry);
  },
});
