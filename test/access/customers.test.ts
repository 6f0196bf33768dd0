/** AUTH=jwt on a running service, with an issuer of tokens on loopback: who may do what, tickets, and their turns. */
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createIdentity, customerId } from '../../src/access/identity.ts';
import { createTickets, serviceKeys } from '../../src/access/ticket.ts';
import { waitOf } from '../../src/http/routes/tickets.ts';
import { type Answer, call, eventually } from '../support/client.ts';
import { AUDIENCE, ISSUER, openIssuer, publicPem } from '../support/issuer.ts';
import { opened } from '../support/opened.ts';
import { solve } from '../support/proof.ts';
import { startService, type TestService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

const KEY = Buffer.alloc(32, 'k');
const OLDER = Buffer.alloc(32, 'o');
const ADMIN = 'ann:0123456789abcdef';

const stores = opened(openTestStores);
const issuer = opened(openIssuer);
let service: TestService;
let guarded: TestService;

beforeAll(async () => {
  const env = {
    ...envOf(stores),
    ...issuer.env,
    TICKET_SECRETS: [KEY, OLDER].map((key) => key.toString('base64')).join(),
    ADMIN_TOKEN: ADMIN,
    ADDRESS_RATE: '0',
  };
  [service, guarded] = await Promise.all([
    startService(env),
    startService({
      ...env,
      BOT_CHECK: 'proof-of-work',
      ADDRESS_RATE: '5',
      TRUSTED_PROXIES: '127.0.0.1',
      PAYMENT_WINDOW_S: '120',
    }),
  ]);
});
afterAll(async () => {
  await service?.stop();
  await guarded?.stop();
});

const bearer = (token: string) => ({ authorization: `Bearer ${token}` });
const post = (path: string, token: string, body: object = {}, { url } = service, more: object = {}) => {
  const headers = { 'content-type': 'application/json', ...bearer(token), ...more };
  return call(`${url}${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
};
const get = (path: string, token: string) => call(`${service.url}${path}`, { headers: bearer(token) });
const sell = async (stock: number, more: object = {}): Promise<number> => {
  const { body } = await post('/sales', ADMIN.slice(4), { name: 'sale', stock, priceCents: 500, ...more });
  return body.id as number;
};
/** A ticket as the service issues it, with other values. */
const forged = (
  saleId: number,
  customer: string,
  { fromMs = -1_000, untilMs = 60_000, key = KEY, audience = AUDIENCE } = {},
) =>
  createTickets(serviceKeys([key], audience)).issue({
    saleId,
    customer,
    notBeforeMs: Date.now() + fromMs,
    expiresMs: Date.now() + untilMs,
  });
/** Sends 30 requests at a time until more than ten are refused. @returns the others: at most five, and five for each second */
async function passed(request: (n: number) => Promise<Answer>): Promise<Answer[]> {
  const sinceMs = performance.now();
  const answers: Answer[] = [];
  const others = () => answers.filter(({ problem }) => problem !== 'too-many-requests');
  for (let n = 0; answers.length - others().length <= 10; n += 30) {
    answers.push(...(await Promise.all(Array.from({ length: 30 }, (_, i) => request(n + i)))));
    expect(others().length).toBeLessThanOrEqual(5 + (5 * (performance.now() - sinceMs)) / 1_000);
  }
  return others();
}

describe('a customer', () => {
  it('buys with a ticket, reads, and cancels', async () => {
    const saleId = await sell(1);
    const token = await issuer.token('ann');
    const { status, body } = await post(`/sales/${saleId}/tickets`, token);
    expect(status).toBe(201);
    const ticket = body.ticket as string;
    const bought = await post(`/sales/${saleId}/orders`, ticket, { userId: 'ben' });
    expect(bought).toMatchObject({
      status: 201,
      body: { userId: customerId(ISSUER, 'ann'), replayed: false },
    });
    expect(await post(`/sales/${saleId}/orders`, ticket)).toMatchObject({
      status: 200,
      body: { replayed: true },
    });
    const { orderId } = bought.body;
    for (const path of [`/orders/${orderId}`, `/sales/${saleId}/orders`, `/sales/${saleId}/orders?userId=me`])
      expect(await get(path, token)).toMatchObject({ status: 200, body: { orderId, status: 'pending' } });
    expect(await get('/users/me/points', token)).toMatchObject({ status: 200, body: { balance: 5 } });
    expect(await post(`/orders/${orderId}/cancel`, token)).toMatchObject({ status: 200 });
  });

  it("finds nothing of another customer's", async () => {
    const saleId = await sell(1);
    const ticket = forged(saleId, customerId(ISSUER, 'ann'));
    const { orderId, userId } = (await post(`/sales/${saleId}/orders`, ticket)).body;
    const ben = await issuer.token('ben');
    for (const path of [
      `/orders/${orderId}`,
      `/sales/${saleId}/orders?userId=${userId}`,
      `/users/${userId}/points`,
    ])
      expect((await get(path, ben)).status).toBe(404);
    expect(await post(`/orders/${orderId}/cancel`, ben)).toMatchObject({
      status: 404,
      problem: 'unknown-order',
    });
    expect((await get(`/orders/${orderId}`, ADMIN.slice(4))).body.status).toBe('pending');
  });

  const inS = (seconds: number) => Math.floor(Date.now() / 1_000) + seconds;
  const unsigned = (claims: object) =>
    [{ alg: 'none' }, claims]
      .map((part) => Buffer.from(JSON.stringify(part)).toString('base64url'))
      .join('.');
  it.each<[string, () => Promise<string>]>([
    ['of another audience', () => issuer.token('ann', { aud: 'bank' })],
    ['of another issuer', () => issuer.token('ann', { iss: 'https://evil.example' })],
    ['that has expired', () => issuer.token('ann', { exp: inS(-60) })],
    ['that never expires', () => issuer.token('ann', { exp: undefined })],
    ['without a subject', () => issuer.token('ann', { sub: undefined })],
    ['signed by another key', async () => issuer.token('ann', {}, { keys: await issuer.foreignKeys() })],
    [
      'signed with the public key as a secret',
      async () => {
        const keys = await publicPem(issuer.published);
        return issuer.token('ann', {}, { keys, header: { alg: 'HS256' } });
      },
    ],
    [
      'without a signature',
      async () => `${unsigned({ sub: 'ann', iss: ISSUER, aud: 'shop', exp: inS(60) })}.`,
    ],
  ])('is not believed with a token %s', async (_name, token) => {
    const saleId = await sell(1);
    expect(await post(`/sales/${saleId}/tickets`, await token())).toMatchObject({
      status: 401,
      problem: 'unauthorized',
    });
  });

  const unknownKey = { key: Buffer.alloc(32, 'f') };
  it.each<[string, (saleId: number) => string, string, number]>([
    ['none', () => '', 'invalid-ticket', 401],
    ['one of another sale', (saleId) => forged(saleId + 1, 'ann'), 'invalid-ticket', 401],
    ['an expired one', (saleId) => forged(saleId, 'ann', { untilMs: -1 }), 'invalid-ticket', 401],
    ['one of a foreign key', (saleId) => forged(saleId, 'ann', unknownKey), 'invalid-ticket', 401],
    ['another service’s', (saleId) => forged(saleId, 'ann', { audience: 'outlet' }), 'invalid-ticket', 401],
    ['one whose turn has not come', (saleId) => forged(saleId, 'ann', { fromMs: 9_000 }), 'too-early', 409],
  ])('does not buy with %s', async (_name, ticket, problem, status) => {
    const saleId = await sell(1);
    expect(await post(`/sales/${saleId}/orders`, ticket(saleId))).toMatchObject({ status, problem });
    expect((await get(`/sales/${saleId}`, '')).body.sold).toBe(0);
  });

  it('cannot use a ticket as a token, or a token as a ticket', async () => {
    const saleId = await sell(1);
    const token = await issuer.token('ann');
    const ticket = forged(saleId, customerId(ISSUER, 'ann'));
    const isRefused = { status: 401, problem: 'unauthorized' };
    expect(await get(`/sales/${saleId}/orders`, ticket)).toMatchObject(isRefused);
    expect(await post(`/sales/${saleId}/tickets`, ticket)).toMatchObject(isRefused);
    for (const other of [token, ADMIN.slice(4)])
      expect(await post(`/sales/${saleId}/orders`, other)).toMatchObject({ problem: 'invalid-ticket' });
  });

  it('buys with a ticket of the key before', async () => {
    const saleId = await sell(1);
    expect((await post(`/sales/${saleId}/orders`, forged(saleId, 'ann', { key: OLDER }))).status).toBe(201);
  });

  it('may not attempt more than 5 times a second', async () => {
    const saleId = await sell(1);
    const attempt = () => post(`/sales/${saleId}/orders`, forged(saleId, 'quick'));
    const answers = await passed(attempt);
    answers.push(await eventually(attempt, ({ status }) => status < 300));
    const placed = answers.filter(({ status }) => status !== 503);
    expect(new Set(placed.map(({ body }) => body.orderId)).size).toBe(1);
    expect(placed.filter(({ body }) => body.replayed === false).length).toBeLessThanOrEqual(1);
  });

  it('gets no further ticket with three unpaid reservations', async () => {
    const token = await issuer.token('hoarder');
    for (let n = 0; n < 3; n++) {
      const saleId = await sell(1);
      const { ticket } = (await post(`/sales/${saleId}/tickets`, token)).body;
      expect((await post(`/sales/${saleId}/orders`, ticket as string)).status).toBe(201);
    }
    const next = await sell(1);
    const ask = () => post(`/sales/${next}/tickets`, token);
    expect(await ask()).toMatchObject({ status: 429, problem: 'too-many-requests' });

    // They expire: the customer then waits, longer for each further one.
    const customer = customerId(ISSUER, 'hoarder');
    const expire = `UPDATE orders SET expires_at = now() - interval '1 s' WHERE user_id = $1`;
    await stores.sql.query(expire, [customer]);
    const left = `SELECT FROM orders WHERE user_id = $1 AND status = 'pending'`;
    await expect.poll(async () => (await stores.sql.query(left, [customer])).rowCount).toBe(0);
    const { status, headers } = await ask();
    expect(status).toBe(429);
    expect(Number(headers.get('retry-after'))).toBeGreaterThan(30);
  });

  it('waits twice as long for each further reservation that expired or was cancelled', () => {
    const nowMs = Date.now();
    const unpaid = (closed: number) => ({ pending: 0, closed, lastClosedAt: new Date(nowMs) });
    const waits = [0, 2, 3, 4, 5, 13, 60].map((count) => waitOf(unpaid(count), nowMs));
    expect(waits).toEqual([null, null, 60, 120, 240, 61_440, 86_400]); // after a day, they do not count
    expect(waitOf(unpaid(3), nowMs + 60_000)).toBeNull();
  });
});

describe('the proof of work', () => {
  it('is required where it is configured, and bound to sale and customer', async () => {
    const saleId = await sell(1);
    const [ann, ben] = [await issuer.token('worker'), await issuer.token('lazy')];
    let addresses = 0; // each may send five requests
    const ask = (token: string, body: object) => {
      const address = { 'x-forwarded-for': `192.0.2.${++addresses}` };
      return post(`/sales/${saleId}/tickets`, token, body, guarded, address);
    };
    const refused = await ask(ann, {});
    expect(refused).toMatchObject({ status: 403, problem: 'proof-required' });
    const proof = await solve(refused.body);
    expect(await ask(ben, { proof })).toMatchObject({ status: 403 });
    const wrong = { proof: { ...proof, nonce: `${Number(proof.nonce) + 1}` } };
    expect((await ask(ann, wrong)).status).toBe(403);
    const { status, body } = await ask(ann, { proof });
    expect(status).toBe(201);
    // The payment window is 120 s: a ticket has ended when a reservation made with it expires.
    expect(Date.parse(body.expiresAt as string) - Date.parse(body.notBefore as string)).toBe(120_000);
    await stores.sql.query('UPDATE sales SET payment_window_s = 60 WHERE id = $1', [saleId]);
    const shorter = (await ask(ann, { proof })).body;
    expect(Date.parse(shorter.expiresAt as string) - Date.parse(shorter.notBefore as string)).toBe(60_000);
  });
});

describe('one address', () => {
  const ask = (forwardedFor: string) =>
    call(`${guarded.url}/strategies`, { headers: { 'x-forwarded-for': forwardedFor } });

  it('is rate-limited, whatever forwarding headers it sends', async () => {
    await passed((n) => ask(`192.0.2.${n % 256}, 203.0.113.9`));
    const probe = (n: number) =>
      call(`${guarded.url}/${n % 2 ? 'healthz' : 'readyz'}`, {
        headers: { 'x-forwarded-for': '203.0.113.9' },
      });
    const probes = await Promise.all(Array.from({ length: 30 }, (_, n) => probe(n)));
    expect(probes.map(({ status }) => status)).toEqual(Array(30).fill(200));
    const answers = await Promise.all(Array.from({ length: 30 }, (_, n) => ask(`192.0.2.${n}`)));
    expect(answers.map(({ status }) => status)).toEqual(Array(30).fill(200));
  });

  it('cannot crash the process by resetting its connections', async () => {
    const bytes = 'GET /sales HTTP/1.1\r\nHost: test\r\nX-Forwarded-For: 198.51.100.1\r\n\r\n';
    const reset = () =>
      new Promise<void>((resolve) => {
        const socket = connect(Number(new URL(guarded.url).port), '127.0.0.1').on('error', () => {});
        socket.on('close', () => resolve());
        socket.write(bytes.repeat(3), () => socket.resetAndDestroy());
      });
    for (let n = 0; n < 3; n++) await Promise.all(Array.from({ length: 50 }, reset));
    // This address may have used its requests up.
    await eventually(
      () => call(`${guarded.url}/healthz`),
      ({ status }) => status === 200,
    );
  });

  it('cannot exceed its rate with many customers', async () => {
    const saleId = await sell(1_000);
    const answers = await passed((n) =>
      post(`/sales/${saleId}/orders`, forged(saleId, `sybil-${n}`), {}, guarded),
    );
    const bought = answers.filter(({ status }) => status === 201).length;
    const unknown = answers.filter(({ problem }) => problem === 'unknown-outcome').length;
    const { sold } = (await get(`/sales/${saleId}`, '')).body;
    expect(sold).toBeGreaterThanOrEqual(bought);
    expect(sold).toBeLessThanOrEqual(bought + unknown);
  });
});

it('accepts a new key of the issuer during a sale, and rejects the old one', async () => {
  const saleId = await sell(9);
  const [before, ticket] = [await issuer.token('ann'), forged(saleId, 'ann')];
  expect((await post(`/sales/${saleId}/tickets`, before)).status).toBe(201);
  await issuer.rotate();
  const after = await issuer.token('ann');
  const ask = (token: string) => post(`/sales/${saleId}/tickets`, token);
  await expect.poll(() => ask(after)).toMatchObject({ status: 201 });
  expect((await ask(before)).status).toBe(401);
  expect((await post(`/sales/${saleId}/orders`, ticket)).status).toBe(201);
});

it('keys that are due are renewed in the background, and count while the issuer is down', async () => {
  const [own, errors] = [await openIssuer(), [] as unknown[]];
  const { AUTH_JWKS_URL: jwksUrl = '', AUTH_ISSUER, AUTH_AUDIENCE } = own.env;
  const auth = { jwksUrl, issuer: AUTH_ISSUER!, audience: AUTH_AUDIENCE! };
  const alwaysDue = { keysMaxAgeMs: 0, keysKeptMs: 60_000 };
  const identity = createIdentity(auth, (error) => errors.push(error), alwaysDue);
  const [ann, token] = [customerId(ISSUER, 'ann'), await own.token('ann')];
  expect(await identity.customerOf(token)).toMatchObject({ id: ann });
  await own[Symbol.asyncDispose]();
  for (let n = 0; n < 3; n++) expect(await identity.customerOf(token)).toMatchObject({ id: ann });
  await expect.poll(() => errors.length).toBe(1); // of three due renewals: the others wait for keysCooldownMs
});

it('an unreachable issuer is unavailable, not unauthorized', async () => {
  const auth = { jwksUrl: 'http://127.0.0.1:9/', issuer: ISSUER, audience: 'shop' };
  expect(await createIdentity(auth).customerOf(await issuer.token('ann'))).toMatchObject({
    kind: 'unavailable',
  });
});
