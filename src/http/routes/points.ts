/** Points: awarded once per source; read as a balance with entries. */
import { Router } from 'express';
import { limits } from '../../config/limits.ts';
import { type Administration, idempotencyKey } from '../admin.ts';
import { namedCustomer } from '../callers.ts';
import type { HttpContext } from '../context.ts';
import { ProblemError } from '../problems.ts';
import { parse } from '../requests.ts';
import { awardSchema, userIdSchema } from '../schemas.ts';

type PointContext = Pick<HttpContext, 'ledger' | 'reads' | 'callers'>;

export function pointRoutes({ ledger, reads, callers }: PointContext, admin: Administration): Router {
  const router = Router();

  router.post('/users/:userId/points', ...admin.act(limits.bodyBytes), async (req, res) => {
    const userId = parse(userIdSchema, req.params.userId, 'userId');
    const award = parse(awardSchema, req.body, 'body');
    const { kind, entry } = await ledger.award({ userId, ...award }, idempotencyKey(req, res, award));
    if (kind === 'conflict') {
      throw new ProblemError(
        'idempotency-conflict',
        `${award.sourceType} ${award.sourceId} already awarded ${entry.points} points to ${userId}, not ${award.points}.`,
        { entry },
      );
    }
    res.status(kind === 'added' ? 201 : 200).json(entry);
  });

  router.get('/users/:userId/points', async (req, res) => {
    const named = parse(userIdSchema, req.params.userId, 'userId');
    const userId = namedCustomer(await callers.of(req, res), named);
    if (userId === null) throw new ProblemError('not-found', `${named} has no points.`);
    res.json(await reads.points.account(userId, limits.listLength));
  });

  return router;
}
