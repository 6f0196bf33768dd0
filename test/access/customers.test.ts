/** AUTH=jwt on a running service, with an issuer of tokens on loopback: who may do what, tickets, and their turns. */
import { createHash } from 'node:crypto';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { exportJWK, generateKeyPair, SignJWT } from 'jose';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { zeroBits } from '../../src/access/bot-check.ts';
import { customerId } from '../../src/access/identity.ts';
import { createTickets } from '../../src/access/ticket.ts';
import { type Answer, call, eventually } from '../support/client.ts';
import { startService, type TestService } from '../support/service.ts';
import { openTestStores, type TestStores } from '../support/stores.ts';

const ISSUER = 'https://id.example';
const KEY = Buffer.alloc(32, 'k');
const OLDER = Buffer.alloc(32, 'o');
const ADMIN = 'ann:0123456789abcdef';

/** An issuer with one key at a time. */
async function openIssuer() {
  const make = async (kid: string) => ({ kid, ...(await generateKeyPair('ES256')) });
  let key = await make('first');
  const server: Server = createServer(async (_req, res) => {
    res.end(JSON.stringify({ keys: [{ ...(await exportJWK(key.publicKey)), kid: key.kid, alg: 'ES256' }] }));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    rotate: async () => {
      key = await make('second');
    },
    token: (sub: string, { audience = 'shop', issuer = ISSUER, exp = '5m', signer = key } = {}) =>
      new SignJWT({ sub })
        .setProtectedHeader({ alg: 'ES256', kid: key.kid })
        .setIssuer(issuer)
        .setAudience(audience)
        .setExpirationTime(exp)
        .sign(signer.privateKey),
    other: make,
    close: () => new Promise((resolve) => server.close(resolve)),
  };
}

let stores: TestStores;
let issuer: Awaited<ReturnType<typeof openIssuer>>;
let service: TestService;
let guarded: TestService;

beforeAll(async () => {
  [stores, issuer] = await Promise.all([openTestStores(), openIssuer()]);
  const env = {
    DATABASE_URL: stores.databaseUrl,
    REDIS_URL: stores.redisUrl,
    AUTH: 'jwt',
    AUTH_JWKS_URL: issuer.url,
    AUTH_ISSUER: ISSUER,
    AUTH_AUDIENCE: 'shop',
    TICKET_SECRETS: [KEY, OLDER].map((key) => key.toString('base64')).join(),
    ADMIN_TOKEN: ADMIN,
    ADDRESS_RATE: '0',
  };
  [service, guarded] = await Promise.all([
    startService(env),
    startService({ ...env, BOT_CHECK: 'proof-of-work', ADDRESS_RATE: '5' }),
  ]);
});
afterAll(async () => {
  await service?.kill();
  await guarded?.kill();
  await issuer?.close();
  await stores?.[Symbol.asyncDispose]();
});

const bearer = (token: string) => ({ authorization: `Bearer ${token}` });
const admin = bearer(ADMIN.slice(4));
const json = { 'content-type': 'application/json' };
const post = (path: string, token: string, body: object = {}, url = service.url): Promise<Answer> =>
  call(`${url}${path}`, {
    method: 'POST',
    headers: { ...json, ...bearer(token) },
    body: JSON.stringify(body),
  });
const get = (path: string, token: string) => call(`${service.url}${path}`, { headers: bearer(token) });
const sell = async (stock: number, more: object = {}): Promise<number> => {
  const body = JSON.stringify({ name: 'sale', stock, priceCents: 500, ...more });
  const answer = await call(`${service.url}/sales`, { method: 'POST', headers: { ...json, ...admin }, body });
  return answer.body.id as number;
};
/** A ticket as the service issues it, with other values. */
const forged = (saleId: number, customer: string, { fromMs = -1_000, untilMs = 60_000, key = KEY } = {}) =>
  createTickets([key]).issue({
    saleId,
    customer,
    notBeforeMs: Date.now() + fromMs,
    expiresMs: Date.now() + untilMs,
  });

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

  it.each<[string, () => Promise<string>]>([
    ['of another audience', () => issuer.token('ann', { audience: 'bank' })],
    ['of another issuer', () => issuer.token('ann', { issuer: 'https://evil.example' })],
    ['that has expired', () => issuer.token('ann', { exp: '-1m' })],
    ['signed by another key', async () => issuer.token('ann', { signer: await issuer.other('first') })],
    ['that is none', async () => 'none'],
    ['without a signature', async () => `${Buffer.from('{"alg":"none"}').toString('base64url')}.e30.`],
  ])('is not believed with a token %s', async (_name, token) => {
    const saleId = await sell(1);
    expect(await post(`/sales/${saleId}/tickets`, await token())).toMatchObject({
      status: 401,
      problem: 'unauthorized',
    });
  });

  it.each<[string, (saleId: number) => string, string, number]>([
    ['none', () => '', 'invalid-ticket', 401],
    ['one of another sale', (saleId) => forged(saleId + 1, 'ann'), 'invalid-ticket', 401],
    ['an expired one', (saleId) => forged(saleId, 'ann', { untilMs: -1 }), 'invalid-ticket', 401],
    [
      'one of a foreign key',
      (saleId) => forged(saleId, 'ann', { key: Buffer.alloc(32, 'f') }),
      'invalid-ticket',
      401,
    ],
    ['an altered one', (saleId) => forged(saleId, 'ann').replace('.ann.', '.ben.'), 'invalid-ticket', 401],
    ['one whose turn has not come', (saleId) => forged(saleId, 'ann', { fromMs: 9_000 }), 'too-early', 409],
  ])('does not buy with %s', async (_name, ticket, problem, status) => {
    const saleId = await sell(1);
    expect(await post(`/sales/${saleId}/orders`, ticket(saleId))).toMatchObject({ status, problem });
    expect((await get(`/sales/${saleId}`, '')).body.sold).toBe(0);
  });

  it('buys with a ticket of the key before', async () => {
    const saleId = await sell(1);
    expect((await post(`/sales/${saleId}/orders`, forged(saleId, 'ann', { key: OLDER }))).status).toBe(201);
  });

  it('may not attempt more than 5 times a second', async () => {
    const saleId = await sell(1);
    const ticket = forged(saleId, 'quick');
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => post(`/sales/${saleId}/orders`, ticket)),
    );
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(1);
    expect(answers.filter(({ problem }) => problem === 'too-many-requests').length).toBeGreaterThan(5);
  });

  it('gets no further ticket with three unpaid reservations', async () => {
    const token = await issuer.token('hoarder');
    for (let n = 0; n < 3; n++) {
      const saleId = await sell(1);
      const { ticket } = (await post(`/sales/${saleId}/tickets`, token)).body;
      expect((await post(`/sales/${saleId}/orders`, ticket as string)).status).toBe(201);
    }
    expect(await post(`/sales/${await sell(1)}/tickets`, token)).toMatchObject({
      status: 429,
      problem: 'too-many-requests',
    });
  });
});

describe('the waiting room', () => {
  it('draws a turn after the start, the same one however often it is asked for', async () => {
    const startsAt = new Date(Date.now() + 60_000);
    const saleId = await sell(1, { startsAt: startsAt.toISOString(), spreadS: 10 });
    const token = await issuer.token('early');
    const turns = [];
    for (let n = 0; n < 3; n++) turns.push((await post(`/sales/${saleId}/tickets`, token)).body.notBefore);
    expect(new Set(turns).size).toBe(1);
    const afterMs = Date.parse(turns[0] as string) - startsAt.getTime();
    expect(afterMs).toBeGreaterThanOrEqual(0);
    expect(afterMs).toBeLessThan(10_000);
  });

  it('gives late customers one turn after the other, behind the lottery when it takes every turn', async () => {
    const saleId = await sell(9, { startsAt: new Date(Date.now() - 1_000).toISOString(), spreadS: 3_600 });
    await stores.redis.hset(`stampede:{sale:${saleId}}:turns`, '#early', 1_000_000_000);
    const turnOf = async (name: string) =>
      Date.parse((await post(`/sales/${saleId}/tickets`, await issuer.token(name))).body.notBefore as string);
    const [first, second] = [await turnOf('late-1'), await turnOf('late-2')];
    expect(first).toBeGreaterThan(Date.now() + 3_000_000);
    expect(second).toBeGreaterThanOrEqual(first);
  });
});

describe('the proof of work', () => {
  it('is required where it is configured, and bound to sale and customer', async () => {
    const saleId = await sell(1);
    const [ann, ben] = [await issuer.token('worker'), await issuer.token('lazy')];
    const refused = await post(`/sales/${saleId}/tickets`, ann, {}, guarded.url);
    expect(refused).toMatchObject({ status: 403, problem: 'proof-required' });
    const { challenge, bits } = refused.body as unknown as { challenge: string; bits: number };
    let nonce = 0;
    while (zeroBits(createHash('sha256').update(`${challenge}.${nonce}`).digest()) < bits) nonce++;
    const proof = { challenge, nonce: String(nonce) };
    expect(await post(`/sales/${saleId}/tickets`, ben, { proof }, guarded.url)).toMatchObject({
      status: 403,
    });
    expect(await post(`/sales/${saleId}/tickets`, ann, { proof }, guarded.url)).toMatchObject({
      status: 201,
    });
  });
});

it('limits the requests of one address', async () => {
  const answers = await Promise.all(Array.from({ length: 30 }, () => call(`${guarded.url}/healthz`)));
  expect(answers.filter(({ status }) => status === 429).length).toBeGreaterThan(10);
});

it("believes the issuer's new key after a rotation", async () => {
  await issuer.rotate();
  const token = await issuer.token('ann');
  const saleId = await sell(1);
  const ask = () => post(`/sales/${saleId}/tickets`, token);
  await eventually(ask, ({ status }) => status === 201);
});
