/** Tasks as operators see them, and try them again. */
import type { RequestHandler } from 'express';
import { Router } from 'express';
import type { TaskDesk } from '../../tasks/tasks.ts';
import { ProblemError } from '../problems.ts';
import { parse } from '../requests.ts';
import { taskIdSchema, taskQuerySchema } from '../schemas.ts';

/** Tasks in a list whose length nobody asked for. */
const LENGTH = 100;

export function taskRoutes(tasks: TaskDesk, admin: RequestHandler[]): Router {
  const router = Router();

  router.get('/tasks', ...admin, async (req, res) => {
    const { state = null, limit = LENGTH } = parse(taskQuerySchema, req.query, 'query');
    res.json(await tasks.list(state, limit));
  });

  router.post('/tasks/:taskId/retry', ...admin, async (req, res) => {
    const taskId = parse(taskIdSchema, req.params.taskId, 'taskId');
    const result = await tasks.retry(taskId);
    if (result === null) throw new ProblemError('unknown-task', `There is no task ${taskId}.`);
    if (result.kind === 'not-dead') {
      const { state } = result.task;
      throw new ProblemError('invalid-transition', `Task ${taskId} is ${state}, not dead.`, { state });
    }
    res.json(result.task);
  });

  return router;
}
