/** Points: awarded once per source; read as a balance with entries. */
import { limits } from '../../config/limits.ts';
import * as a from '../answer-schemas.ts';
import { namedCustomer } from '../callers.ts';
import { json } from '../openapi-responses.ts';
import { ProblemError } from '../problems.ts';
import { tagged } from '../route.ts';
import * as s from '../schemas.ts';

const points = tagged('Points');

export const pointRoutes = {
  awardPoints: points('post /users/{userId}/points', 'admin', {
    summary: 'Award points, once per source',
    body: s.awardSchema,
    answers: {
      201: json(a.pointsEntrySchema, 'The entry'),
      200: json(a.pointsEntrySchema, 'The existing entry of this source'),
    },
    problems: ['idempotency-conflict'],
    async handle({ userId, body: award, key, res }, { ledger }) {
      const { kind, entry } = await ledger.award({ userId, ...award }, key);
      if (kind === 'conflict') {
        const detail = `${award.sourceType} ${award.sourceId} already awarded ${entry.points} points to ${userId}, not ${award.points}.`;
        throw new ProblemError('idempotency-conflict', detail, { entry });
      }
      res.status(kind === 'added' ? 201 : 200).json(entry);
    },
  }),
  getPoints: points('get /users/{userId}/points', 'customer', {
    summary: 'Balance and entries, newest first',
    answers: { 200: json(a.pointsSchema, 'The account') },
    problems: ['not-found'],
    async handle({ userId: named, caller, res }, { reads }) {
      const userId = namedCustomer(caller, named);
      if (userId === null) throw new ProblemError('not-found', `${named} has no points.`);
      res.json(await reads.points.account(userId, limits.listLength));
    },
  }),
};
