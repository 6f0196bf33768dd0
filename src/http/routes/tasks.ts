/** Tasks: listed, retried and discarded by administrators. */
import { Router } from 'express';
import type { TaskAdmin } from '../../tasks/tasks.ts';
import { type Administration, idempotencyKey } from '../admin.ts';
import { ProblemError } from '../problems.ts';
import { parse } from '../requests.ts';
import { taskIdSchema, taskQuerySchema } from '../schemas.ts';

/** Default length of the list. */
const DEFAULT_LIMIT = 100;

export function taskRoutes(tasks: TaskAdmin, admin: Administration): Router {
  const router = Router();

  router.get('/tasks', ...admin.authorize, async (req, res) => {
    const { state = null, limit = DEFAULT_LIMIT } = parse(taskQuerySchema, req.query, 'query');
    res.json(await tasks.list(state, limit));
  });

  for (const act of ['retry', 'discard'] as const)
    router.post(`/tasks/:taskId/${act}`, ...admin.act(), async (req, res) => {
      const taskId = parse(taskIdSchema, req.params.taskId, 'taskId');
      const key = idempotencyKey(req, res);
      const result =
        act === 'retry'
          ? await tasks.retry(taskId, key)
          : await tasks.discard(taskId, `admin:${res.locals.admin}`, key);
      if (result === null) throw new ProblemError('unknown-task', `Task ${taskId} does not exist.`);
      if (result.kind === 'not-dead') {
        const { state } = result.task;
        throw new ProblemError('invalid-transition', `Task ${taskId} is ${state}, not dead.`, { state });
      }
      res.json(result.task);
    });

  return router;
}
