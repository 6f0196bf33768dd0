/**
 * Task handlers by kind. A handler performs one attempt: it returns when the receiver has confirmed the task, throws when it
 * may not have received it, and stops when its signal fires.
 *
 * With a webhook, the task is posted as JSON, signed as Standard Webhooks 1.0 has it if there is a secret. Any 2xx is a confirmation;
 * everything else, including a redirect, is a failed attempt. Events go to another webhook, with the body of Standard Webhooks.
 *
 * Kinds of tasks whose webhook is not configured have no handler and wait: see receivers.ts. With the URL `none` they are logged and
 * done.
 */
import { unescape as decode } from 'node:querystring';
import { Webhook } from 'standardwebhooks';
import type { Config } from '../config/env.ts';
import { NONE } from '../config/values.ts';
import type { ClaimedTask, EventPayload, TaskKind } from '../domain/task.ts';
import { RECEIVERS } from './receivers.ts';

export type TaskHandler = (task: ClaimedTask, signal: AbortSignal) => Promise<void>;
export type TaskHandlers = ReadonlyMap<string, TaskHandler>;

/** Handlers for every kind that Stampede writes; null: tasks of the kind wait. */
export function taskHandlers(
  {
    taskWebhookUrl,
    taskWebhookSecret,
    eventWebhookUrl,
    eventWebhookSecret,
  }: Pick<Config, 'taskWebhookUrl' | 'taskWebhookSecret' | 'eventWebhookUrl' | 'eventWebhookSecret'>,
  log: (message: string, details: object) => void,
): Readonly<Record<TaskKind, TaskHandler | null>> {
  const eventOf = ({ idempotencyKey, payload }: ClaimedTask): object => ({
    id: idempotencyKey,
    ...(payload as EventPayload),
  });
  const to = (variable: string, url: string | null, secret: string | null, bodyOf: typeof bodyOfTask) => {
    if (url === null) return null;
    return url === NONE ? logOnly(log, variable) : webhook(url, secret, bodyOf);
  };
  const task = to(RECEIVERS.ship, taskWebhookUrl, taskWebhookSecret, bodyOfTask);
  const event = to(RECEIVERS.event, eventWebhookUrl, eventWebhookSecret, eventOf);
  return { ship: task, award: task, refund: task, event };
}

function logOnly(log: (message: string, details: object) => void, variable: string): TaskHandler {
  return async ({ id, kind, idempotencyKey }) => {
    log(`Task done without a receiver, which ${variable} names`, { taskId: id, kind, idempotencyKey });
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
