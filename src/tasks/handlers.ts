/**
 * Task handlers by kind. A handler performs one attempt: it returns when the receiver has confirmed the task, throws when it
 * may not have received it, and stops when its signal fires.
 *
 * With a webhook, the task is posted as JSON. Any 2xx is a confirmation; everything else, including a redirect, is a failed
 * attempt. Without a webhook, the task is logged and done.
 */
import { unescape as decode } from 'node:querystring';
import type { ClaimedTask } from '../domain/task.ts';
import type { TaskKind } from '../store/postgres/add-task.ts';

export type TaskHandler = (task: ClaimedTask, signal: AbortSignal) => Promise<void>;
export type TaskHandlers = ReadonlyMap<string, TaskHandler>;

/** Handlers for every kind that Stampede writes. @param webhookUrl null: tasks are only logged */
export function taskHandlers(
  webhookUrl: string | null,
  log: (message: string, details: object) => void,
): TaskHandlers {
  const handler = webhookUrl === null ? logOnly(log) : webhook(webhookUrl);
  const byKind: Record<TaskKind, TaskHandler> = { ship: handler, award: handler, refund: handler };
  return new Map(Object.entries(byKind));
}

function logOnly(log: (message: string, details: object) => void): TaskHandler {
  return async ({ id, kind, idempotencyKey }) => {
    log('Task done without a webhook: TASK_WEBHOOK_URL is not set', { taskId: id, kind, idempotencyKey });
  };
}

/** Posts to the URL. Its user and password become Basic authorization, because fetch rejects credentials in a URL. */
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
      // Identical for every attempt, so that the receiver can compare repeats.
      body: JSON.stringify({ id, kind, key: idempotencyKey, payload }),
      redirect: 'manual',
      signal,
    });
    await response.body?.cancel(); // the body is not read, whatever its length
    if (!response.ok) throw new Error(`the webhook answered ${response.status}`);
  };
}
