/** Purchases with tickets on a running service: unusual and malformed requests, and the instants when a turn begins and ends. */
import { connect } from 'node:net';
import { describe, expect, it } from 'vitest';
import { clientAddresses } from '../../../src/access/client-address.ts';
import { createTickets, serviceKeys } from '../../../src/access/ticket.ts';
import { tokenBuckets } from '../../../src/access/token-buckets.ts';
import { limits } from '../../../src/config/limits.ts';
import { createTicketGate } from '../../../src/http/purchase/ticket-gate.ts';
import { createSale } from '../../support/client.ts';
import { opened } from '../../support/opened.ts';
import { startService } from '../../support/service.ts';
import { envOf, openTestStores } from '../../support/stores.ts';

const KEY = Buffer.alloc(32, 'k');
const tickets = createTickets(serviceKeys([KEY], 'shop'));
const foreign = createTickets(serviceKeys([Buffer.alloc(32, 'f')], 'shop'));
const ticketOf = (saleId: number, customer: string, by = tickets) =>
  by.issue({ saleId, customer, notBeforeMs: Date.now() - 1_000, expiresMs: Date.now() + 600_000 });

const stores = opened(openTestStores);
const service = opened(() =>
  startService({
    ...envOf(stores),
    AUTH: 'jwt',
    AUTH_JWKS_URL: 'http://127.0.0.1:9/',
    AUTH_ISSUER: 'issuer',
    AUTH_AUDIENCE: 'shop',
    TICKET_SECRETS: KEY.toString('base64'),
    ADDRESS_RATE: '0',
  }),
);

/** Sends bytes on a connection of their own. @returns what came until `isDone`, or until the connection was closed */
async function exchange(bytes: string, isDone: (text: string) => boolean): Promise<string> {
  const socket = connect(Number(new URL(service.url).port), '127.0.0.1').on('error', () => {});
  let text = '';
  socket.on('data', (chunk) => {
    text += chunk;
  });
  socket.write(bytes);
  await expect.poll(() => socket.closed || isDone(text)).toBe(true);
  socket.destroy();
  return text;
}
const head = (path: string, ticket: string) =>
  `POST ${path} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer ${ticket}\r\n`;
const statusIn = (text: string) => Number(/^HTTP\/1.1 (\d+)/.exec(text)?.[1]);
const ordersOf = async (saleId: number) =>
  (await stores.sql.query('SELECT user_id FROM orders WHERE sale_id = $1', [saleId])).rows;

const json = (body: string) =>
  `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;

describe('a purchase with a ticket', () => {
  it.each<[string, (id: number) => string, string]>([
    ['without a body', (id) => `/sales/${id}/orders`, '\r\n'],
    ['with a body that names another customer', (id) => `/sales/${id}/orders`, json('{"userId":"ben"}')],
    ['with a body that names the quantity', (id) => `/sales/${id}/orders`, json('{"quantity":1}')],
    [
      'with a body in chunks',
      (id) => `/sales/${id}/orders`,
      'Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n',
    ],
    ['on a path with a query', (id) => `/sales/${id}/orders?a=b`, '\r\n'],
    ['on a path in another case', (id) => `/SALES/${id}/Orders/`, '\r\n'],
  ])('counts %s', async (_name, path, rest) => {
    const { id } = await createSale(service.url, 1);
    const answer = await exchange(head(path(id), ticketOf(id, 'ann')) + rest, (text) => text.endsWith('}'));
    expect(statusIn(answer)).toBe(201);
    // The same form with a ticket that another key signed.
    const forged = head(path(id), ticketOf(id, 'ben', foreign)) + rest;
    expect(statusIn(await exchange(forged, (text) => text.endsWith('}')))).toBe(401);
    expect(await ordersOf(id)).toEqual([{ user_id: 'ann' }]);
  });

  it.each<[string, string, number]>([
    ['a length and chunks', 'Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n', 400],
    ['a body that is too large', json('x'.repeat(limits.purchaseBodyBytes + 1)), 413],
    ['a body that is no JSON', json('{'), 400],
    ['no unit', json('{"quantity":0}'), 400],
    ['a body of another type', 'Content-Type: text/plain\r\nContent-Length: 1\r\n\r\nx', 415],
    ['a body without a type', 'Content-Length: 14\r\n\r\n{"quantity":3}', 415],
  ])('changes nothing with %s', async (_name, rest, status) => {
    const { id } = await createSale(service.url, 1);
    for (const path of [`/sales/${id}/orders`, `/sales/${id}/orders?`]) {
      const bytes = head(path, ticketOf(id, `ann-${id}`)) + rest;
      expect(statusIn(await exchange(bytes, (text) => text.endsWith('}')))).toBe(status);
    }
    expect(await ordersOf(id)).toEqual([]);
  });

  it('gets its own response when a connection pipelines many purchases', async () => {
    const { id } = await createSale(service.url, 30);
    const names = Array.from({ length: 60 }, (_, n) => `customer-${n}`);
    const isForged = (n: number) => n % 3 === 0;
    const requests = names.map(
      (name, n) => `${head(`/sales/${id}/orders`, ticketOf(id, name, isForged(n) ? foreign : tickets))}\r\n`,
    );
    const answers = (text: string) => text.split('HTTP/1.1 ').slice(1);
    const all = await exchange(
      requests.join(''),
      (text) => answers(text).filter((one) => one.endsWith('}')).length === 60,
    );
    const bought = names.filter((_, n) => !isForged(n)).slice(0, 30);
    const due = names.map((name, n) => (isForged(n) ? '401' : bought.includes(name) ? name : '409'));
    expect(answers(all).map((one) => /"userId":"([^"]+)"/.exec(one)?.[1] ?? one.slice(0, 3))).toEqual(due);
  });
});

it('a turn begins and ends at the exact millisecond', () => {
  let nowMs = 0;
  const gate = createTicketGate({
    tickets,
    attempts: tokenBuckets(0),
    addresses: clientAddresses([]),
    clock: { latestMs: () => nowMs },
    onRefused: () => {},
  });
  const given = { saleId: 7, customer: 'ann', notBeforeMs: 10_000, expiresMs: 20_000 };
  const header = `Bearer ${tickets.issue(given)}`;
  const at = (ms: number, saleId = 7) => {
    nowMs = ms;
    const result = gate.ticketOf(header, saleId);
    return 'customer' in result
      ? result.customer
      : `${result.status} ${result.headers.slice(4).join(' ')}`.trim();
  };
  expect([8_000, 9_999, 10_000, 19_999, 20_000].map((ms) => at(ms))).toEqual([
    '409 Retry-After 2',
    '409 Retry-After 1',
    'ann',
    'ann',
    '401',
  ]);
  expect(at(15_000, 8)).toBe('401');
});
