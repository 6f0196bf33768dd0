/** A request for every route, and which answers are right while a store fails. */
import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import { type Answer, buy, call, createSale } from './client.ts';

/** Longest time of a request. */
const ANSWER_MS = 45_000;

/** What requests name; created before the failure. */
export interface Things {
  readonly url: string;
  readonly saleId: number;
  /** Each has its own customer: one is cancelled, one paid, and one closed before it is paid. */
  readonly orders: { readonly pending: string; readonly unpaid: string; readonly expired: string };
  readonly deadTask: number;
}

/** @param sql of the owner */
export async function makeThings(url: string, sql: pg.Pool | pg.Client): Promise<Things> {
  const sale = await createSale(url, 100);
  const order = async (userId: string) => String((await buy(url, sale.id, userId)).body.orderId);
  const [pending, unpaid, expired] = await Promise.all(['pending', 'unpaid', 'expired'].map(order));
  await sql.query(
    `WITH closed AS (UPDATE orders SET status = 'expired', closed_at = now() WHERE id = $1)
     UPDATE sales SET sold = sold - 1 WHERE id = $2`,
    [expired, sale.id],
  );
  const task = await sql.query<{ id: string }>(
    `INSERT INTO tasks (kind, payload, state) VALUES ('ship', '{}', 'dead') RETURNING id`,
  );
  const orders = { pending: pending!, unpaid: unpaid!, expired: expired! };
  return { url, saleId: sale.id, orders, deadTask: Number(task.rows[0]!.id) };
}

type Request = readonly [path: string, body?: object];

/** Requests of every route, by its method and its path in the OpenAPI document. */
export const ROUTES: Record<string, (things: Things) => readonly Request[]> = {
  'get /sales': () => [['/sales']],
  'post /sales': () => [['/sales', { name: 'new', stock: 1, priceCents: 1 }]],
  'patch /sales/{saleId}': ({ saleId }) => [[`/sales/${saleId}`, { paymentWindowS: 900 }]],
  'get /sales/{saleId}': ({ saleId }) => [[`/sales/${saleId}`]],
  'get /sales/{saleId}/events': ({ saleId }) => [[`/sales/${saleId}/events`]],
  // The sale has started: no group is added.
  'post /sales/{saleId}/groups': ({ saleId }) => [
    [
      `/sales/${saleId}/groups`,
      { name: 'g', opensAt: '2000-01-01T00:00:00Z', codes: [{ code: 'c', uses: 1 }] },
    ],
  ],
  'get /sales/{saleId}/groups': ({ saleId }) => [[`/sales/${saleId}/groups`]],
  'post /sales/{saleId}/restock': ({ saleId }) => [
    [`/sales/${saleId}/restock`, { units: 2 }],
    [`/sales/${saleId}/restock`, { units: -2 }],
  ],
  // Of a sale that does not exist: its orders would be refunded while they are paid and cancelled.
  'post /sales/{saleId}/refund': () => [['/sales/2147483647/refund', {}]],
  'post /sales/{saleId}/waitlist': ({ saleId }) => [[`/sales/${saleId}/waitlist`, { userId: 'waits' }]],
  'get /sales/{saleId}/waitlist': ({ saleId }) => [[`/sales/${saleId}/waitlist`]],
  'get /sales/{saleId}/waitlist/{userId}': ({ saleId }) => [[`/sales/${saleId}/waitlist/waits`]],
  'delete /sales/{saleId}/waitlist/{userId}': ({ saleId }) => [[`/sales/${saleId}/waitlist/waits`]],
  'get /sales/{saleId}/refund': ({ saleId }) => [[`/sales/${saleId}/refund`]],
  'get /sales/{saleId}/refund/preview': ({ saleId }) => [[`/sales/${saleId}/refund/preview`]],
  'post /sales/{saleId}/orders': ({ saleId }) =>
    ['pending', 'new-1', 'new-2', 'new-3', 'new-4'].map((userId) => [`/sales/${saleId}/orders`, { userId }]),
  'post /sales/{saleId}/tickets': ({ saleId }) => [[`/sales/${saleId}/tickets`, {}]],
  'get /sales/{saleId}/orders': ({ saleId }) => [[`/sales/${saleId}/orders?userId=unpaid`]],
  'get /sales/{saleId}/orders.csv': ({ saleId }) => [[`/sales/${saleId}/orders.csv`]],
  'get /orders/{orderId}': ({ orders }) => [[`/orders/${orders.pending}`]],
  'post /orders/{orderId}/cancel': ({ orders }) => [[`/orders/${orders.pending}/cancel`, {}]],
  'post /orders/{orderId}/extend': ({ orders }) => [[`/orders/${orders.pending}/extend`, { seconds: 60 }]],
  'post /orders/{orderId}/transfer': ({ orders }) => [
    [`/orders/${orders.pending}/transfer`, { toUserId: 'heir' }],
  ],
  'post /orders/{orderId}/refund': ({ orders }) => [[`/orders/${orders.pending}/refund`, {}]],
  'post /payments/notifications': ({ orders }) =>
    [orders.unpaid, orders.expired].map((orderId) => [
      '/payments/notifications',
      { notificationId: randomUUID(), orderId, amountCents: 500 },
    ]),
  'post /users/{userId}/points': () => [
    ['/users/unpaid/points', { sourceType: 'test', sourceId: randomUUID(), points: 1 }],
  ],
  'get /users/{userId}/points': () => [['/users/unpaid/points']],
  'get /payments/unmatched': () => [['/payments/unmatched']],
  'get /tasks': () => [['/tasks']],
  'post /tasks/{taskId}/retry': ({ deadTask }) => [[`/tasks/${deadTask}/retry`, {}]],
  'post /tasks/{taskId}/discard': ({ deadTask }) => [[`/tasks/${deadTask}/discard`, {}]],
  'get /sales/{saleId}/audit': ({ saleId }) => [[`/sales/${saleId}/audit`]],
  'get /sales/{saleId}/audit-log': ({ saleId }) => [[`/sales/${saleId}/audit-log`]],
  'get /console/events': () => [['/console/events']],
  'get /strategies': () => [['/strategies']],
  'get /healthz': () => [['/healthz']],
  'get /readyz': () => [['/readyz']],
  'get /metrics': () => [['/metrics']],
};

/** Routes for administrators only. With ADMIN_PORT, the main port has none of them. */
export const ADMINISTRATIVE = [
  'post /sales',
  'patch /sales/{saleId}',
  'post /sales/{saleId}/groups',
  'get /sales/{saleId}/groups',
  'post /sales/{saleId}/restock',
  'post /sales/{saleId}/refund',
  'get /sales/{saleId}/refund',
  'get /sales/{saleId}/refund/preview',
  'get /sales/{saleId}/orders.csv',
  'get /sales/{saleId}/audit',
  'get /sales/{saleId}/audit-log',
  'get /sales/{saleId}/waitlist',
  'post /orders/{orderId}/extend',
  'post /orders/{orderId}/transfer',
  'post /orders/{orderId}/refund',
  'post /payments/notifications',
  'get /payments/unmatched',
  'post /users/{userId}/points',
  'get /tasks',
  'post /tasks/{taskId}/retry',
  'post /tasks/{taskId}/discard',
  'get /console/events',
];

/** Sends the first request of a route. @param more replaces parts of it */
export function askRoute(route: string, things: Things, more: RequestInit = {}): Promise<Answer> {
  const [[path, body] = ['/']] = ROUTES[route]!(things);
  const method = route.split(' ')[0]!.toUpperCase();
  const headers = { 'content-type': 'application/json', ...more.headers };
  const init = { method, ...(body !== undefined && { body: JSON.stringify(body) }), ...more, headers };
  return call(things.url + path, init);
}

/** Paths that need no store. */
const ALWAYS = ['/healthz', '/metrics', '/docs/', '/openapi.json', '/strategies'];

export interface Answered {
  /** Which of the services. */
  readonly service: number;
  readonly path: string;
  readonly answer: Answer;
}

export async function askAll(things: readonly Things[]): Promise<Answered[]> {
  const asked = things.flatMap((of, i) => {
    const routes = Object.entries(ROUTES).flatMap(([route, requests]) =>
      requests(of).map(([path, body]) => ({ path, body, method: route.split(' ')[0]!.toUpperCase() })),
    );
    const others = ALWAYS.map((path) => ({ path, body: undefined, method: 'GET' }));
    return [...routes, ...others].map(async ({ path, body, method }): Promise<Answered> => {
      const signal = AbortSignal.timeout(ANSWER_MS);
      const headers = { 'content-type': 'application/json' };
      const init =
        body === undefined ? { method, signal } : { method, signal, headers, body: JSON.stringify(body) };
      return {
        service: i,
        path: `${method} ${path}`,
        answer: await call(`${of.url}${path}`, init),
      };
    });
  });
  return Promise.all(asked);
}

/** What is wrong with an answer; null: nothing. */
export function mistakeOf({ path, answer }: Answered): string | null {
  const { status, body, headers, problem } = answer;
  if (ALWAYS.some((always) => path === `GET ${always}`)) return status === 200 ? null : 'needs no store';
  if (status < 500) return null;
  if (status !== 503) return 'is neither 503 nor below 500';
  if (path === 'GET /readyz') return body.status === 'unavailable' ? null : 'says nothing';
  if (headers.get('content-type')?.startsWith('application/problem+json') !== true) return 'is no problem';
  if (problem !== 'busy' && problem !== 'unknown-outcome') return 'is another problem';
  if (!body.reason) return 'has no reason';
  return headers.get('retry-after') === null ? 'has no Retry-After' : null;
}
