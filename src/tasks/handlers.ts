/**
 * What happens outside, by kind of task. A handler answers for one attempt: it returns when the outside has it, throws
 * when it may not have it, and ends when its signal fires.
 *
 * With a webhook, the task is posted there as JSON. Any 2xx says that the outside has it; everything else, a redirect
 * too, is a failed attempt. Without one there is no outside: the task is logged, and done.
 */
import { unescape as decode } from 'node:querystring';
import type { ClaimedTask } from '../domain/task.ts';
import type { TaskKind } from '../store/postgres/add-task.ts';

export type TaskHandler = (task: ClaimedTask, signal: AbortSignal) => Promise<void>;
export type TaskHandlers = ReadonlyMap<string, TaskHandler>;

/** The handlers of every kind that Stampede writes. @param webhookUrl null: there is no outside */
export function outsideHandlers(
  webhookUrl: string | null,
  log: (message: string, details: object) => void,
): TaskHandlers {
  const handler = webhookUrl === null ? logOnly(log) : webhook(webhookUrl);
  const byKind: Record<TaskKind, TaskHandler> = { ship: handler, award: handler, refund: handler };
  return new Map(Object.entries(byKind));
}

function logOnly(log: (message: string, details: object) => void): TaskHandler {
  return async ({ id, kind, idempotencyKey }) => {
    log('a task is done here: no TASK_WEBHOOK_URL says whom to tell', { taskId: id, kind, idempotencyKey });
  };
}

/** Posts to the URL; a user and password in it become Basic authorization, since fetch refuses them there. */
export function webhook(webhookUrl: string): TaskHandler {
  const url = new URL(webhookUrl);
  const credentials = `${decode(url.username)}:${decode(url.password)}`;
  const authorization = `Basic ${Buffer.from(credentials).toString('base64')}`;
  const headers = { 'content-type': 'application/json', ...(credentials !== ':' && { authorization }) };
  url.username = '';
  url.password = '';
  return async ({ id, kind, idempotencyKey, payload }, signal) => {
    const response = await fetch(url, {
      method: 'POST',
      headers: { ...headers, 'idempotency-key': idempotencyKey },
      // The same for every attempt: who gets it twice may compare.
      body: JSON.stringify({ id, kind, key: idempotencyKey, payload }),
      redirect: 'manual',
      signal,
    });
    await response.body?.cancel(); // what it says is not read, however long it is
    if (!response.ok) throw new Error(`the webhook answered ${response.status}`);
  };
}
