/** Tasks: listed, retried and discarded by administrators. */
import * as z from 'zod';
import type { TaskAdmin } from '../../tasks/tasks.ts';
import * as a from '../answer-schemas.ts';
import { json } from '../openapi-responses.ts';
import { ProblemError } from '../problems.ts';
import { tagged } from '../route.ts';
import * as s from '../schemas.ts';

const task = tagged('Tasks', true);

export const taskRoutes = {
  listTasks: task('get /tasks', 'admin', {
    summary: 'Tasks, newest first',
    query: s.taskQuerySchema,
    answers: { 200: json(z.array(a.taskSchema), 'Tasks') },
    handle: async ({ query: { state = null, limit }, res }, { tasks }) =>
      res.json(await tasks.list(state, limit)),
  }),
  retryTask: task('post /tasks/{taskId}/retry', 'admin', {
    summary: 'Retry a dead task',
    answers: { 200: json(a.taskSchema, 'The task, now waiting') },
    problems: ['invalid-transition'],
    handle: async ({ taskId, key, res }, { tasks }) =>
      res.json(changed(taskId, await tasks.retry(taskId, key))),
  }),
  discardTask: task('post /tasks/{taskId}/discard', 'admin', {
    summary: 'End a dead task without its effect',
    description: 'A discarded event no longer holds up the later ones of its order or sale.',
    answers: { 200: json(a.taskSchema, 'The task, now done') },
    problems: ['invalid-transition'],
    handle: async ({ taskId, caller: { actor }, key, res }, { tasks }) =>
      res.json(changed(taskId, await tasks.discard(taskId, actor, key))),
  }),
};

/** The task that was changed. @throws ProblemError if there is none, or it is not dead */
function changed(taskId: number, result: Awaited<ReturnType<TaskAdmin['retry' | 'discard']>>) {
  if (result === null) throw new ProblemError('unknown-task', `Task ${taskId} does not exist.`);
  if (result.kind !== 'not-dead') return result.task;
  const { state } = result.task;
  throw new ProblemError('invalid-transition', `Task ${taskId} is ${state}, not dead.`, { state });
}
