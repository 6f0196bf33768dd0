/**
 * /openapi.json describes what the service does. `call` validates every answer that any test gets; here, each success and each
 * problem is seen at least once, a linter reads the document, and a client generated from the document buys.
 */
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { rm, symlink, writeFile } from 'node:fs/promises';
import { type AddressInfo, connect } from 'node:net';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { createConfig, lintFromString } from '@redocly/openapi-core';
import { generateSource } from 'oazapfts';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { temporaryFolder } from '../../lab/kit/temporary-folder.ts';
import { TcpProxy } from '../../lab/proxy.ts';
import { createTickets, serviceKeys } from '../../src/access/ticket.ts';
import { createHttpServer } from '../../src/http/node-server.ts';
import { problems } from '../../src/http/problems.ts';
import { type Answer, call, eventually } from '../support/client.ts';
import { AUDIENCE, openIssuer } from '../support/issuer.ts';
import { document, operationOf, operations, undescribed } from '../support/openapi.ts';
import { opened } from '../support/opened.ts';
import { solve } from '../support/proof.ts';
import { startService, type TestService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

const KEY = Buffer.alloc(32, 'k');
const ADMIN = '0123456789abcdef';
const UNKNOWN = '00000000-0000-7000-8000-000000000000';

const stores = opened(openTestStores);
const issuer = opened(openIssuer);
const postgres = opened(() => TcpProxy.to(stores.databaseUrl));
/** AUTH=none, CONFIRM=accepted. */
let open: TestService;
/** AUTH=jwt, with every optional requirement. */
let guarded: TestService;

beforeAll(async () => {
  const env = envOf(stores);
  [open, guarded] = await Promise.all([
    startService({ ...env, CONFIRM: 'accepted' }),
    startService({
      ...env,
      ...issuer.env,
      DATABASE_URL: postgres.through(stores.databaseUrl),
      TICKET_SECRETS: KEY.toString('base64'),
      ADMIN_TOKEN: `ann:${ADMIN}`,
      PAYMENT_WEBHOOK_SECRETS: `whsec_${KEY.toString('base64')}`,
      BOT_CHECK: 'proof-of-work',
      ADDRESS_RATE: '0',
    }),
  ]);
});
afterAll(async () => {
  await Promise.all([open?.stop(), guarded?.stop()]);
});

/** Operations with statuses, and problem slugs, seen so far. */
const seen = new Set<string>();

/** @param expected a slug, or the status of a success */
async function expectFrom(
  { url }: TestService,
  request: string,
  expected: string | number,
  body?: unknown,
  headers: Record<string, string> = {},
): Promise<Answer> {
  const [method, path] = request.split(' ') as [string, string];
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  const json = { 'content-type': 'application/json' };
  const init =
    text === undefined ? { method, headers } : { method, body: text, headers: { ...json, ...headers } };
  const answer = await call(url + path, init);
  expect(answer.problem || answer.status, `${request} ${JSON.stringify(answer.body)}`).toBe(expected);
  seen.add(answer.problem);
  seen.add(`${operationOf(method, path.split('?')[0]!)?.operationId} ${answer.status}`);
  return answer;
}
const bearer = (token: string) => ({ authorization: `Bearer ${token}` });
const sale = { name: 'sale', stock: 10, priceCents: 500 };

it('the document that is served passes a linter, with patterns that other languages read', async () => {
  const { body } = await call(`${open.url}/openapi.json`);
  expect(body).toEqual(document);
  const config = await createConfig({
    extends: ['recommended-strict'],
    rules: {
      'operation-tag-defined': 'error',
      'no-invalid-media-type-examples': 'error',
      'no-invalid-schema-examples': 'error',
    },
  });
  const mistakes = await lintFromString({
    source: JSON.stringify(body),
    absoluteRef: '/openapi.json',
    config,
  });
  expect(
    mistakes.map(({ ruleId, message, location }) => `${ruleId} ${message} ${location[0]?.pointer}`),
  ).toEqual([]);
  const patterns = [...JSON.stringify(body).matchAll(/"pattern":"((?:[^"\\]|\\.)*)"/g)].map(
    (match) => match[1]!,
  );
  expect(patterns.length).toBeGreaterThan(5);
  for (const pattern of patterns) expect(pattern).not.toMatch(/\\[pPu]|\(\?[^:]/);
});

it('describes what AUTH=none answers', async () => {
  const made = await expectFrom(open, 'POST /sales', 201, {
    ...sale,
    startsAt: '2020-01-01T00:00:00Z',
    spreadS: 1,
  });
  const { id } = made.body;
  const expectOpen = (request: string, expected: string | number, body?: unknown, headers = {}) =>
    expectFrom(open, request, expected, body, headers);
  const { body: order } = await expectOpen(`POST /sales/${id}/orders`, 202, { userId: 'ann' });
  await expectOpen(`POST /sales/${id}/orders`, 200, { userId: 'ann' });
  await expectOpen(`PATCH /sales/${id}`, 200, { maxPerOrder: 3 });
  await expectOpen(`GET /sales/${id}/orders.csv`, 200);
  await expectOpen(`GET /sales/${id}/orders`, 200);
  const { body: few } = await expectOpen('POST /sales', 201, { ...sale, stock: 1, maxPerOrder: 2 });
  await expectOpen(`POST /sales/${few.id}/orders`, 'not-enough-units', { userId: 'ann', quantity: 2 });
  const { orderId } = order;
  await eventually(
    async () => (await call(`${open.url}/orders/${orderId}`)).status,
    (status) => status === 200,
  );
  const { body: second } = await expectOpen(`POST /sales/${id}/orders`, 202, { userId: 'ben' });
  await eventually(
    async () => (await call(`${open.url}/orders/${second.orderId}`)).status,
    (status) => status === 200,
  );
  const paid = { notificationId: 'n', orderId, amountCents: 500 };
  const points = { sourceType: 'test', sourceId: '1', points: 1 };
  const task = await stores.sql.query<{ id: string }>(
    `INSERT INTO tasks (kind, payload, state) VALUES ('ship', '{}', 'dead'), ('ship', '{}', 'dead') RETURNING id`,
  );
  const empty = (await expectOpen('POST /sales', 201, { ...sale, stock: 0 })).body.id;
  const later = (await expectOpen('POST /sales', 201, { ...sale, startsAt: '2100-01-01T00:00:00Z' })).body.id;
  const group = { name: 'g', opensAt: '2099-01-01T00:00:00Z', codes: [{ code: 'c', uses: 1 }] };
  const steps: [
    request: string,
    expected: string | number,
    body?: unknown,
    headers?: Record<string, string>,
  ][] = [
    ['GET /sales?limit=1', 200],
    [`GET /sales/${id}`, 200],
    [`GET /sales/${id}/events`, 200],
    [`GET /sales/${id}/audit`, 200],
    [`GET /sales/${id}/audit-log`, 200],
    [`POST /sales/${id}/restock`, 200, { units: 1 }],
    [`POST /sales/${id}/restock`, 'below-sold', { units: -11 }],
    [`POST /sales/${id}/restock`, 200, { units: 1 }, { 'idempotency-key': 'k' }],
    [`POST /sales/${id}/restock`, 'key-reused', { units: 2 }, { 'idempotency-key': 'k' }],
    [`GET /sales/${id}/orders?userId=ann`, 200],
    [`GET /orders/${orderId}`, 200],
    [`POST /orders/${orderId}/extend`, 200, { seconds: 60 }],
    [`POST /orders/${orderId}/extend`, 'beyond-limit', { seconds: 86_400 }],
    [`POST /orders/${orderId}/transfer`, 'not-supported', { toUserId: 'heir' }],
    [`POST /orders/${second.orderId}/cancel`, 200],
    ['POST /payments/notifications', 200, { ...paid, amountCents: 1 }],
    ['GET /payments/unmatched?limit=1', 200],
    ['POST /payments/notifications', 200, paid],
    [`POST /orders/${orderId}/cancel`, 'invalid-transition'],
    [`POST /orders/${orderId}/refund`, 200],
    [`POST /orders/${orderId}/refund`, 'invalid-transition', {}],
    [`GET /sales/${id}/refund`, 'not-found'],
    [`GET /sales/${id}/refund/preview`, 200],
    [`POST /sales/${id}/refund`, 202, { returnUnits: false }],
    [`GET /sales/${id}/refund`, 200],
    [`POST /sales/${empty}/waitlist`, 201, { userId: 'ann' }],
    [`POST /sales/${empty}/waitlist`, 200, { userId: 'ann' }],
    [`GET /sales/${empty}/waitlist`, 200],
    [`GET /sales/${empty}/waitlist/ann`, 200],
    [`DELETE /sales/${empty}/waitlist/ann`, 204],
    [`GET /sales/${empty}/waitlist/ann`, 'not-found'],
    ['POST /users/ann/points', 201, points],
    ['POST /users/ann/points', 200, points],
    ['POST /users/ann/points', 'idempotency-conflict', { ...points, points: 2 }],
    ['GET /users/ann/points', 200],
    ['GET /tasks', 200],
    [`POST /tasks/${task.rows[0]!.id}/retry`, 200],
    [`POST /tasks/${task.rows[0]!.id}/retry`, 'invalid-transition'],
    ['POST /tasks/424242/retry', 'unknown-task'],
    [`POST /tasks/${task.rows[1]!.id}/discard`, 200],
    [`POST /tasks/${task.rows[1]!.id}/discard`, 'invalid-transition'],
    ['POST /tasks/424242/discard', 'unknown-task'],
    ['GET /console/events', 200],
    ['GET /strategies', 200],
    ['GET /healthz', 200],
    ['GET /readyz', 200],
    ['GET /metrics', 200],
    ['GET /tasks', 'forbidden', undefined, { via: '1.1 proxy' }],
    ['GET /nothing', 'not-found'],
    [`POST /sales/${id}/tickets`, 'not-found', {}],
    ['GET /sales/424242', 'unknown-sale'],
    [`GET /orders/${UNKNOWN}`, 'unknown-order'],
    ['POST /sales', 'invalid-request', { name: '' }],
    ['POST /sales', 'invalid-request', '{'],
    ['POST /sales', 'too-large', { name: 'x'.repeat(20_000) }],
    ['POST /sales', 'unsupported-media-type', 'x', { 'content-type': 'text/plain' }],
    [`POST /sales/${empty}/orders`, 'sold-out', { userId: 'ann' }],
    [`POST /sales/${later}/groups`, 201, group],
    [`GET /sales/${later}/groups`, 200],
    [`POST /sales/${later}/orders`, 'invalid-code', { userId: 'ann', code: 'guess' }],
    [`POST /sales/${later}/orders`, 'sale-not-open', { userId: 'ann' }],
    [`POST /sales/${id}/orders`, 'invalid-request', '{'],
    [`POST /sales/${id}/orders`, 'too-large', { userId: 'x'.repeat(5_000) }],
  ];
  for (const step of steps) await expectOpen(...step);
  await stores.sql.query('ALTER TABLE points_entries RENAME TO elsewhere');
  await expectOpen('GET /users/ann/points', 'internal-error');
  await stores.sql.query('ALTER TABLE elsewhere RENAME TO points_entries');
});

it('describes what AUTH=jwt answers, also without Postgres', async () => {
  const token = bearer(await issuer.token('ann'));
  const expectGuarded = (request: string, expected: string | number, body?: unknown, headers = {}) =>
    expectFrom(guarded, request, expected, body, headers);
  const { id } = (await expectGuarded('POST /sales', 201, sale, bearer(ADMIN))).body as { id: number };
  const ticket = (fromMs = -1_000, saleId = id) =>
    bearer(
      createTickets(serviceKeys([KEY], AUDIENCE)).issue({
        saleId,
        customer: `ann${fromMs}`,
        notBeforeMs: Date.now() + fromMs,
        expiresMs: Date.now() + 60_000,
      }),
    );
  const refused = await expectGuarded(`POST /sales/${id}/tickets`, 'proof-required', {}, token);
  const proof = await solve(refused.body);
  await expectGuarded(`POST /sales/${id}/tickets`, 201, { proof }, token);
  await expectGuarded(`POST /sales/${id}/tickets`, 'unauthorized', {});
  await expectGuarded(`POST /sales/${id}/waitlist`, 'unauthorized', {});
  await expectGuarded(`POST /sales/${id}/waitlist`, 'not-sold-out', {}, token);
  await expectGuarded(`POST /sales/${id}/orders`, 'invalid-ticket');
  await expectGuarded(`POST /sales/${id}/orders`, 'too-early', undefined, ticket(30_000));
  await expectGuarded(`POST /sales/${id}/orders`, 201, undefined, ticket());
  await expectGuarded(`GET /orders/${UNKNOWN}`, 'unauthorized');
  const limited = { ...sale, limitGroup: 'one', maxPerCustomer: 1 };
  for (const expected of [201, 'customer-limit'] as const) {
    const { id } = (await expectGuarded('POST /sales', 201, limited, bearer(ADMIN))).body as { id: number };
    await expectGuarded(`POST /sales/${id}/orders`, expected, undefined, ticket(-1_000, id));
  }
  const other = await expectGuarded(`POST /sales/${id}/orders`, 201, undefined, ticket(-3_000));
  const passes = [
    ['ann-1000', 'has-order'],
    ['heir', 200],
    ['bob', 'already-transferred'],
  ] as const;
  for (const [toUserId, expected] of passes) {
    const route = `POST /orders/${(other.body as { orderId: string }).orderId}/transfer`;
    await expectGuarded(route, expected, { toUserId }, bearer(ADMIN));
  }
  await expectGuarded('GET /users/ben/points', 'not-found', undefined, token);
  const paid = { notificationId: 'n', orderId: UNKNOWN, amountCents: 500 };
  await expectGuarded('POST /payments/notifications', 'invalid-signature', paid);
  // The commit is sent, and neither it nor a retry is answered.
  const held = postgres.holdRequest('ann-2000').then(() => postgres.hold());
  await expectGuarded(`POST /sales/${id}/orders`, 'unknown-outcome', undefined, ticket(-2_000));
  await held;
  postgres.set('refuse');
  postgres.cut();
  await postgres.release();
  // A statement on a connection that was just cut gets `unknown-outcome`.
  const { problem } = await eventually(
    () => call(`${guarded.url}/sales/${id}`),
    (answer) => answer.problem === 'busy',
  );
  seen.add(problem);
  await expectGuarded('GET /readyz', 503);
  postgres.set('pass');
  for (let n = 0; n < 20; n++) await call(`${guarded.url}/tasks`);
  await expectGuarded('GET /tasks', 'too-many-requests');
});

it('describes each success and each problem, and every one was seen', () => {
  const successes = operations.flatMap(({ operationId, responses }) =>
    Object.keys(responses).flatMap((status) => (status.startsWith('2') ? [`${operationId} ${status}`] : [])),
  );
  expect([...successes, ...Object.keys(problems)].filter((one) => !seen.has(one))).toEqual([]);
});

it.each([
  [400, 'NOT HTTP\r\n\r\n'],
  [400, 'GET /healthz HTTP/1.1\r\n\r\n'],
  [408, 'GET /healthz HTTP/1.1\r\n'],
  [417, 'GET /healthz HTTP/1.1\r\nHost: test\r\nExpect: luck\r\nConnection: close\r\n\r\n'],
  [431, `GET /healthz HTTP/1.1\r\nHost: test\r\nX-Long: ${'x'.repeat(20_000)}\r\n\r\n`],
])('describes what is answered below the routes: %i', async (status, bytes) => {
  // Emits what Node reports after 10 s: see slow-clients.test.ts.
  const late = createHttpServer(() => {}).listen(0, '127.0.0.1');
  late.on('connection', (socket) => {
    late.emit('clientError', Object.assign(new Error(), { code: 'ERR_HTTP_REQUEST_TIMEOUT' }), socket);
  });
  await once(late, 'listening');
  const port = status === 408 ? (late.address() as AddressInfo).port : Number(new URL(open.url).port);
  const socket = connect(port, '127.0.0.1');
  let text = '';
  socket.on('data', (chunk) => {
    text += chunk;
  });
  socket.write(bytes);
  await once(socket, 'close');
  late.close();
  const [head = '', body = ''] = text.split('\r\n\r\n');
  const [first = '', ...lines] = head.split('\r\n');
  expect(first).toContain(` ${status} `);
  const headers = new Headers(lines.map((line) => line.split(/: */, 2) as [string, string]));
  expect(undescribed('GET', '/healthz', { status, headers, body: JSON.parse(body) })).toBeNull();
});

/** Buys with the generated client. `never`: the types cover every problem of the status. */
const SHOP = `
import * as api from './client.ts';
api.defaults.baseUrl = process.argv[2]!;
const sale = await api.createSale({ name: 'sale', stock: 1, priceCents: 500 });
if (sale.status !== 201) throw new Error(sale.data.detail);
const buy = (userId: string) => api.placeOrder(sale.data.id, { userId });
const [first, again, other] = [await buy('ann'), await buy('ann'), await buy('ben')];
if (first.status !== 202 || again.status !== 200 || other.status !== 409) throw new Error('another status');
const problem = other.data;
let why: string | number;
switch (problem.type) {
  case '/problems/sold-out': why = problem.title; break;
  case '/problems/sale-not-open': why = problem.reason satisfies 'not-started' | 'ended' | 'paused'; break;
  case '/problems/not-enough-units': why = problem.remaining; break;
  case '/problems/too-early': why = Date.parse(problem.notBefore); break;
  case '/problems/customer-limit': why = problem.left; break;
  default: why = problem satisfies never;
}
const same: boolean = first.data.orderId === again.data.orderId;
console.log(JSON.stringify([first.data.replayed, again.data.replayed, same, why]));
`;

it('a client that is generated from the document compiles, buys, and knows problems by type', async () => {
  const folder = await temporaryFolder('stampede-test-client-');
  try {
    const root = fileURLToPath(new URL('../../', import.meta.url));
    // exactOptionalPropertyTypes is not part of `strict`; the generator's runtime does not support it.
    const compilerOptions = { noEmit: false, exactOptionalPropertyTypes: false };
    const config = {
      extends: path.join(root, 'tsconfig.json'),
      compilerOptions,
      include: ['*.ts'],
      exclude: [],
    };
    const files = {
      'package.json': '{"type":"module"}',
      'tsconfig.json': JSON.stringify(config),
      'client.ts': await generateSource(`${open.url}/openapi.json`),
      'shop.ts': SHOP,
    };
    for (const [name, text] of Object.entries(files)) await writeFile(path.join(folder, name), text);
    await symlink(path.join(root, 'node_modules'), path.join(folder, 'node_modules'));
    const run = (...args: string[]) => promisify(execFile)(process.execPath, args, { cwd: folder });
    await run(path.join(root, 'node_modules/typescript/bin/tsc')).catch(({ stdout }) =>
      expect(stdout).toBe(''),
    );
    const { stdout } = await run('shop.js', open.url);
    expect(JSON.parse(stdout)).toEqual([false, true, true, problems['sold-out'].title]);
  } finally {
    await rm(folder, { recursive: true });
  }
});
