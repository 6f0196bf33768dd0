/** The hot route answers, byte for byte, what Express answers: each request goes to both. */
import type { RequestListener, Server } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Outcome } from '../../../src/domain/outcome.ts';
import { createAdminTokens } from '../../../src/http/admin.ts';
import { createApp } from '../../../src/http/app.ts';
import { readAssets } from '../../../src/http/assets.ts';
import type { HttpContext } from '../../../src/http/context.ts';
import { createHttpServer } from '../../../src/http/node-server.ts';
import {
  type AskedPurchase,
  purchaseIn,
  purchaseListener,
  saleIdOf,
  withOpening,
} from '../../../src/http/purchase/listener.ts';
import { purchaseSchema, saleIdSchema } from '../../../src/http/schemas.ts';
import type { Purchases } from '../../../src/orders/purchase.ts';

const orderId = '01900000-0000-7000-8000-000000000001';

/** Outcomes by the number of the sale; nothing behind them, because what is compared is HTTP. */
function outcomeOf(saleId: number, userId: string, quantity: number): Outcome | Promise<Outcome> {
  const order = { orderId, saleId, userId, status: 'pending', quantity } as const;
  switch (saleId) {
    case 1:
      return { kind: 'accepted', order, durable: true };
    case 2:
      return Promise.resolve({ kind: 'accepted', order, durable: false });
    case 3:
      return Promise.resolve({ kind: 'replayed', order: { ...order, status: 'paid' }, durable: true });
    case 4:
      return { kind: 'sold-out' };
    case 5:
      return { kind: 'not-open', reason: 'not-started' };
    case 6:
      return { kind: 'not-open', reason: 'ended' };
    case 7:
      return Promise.resolve({ kind: 'busy', reason: 'overloaded' });
    case 8:
      return { kind: 'unknown', orderId, reason: 'redis-no-answer' };
    case 10:
      return { kind: 'not-enough-units', remaining: 3 };
    case 11:
      return { kind: 'over-limit', maxPerOrder: 4 };
    case 14:
      return { kind: 'invalid-code', reason: 'used-up' };
    case 13:
      return { kind: 'customer-limit', limit: 3, left: 1 };
    case 12:
      return { kind: 'not-open', reason: 'paused' };
    case 9:
      return Promise.reject(new Error('a defect'));
    default:
      return { kind: 'unknown-sale' };
  }
}

const asked: string[] = [];
const purchases: Purchases = {
  attempt(saleId, userId, quantity) {
    asked.push(`${saleId} ${userId} ${quantity}`);
    return outcomeOf(saleId, userId, quantity);
  },
  idle: async () => {},
};
const errors: unknown[] = [];

function application(): RequestListener {
  const context: Partial<HttpContext> = {
    purchases,
    service: {
      active: 'lua',
      lock: 'redis',
      strategies: [],
      locks: [],
      instruments: { refusals: { inc: () => {} } } as never,
      metricsOfAll: null,
      degraded: () => [],
      isStopping: () => false,
      isDivided: false,
      checks: {},
    },
    paymentSecrets: [],
    currency: 'USD',
    adminTokens: createAdminTokens([]),
    record: async () => {},
    onUnrecorded: () => {},
    ticketing: null,
    reads: { waiting: 0 } as never,
    strategy: { kind: 'commits' } as never,
    saleEvents: {} as never,
    clientLimits: {} as never,
    assets: readAssets(),
    stopping: new AbortController().signal,
    onStoreError: () => {},
    callers: { of: async () => ({ actor: 'caller', customer: null }) },
    onError: (error) => errors.push(error),
  };
  return createApp(context as HttpContext);
}

let servers: Server[];
const ports = () => servers.map((server) => (server.address() as AddressInfo).port);
beforeAll(async () => {
  const express = application();
  const listener = purchaseListener(purchases, application(), (error) => errors.push(error));
  servers = [express, listener].map((handler) => createHttpServer(handler));
  for (const server of servers) {
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  }
});
afterAll(async () => {
  for (const server of servers) {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
});

/** Comes after every request of a test: its answer ends the connection. */
const LAST = 'GET /last HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n';

/** Sends bytes, and LAST once an answer comes; reads until the connection ends. @returns the other answers, headers sorted and without Date */
async function send(port: number, bytes: string | Buffer, endAfter = false): Promise<string[]> {
  const socket = connect(port, '127.0.0.1');
  let text = '';
  await new Promise<void>((resolve) => {
    socket.once('data', () => endAfter || socket.write(LAST));
    socket.on('data', (chunk) => {
      text += chunk;
    });
    socket.on('close', () => resolve());
    socket.on('error', () => {}); // the server closed first
    socket.write(bytes);
    if (endAfter) socket.end();
  });
  const answers = text.split(/(?=HTTP\/1\.1 )/).filter((answer) => !answer.includes('GET /last'));
  return answers.map((answer) => {
    const [head = '', body = ''] = answer.split('\r\n\r\n');
    const [status = '', ...headers] = head.split('\r\n');
    return [status, ...headers.filter((line) => !line.startsWith('Date:')).sort(), '', body].join('\n');
  });
}

/** Expects both to answer the same. @returns the answers */
async function both(bytes: string | Buffer, endAfter = false): Promise<string[]> {
  const answers: string[][] = [];
  const attempts: string[][] = [];
  for (const port of ports()) {
    asked.length = 0;
    answers.push(await send(port, bytes, endAfter));
    attempts.push([...asked]);
  }
  const [express, listener] = answers;
  expect(listener).toEqual(express);
  expect(attempts[1]).toEqual(attempts[0]);
  return express!;
}

interface Form {
  readonly method?: string;
  readonly path?: string;
  readonly version?: string;
  readonly headers?: readonly string[];
  readonly body?: string;
  /** Sent instead of the body's length. */
  readonly length?: number | null;
}
function request({ method = 'POST', path = '/sales/1/orders', version = '1.1', ...rest }: Form = {}): string {
  const { headers = ['Content-Type: application/json'], body = '{"userId":"ann"}' } = rest;
  const length = rest.length === undefined ? Buffer.byteLength(body) : rest.length;
  const lines = [`${method} ${path} HTTP/${version}`, 'Host: test', ...headers];
  if (length !== null) lines.push(`Content-Length: ${length}`);
  return `${lines.join('\r\n')}\r\n\r\n${body}`;
}
const chunked = (body: string) =>
  `POST /sales/1/orders HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n` +
  `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`;

it('answers every outcome, of several on one connection in their order', async () => {
  const answers = await both(
    Array.from({ length: 15 }, (_, sale) => request({ path: `/sales/${sale + 1}/orders` })).join(''),
  );
  const statuses = answers.map((answer) => Number(answer.slice(9, 12)));
  expect(statuses).toEqual([201, 202, 200, 409, 409, 409, 503, 503, 500, 409, 400, 409, 409, 403, 404]);
  for (const [n, answer] of answers.entries()) {
    expect(answer).toMatch(/\nContent-Type: application\/(problem\+)?json; charset=utf-8\n/);
    expect(/Retry-After: [14]/.test(answer)).toBe(statuses[n] === 503);
  }
  expect(errors.map((error) => (error as Error).message)).toEqual(['a defect', 'a defect']);
});

const JSON_TYPE = 'Content-Type: application/json';
const forms: Record<string, [number, Form | string | Buffer]> = {
  'the usual form': [201, {}],
  'the type in another case': [201, { headers: ['content-TYPE: Application/JSON'] }],
  'a charset': [201, { headers: [`${JSON_TYPE}; charset=utf-8`] }],
  'no type': [415, { headers: [] }],
  'two types': [201, { headers: [JSON_TYPE, 'Content-Type: text/plain'] }],
  'identity, as it says': [201, { headers: [JSON_TYPE, 'Content-Encoding: identity'] }],
  'in chunks': [201, chunked('{"userId":"ann"}')],
  'in chunks, empty': [400, chunked('').replace('0\r\n\r\n0\r\n\r\n', '0\r\n\r\n')],
  'no body and no length': [400, { body: '', length: null }],
  'white space round it': [201, { body: ' \n{ "userId" : "ann" }\t' }],
  'a byte order mark': [201, { body: '\ufeff{"userId":"ann"}' }],
  'two byte order marks': [400, { body: '\ufeff\ufeff{"userId":"ann"}' }],
  'several units': [201, { body: '{"userId":"ann","quantity":3}' }],
  'the member twice': [201, { body: '{"userId":"no no","userId":"ann"}' }],
  'an escaped name': [201, { body: '{"\\u0075serId":"\\u0061nn"}' }],
  'a body of just the limit': [201, { body: `{"userId":"ann"}${' '.repeat(4_096 - 16)}` }],
  'a body beyond the limit': [413, { body: `{"userId":"ann"}${' '.repeat(4_096 - 15)}` }],
  'another case of the path': [201, { path: '/Sales/1/Orders' }],
  'a slash at the end': [201, { path: '/sales/1/orders/' }],
  'a query': [201, { path: '/sales/1/orders?x=1' }],
  'an escaped path': [404, { path: '/s%61les/1/orders' }],
  'an absolute URL': [201, { path: 'http://test/sales/1/orders' }],
  'two slashes': [404, { path: '//sales/1/orders' }],
  GET: [403, { method: 'GET', body: '', length: null }], // an administrator's list
  HEAD: [403, { method: 'HEAD', body: '', length: null }],
  'HTTP/1.0': [201, { version: '1.0' }],
  'HTTP/1.0 that goes on': [201, { version: '1.0', headers: [JSON_TYPE, 'Connection: keep-alive'] }],
  'Connection: close': [201, { headers: [JSON_TYPE, 'Connection: close'] }],
  'Expect: 100-continue': [100, { headers: [JSON_TYPE, 'Expect: 100-continue'] }],
  'a length and chunks': [400, { headers: [JSON_TYPE, 'Transfer-Encoding: chunked'] }],
  'no host': [400, request().replace('Host: test\r\n', '')],
  'no host in HTTP/1.0': [201, request({ version: '1.0' }).replace('Host: test\r\n', '')],
  'two hosts': [400, { headers: [JSON_TYPE, 'Host: other'] }],
  'the same host twice': [400, { headers: [JSON_TYPE, 'hOST: test'] }],
};

describe('every form of the request', () => {
  it.each(Object.entries(forms))('%s', async (_name, [status, form]) => {
    const bytes = typeof form === 'string' || Buffer.isBuffer(form) ? form : request(form);
    const answers = await both(bytes);
    expect(answers[0]).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    if (status >= 400) expect(answers[0]).toContain('application/problem+json');
    if ([400, 413, 415].includes(status)) expect(asked).toEqual([]);
  });

  it('a usual form between two unusual ones', async () => {
    const answers = await both(
      [chunked('{"userId":"a"}'), request(), request({ path: '/sales/1/orders?' })].join(''),
    );
    expect(answers.map((answer) => answer.slice(9, 12))).toEqual(['201', '201', '201']);
  });

  it('a body that comes byte by byte', async () => {
    asked.length = 0;
    const bytes = Buffer.from(request());
    for (const port of ports()) {
      const socket = connect(port, '127.0.0.1');
      const answer = new Promise<string>((resolve) => socket.once('data', (chunk) => resolve(String(chunk))));
      for (const byte of bytes) {
        socket.write(Buffer.from([byte]));
        await new Promise((resolve) => setImmediate(resolve));
      }
      expect(await answer).toContain('HTTP/1.1 201 Created');
      socket.destroy();
    }
    expect(asked).toEqual(['1 ann 1', '1 ann 1']);
  });

  it('an aborted upload: nothing is attempted', async () => {
    await both(request({ length: 17 }), true);
    await both(request({ length: 17 }).slice(0, -5), true);
    expect(asked).toEqual([]);
  });
});

describe('the hand-written checks agree with the schema', () => {
  const names = fc.constantFrom('userId', 'UserId', 'userid', '__proto__', 'constructor', 'toString', '');
  const userIds = fc.oneof(
    fc.stringMatching(/^[A-Za-z0-9._:-]{1,70}$/),
    fc.string({ maxLength: 70 }),
    fc.string({ unit: 'binary', maxLength: 5 }),
    fc.constantFrom('', ' ', 'a\n', 'a\u0000', 'ａ', 'a b', 'a/b', 'x'.repeat(64), 'x'.repeat(65), '\ud800'),
  );
  const values = fc.oneof(userIds, fc.jsonValue(), fc.double(), fc.constant([]), fc.constant({ length: 3 }));
  const objects = fc
    .array(fc.tuple(fc.oneof({ weight: 4, arbitrary: fc.constant('userId') }, names), values), {
      maxLength: 3,
    })
    .map(
      (members) => `{${members.map(([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value)}`)}}`,
    );
  const usual = fc.stringMatching(/^[A-Za-z0-9._:-]{1,66}$/).map((userId) => JSON.stringify({ userId }));
  const texts = fc.oneof(usual, { weight: 4, arbitrary: objects }, fc.json(), fc.string());

  const purchaseOf = (body: Buffer) => [purchaseIn(body)].find((read) => 'userId' in read) ?? null;
  function bySchema(body: Buffer): AskedPurchase | null {
    try {
      const parsed = purchaseSchema.safeParse(JSON.parse(body.toString('utf8')));
      return parsed.success ? withOpening(parsed.data) : null;
    } catch {
      return null;
    }
  }

  it('on bodies', () => {
    let valid = 0;
    fc.assert(
      fc.property(texts, (text) => {
        const body = Buffer.from(text);
        const purchase = purchaseOf(body);
        expect(purchase).toEqual(bySchema(body));
        if (purchase !== null) valid += 1;
      }),
      { numRuns: 5_000 },
    );
    expect(valid).toBeGreaterThan(500);
  });

  it('on bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 40 }), (bytes) => {
        const body = Buffer.concat([Buffer.from('{"userId":"'), bytes, Buffer.from('"}')]);
        expect(purchaseOf(body)).toEqual(bySchema(body));
      }),
      { numRuns: 2_000 },
    );
  });

  it('on sale ids', () => {
    const digits = fc.oneof(
      fc.nat().map(String),
      fc.stringMatching(/^\d{0,18}$/),
      fc.string({ maxLength: 6 }),
    );
    fc.assert(
      fc.property(digits, (text) => {
        const parsed = saleIdSchema.safeParse(text);
        expect(saleIdOf(`/sales/${text}/orders`)).toBe(parsed.success ? parsed.data : 0);
      }),
      { numRuns: 5_000 },
    );
  });
});
