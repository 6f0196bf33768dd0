/** A customer and an administrator, over HTTP. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect } from 'vitest';
import type { Sale } from '../../src/domain/sale.ts';
import { undescribed } from './openapi.ts';

export { eventually } from '../../lab/kit/eventually.ts';

export interface Answer {
  readonly status: number;
  readonly body: Record<string, unknown>;
  /** The last part of a problem's type, or '' for any other answer. */
  readonly problem: string;
  readonly headers: Headers;
}

/** A wait that asks again does not hide them. */
const notDescribed: string[] = [];
afterEach(() => expect(notDescribed.splice(0)).toEqual([]));

/** An answer that /openapi.json does not describe fails the test. @throws for it */
export async function call(url: string, init: RequestInit = {}): Promise<Answer> {
  const response = await fetch(url, init);
  const { status, headers } = response;
  const type = headers.get('content-type') ?? '';
  const isStream = type === 'text/event-stream';
  const text = isStream ? await firstEvent(response) : await response.text();
  const received: unknown = type.includes('json') || (isStream && text !== '') ? JSON.parse(text) : text;
  const { method = 'GET' } = init;
  if (method !== 'HEAD') {
    const wrong = undescribed(method, new URL(url).pathname, { status, headers, body: received });
    if (wrong !== null) {
      notDescribed.push(`${method} ${url}: ${status} ${text} is not as described: ${wrong}`);
      throw new Error(notDescribed.at(-1));
    }
  }
  const body = (typeof received === 'string' ? { text } : received) as Record<string, unknown>;
  const problem =
    String(body.type ?? '')
      .split('/')
      .at(-1) ?? '';
  return { status, body, problem, headers };
}

/** Reads the data of a stream's first event, and ends the stream. */
async function firstEvent({ body }: Response): Promise<string> {
  let text = '';
  for await (const chunk of body ?? []) {
    text += Buffer.from(chunk).toString();
    const data = /^data: (.*)\n\n/m.exec(text)?.[1];
    if (data !== undefined) return data;
  }
  return '';
}

/** @param token of a customer or an administrator, or a ticket */
export const post = (url: string, body: unknown, token: string | null = null): Promise<Answer> =>
  send('POST', url, body, token);
export const patch = (url: string, body: unknown): Promise<Answer> => send('PATCH', url, body, null);

function send(method: string, url: string, body: unknown, token: string | null): Promise<Answer> {
  const authorization = token !== null && { authorization: `Bearer ${token}` };
  const headers = { 'content-type': 'application/json', ...authorization };
  return call(url, { method, headers, body: JSON.stringify(body) });
}

export async function createSale(service: string, stock: number, more: object = {}): Promise<Sale> {
  const { status, body } = await post(`${service}/sales`, { name: 'test', stock, priceCents: 500, ...more });
  if (status !== 201) throw new Error(`the sale was not made: ${JSON.stringify(body)}`);
  return body as unknown as Sale;
}

/** One attempt. */
export function attempt(service: string, saleId: number, userId: string, quantity = 1): Promise<Answer> {
  return post(`${service}/sales/${saleId}/orders`, quantity === 1 ? { userId } : { userId, quantity });
}

/**
 * Repeats an attempt while its answer is `busy` or `unknown-outcome`, or its connection fails, for at most `ms`. The pauses grow:
 * hundreds of customers who retry at once would overload a slow machine.
 * @returns the last answer; 200 also when an earlier request placed the order and its answer was lost or unknown
 */
export async function buy(
  service: string,
  saleId: number,
  userId: string,
  quantity = 1,
  ms = 120_000,
): Promise<Answer> {
  const untilMs = performance.now() + ms;
  for (let pauseMs = 40; ; pauseMs = Math.min(pauseMs * 1.3, 1_000)) {
    const answer = await attempt(service, saleId, userId, quantity).catch((error: Error) => error);
    if (!(answer instanceof Error) && answer.status !== 503) return answer;
    if (performance.now() > untilMs)
      throw answer instanceof Error ? answer : new Error(JSON.stringify(answer.body));
    await sleep(pauseMs * (0.5 + Math.random()));
  }
}

/** Works on items twenty at a time: more would wait for each other on a slow machine, longer than the service lets them. */
export async function inGroups<T, R>(items: readonly T[], work: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  while (results.length < items.length)
    results.push(...(await Promise.all(items.slice(results.length, results.length + 20).map(work))));
  return results;
}

export function cancel(service: string, orderId: unknown): Promise<Answer> {
  return call(`${service}/orders/${orderId}/cancel`, { method: 'POST' });
}

/** Notifies the service of a payment. */
export function pay(
  service: string,
  orderId: unknown,
  notificationId = `n-${orderId}`,
  amountCents = 500,
): Promise<Answer> {
  return post(`${service}/payments/notifications`, { notificationId, orderId, amountCents });
}

/** Names of `count` users. */
export function users(count: number, prefix = 'user'): string[] {
  return Array.from({ length: count }, (_, i) => `${prefix}-${i}`);
}
