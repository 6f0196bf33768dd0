/**
 * Task handlers by kind. A handler performs one attempt: it returns when the receiver has confirmed the task, throws when it
 * may not have received it, and stops when its signal fires.
 *
 * With a webhook, the task is posted as JSON, signed as Standard Webhooks 1.0 has it if there is a secret. Any 2xx is a confirmation;
 * everything else, including a redirect, is a failed attempt. Without a webhook, the task is logged and done. Events go to
 * another webhook, with the body of Standard Webhooks.
 */
import { unescape as decode } from 'node:querystring';
import { Webhook } from 'standardwebhooks';
import type { ClaimedTask, EventPayload, TaskKind } from '../domain/task.ts';

export type TaskHandler = (task: ClaimedTask, signal: AbortSignal) => Promise<void>;
export type TaskHandlers = ReadonlyMap<string, TaskHandler>;

export interface WebhookConfig {
  /** Null: tasks are only logged. */
  readonly taskWebhookUrl: string | null;
  /** Null: tasks are not signed. */
  readonly taskWebhookSecret: string | null;
  /** The same for events. */
  readonly eventWebhookUrl: string | null;
  readonly eventWebhookSecret: string | null;
}

/** Handlers for every kind that Stampede writes. */
export function taskHandlers(
  { taskWebhookUrl, taskWebhookSecret, eventWebhookUrl, eventWebhookSecret }: WebhookConfig,
  log: (message: string, details: object) => void,
): TaskHandlers {
  const handler = taskWebhookUrl === null ? logOnly(log, 'TASK') : webhook(taskWebhookUrl, taskWebhookSecret);
  const event =
    eventWebhookUrl === null
      ? logOnly(log, 'EVENT')
      : webhook(eventWebhookUrl, eventWebhookSecret, ({ idempotencyKey, payload }) => ({
          id: idempotencyKey,
          ...(payload as EventPayload),
        }));
  const byKind: Record<TaskKind, TaskHandler> = { ship: handler, award: handler, refund: handler, event };
  return new Map(Object.entries(byKind));
}

function logOnly(log: (message: string, details: object) => void, of: 'TASK' | 'EVENT'): TaskHandler {
  return async ({ id, kind, idempotencyKey }) => {
    log(`Task done without a webhook: ${of}_WEBHOOK_URL is not set`, { taskId: id, kind, idempotencyKey });
  };
}

/** The same id for all attempts of a task, and the time of this one. */
function signature(signer: Webhook, id: string, body: string): Record<string, string> {
  const now = new Date();
  return {
    'webhook-id': id,
    'webhook-timestamp': String(Math.floor(now.getTime() / 1_000)),
    'webhook-signature': signer.sign(id, now, body),
  };
}

const bodyOfTask = ({ id, kind, idempotencyKey, payload }: ClaimedTask): object => ({
  id,
  kind,
  key: idempotencyKey,
  payload,
});

/**
 * Posts to the URL. Its user and password become Basic authorization, because fetch rejects credentials in a URL.
 * @param bodyOf identical for every attempt, so that the receiver can compare repeats
 */
export function webhook(
  webhookUrl: string,
  secret: string | null,
  bodyOf: (task: ClaimedTask) => object = bodyOfTask,
): TaskHandler {
  const signer = secret === null ? null : new Webhook(secret);
  const url = new URL(webhookUrl);
  const credentials = `${decode(url.username)}:${decode(url.password)}`;
  const authorization = `Basic ${Buffer.from(credentials).toString('base64')}`;
  const headers = { 'content-type': 'application/json', ...(credentials !== ':' && { authorization }) };
  url.username = '';
  url.password = '';
  return async (task, signal) => {
    const { idempotencyKey } = task;
    const body = JSON.stringify(bodyOf(task));
    const signed = signer === null ? {} : signature(signer, idempotencyKey, body);
    const response = await fetch(url, {
      method: 'POST',
      headers: { ...headers, ...signed, 'idempotency-key': idempotencyKey },
      body,
      redirect: 'manual',
      signal,
    });
    await response.body?.cancel(); // the body is not read, whatever its length
    if (!response.ok) throw new Error(`the webhook answered ${response.status}`);
  };
}
