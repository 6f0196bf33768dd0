/** The generators of load: what each reports is what the server saw. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { sharedLayout } from '../../bench/kit/pin.ts';
import { poisson } from '../../bench/load/attempts.ts';
import { chooseGenerator } from '../../bench/load/generator.ts';
import { findK6, type K6Load, k6Hint, runK6 } from '../../bench/load/k6.ts';
import { type OpenLoad, runOpenLoop } from '../../bench/load/open.ts';
import { type PostLoad, runPostLoad } from '../../bench/load/post-load.ts';
import type { RateLoad } from '../../bench/load/rate.ts';
import type { AttemptOutcome, HistoryRecord } from '../../lab/history.ts';
import { findProgram } from '../../lab/kit/processes.ts';
import { freePort } from '../../src/local/server-process.ts';
import { fakeShop, halfAnswer, serve, users } from './fake-service.ts';

const folder = mkdtempSync(join(tmpdir(), 'stampede-load-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** The customers whose attempts ended so. */
const usersOf = (history: readonly HistoryRecord[], wanted: AttemptOutcome): string[] =>
  history.flatMap(({ outcome, userId }) => (outcome === wanted ? [userId] : []));
const unanswered = { outcome: 'unknown', result: 'info', completedUs: null, status: null };

/** Every tenth answer is busy, every tenth half an answer, every tenth a reset; the others accept. `seen` has the customers. */
async function fallibleShop() {
  const harmed: string[] = [];
  const sent: (string | undefined)[] = [];
  const shop = await fakeShop((n, accept, response, request) => {
    sent.push(request.headers.authorization);
    if (n % 10 === 5) return response.writeHead(503).end('{"type":"/problems/busy"}');
    if (n % 10 !== 3 && n % 10 !== 8) return accept();
    harmed.push(shop.seen[n]!);
    if (n % 10 === 3) halfAnswer(request);
    else setTimeout(() => request.socket.resetAndDestroy(), 5);
  });
  return { ...shop, harmed, sent };
}

const shared = sharedLayout({ allowed: [] });
const kinds = findProgram('wrk') === null ? (['autocannon'] as const) : (['wrk', 'autocannon'] as const);

describe.each(kinds)('a closed loop with %s', (kind) => {
  const base: Omit<RateLoad, 'url'> = {
    ...{ saleIds: [7, 8], connections: 8, prefix: 'b', signal: new AbortController().signal },
    ...{ durationMs: null, attempts: 400, record: true },
  };
  function attack(url: string, load: Partial<RateLoad> = {}) {
    return chooseGenerator(kind, shared, folder).run({ ...base, url, ...load });
  }

  it('counts and records what the server saw: each attempt of another customer, over all sales', async () => {
    const shop = await fallibleShop();
    const { history, answers, refused, latencyMs } = await attack(shop.url);
    expect(new Set(shop.seen).size).toBe(shop.seen.length);
    // One that was due on a connection when it was reset is recorded, too.
    const known = history.filter(
      ({ userId, outcome }) => outcome !== 'unknown' || shop.seen.includes(userId),
    );
    const seen = shop.seen.filter((user) => user !== 'b1000000000'); // wrk's look at the request
    expect(known.map(({ userId }) => userId).sort()).toEqual(seen.sort());
    const named = history.filter(({ orderId }) => orderId !== null);
    for (const { userId, orderId, saleId, id, outcome } of named)
      expect({ orderId, saleId, outcome }).toEqual({
        ...{ orderId: `order-of-${userId}`, saleId: [7, 8][id % 2], outcome: 'accepted' },
      });
    expect(named.filter(({ userId }) => shop.harmed.includes(userId))).toEqual([]);
    expect(named.length).toBeGreaterThanOrEqual(answers - refused - base.connections);
    const busy = shop.seen.filter((_, n) => n % 10 === 5);
    expect(Math.abs(busy.length - refused)).toBeLessThanOrEqual(base.connections);
    if (kind === 'autocannon') expect(usersOf(history, 'busy')).toHaveLength(refused); // wrk does not see which
    expect(usersOf(history, 'unexpected')).toEqual([]);
    expect(latencyMs!.p50).toBeGreaterThan(0);
  });

  it('sends the ticket of each customer with its attempt', async () => {
    const tickets = join(folder, `tickets-${kind}.txt`);
    const customers = Array.from({ length: 100_000 }, (_, n) => `b${1_000_000_001 + n}`);
    writeFileSync(tickets, customers.map((customer) => `ticket-of-${customer}\n`).join(''));
    const shop = await fallibleShop();
    await attack(shop.url, { tickets, record: false });
    expect(shop.sent.length).toBeGreaterThan(20);
    expect(shop.sent).toEqual(shop.seen.map((customer) => `Bearer ticket-of-${customer}`));
  });
});

describe('an open loop', () => {
  /** `head` starts at once, and `tail` in an hour. */
  const headAndTail = (head: number, tail = 0): Float64Array =>
    Float64Array.from({ length: head + tail }, (_, n) => (n < head ? n * 1_000 : 3.6e9));
  function rush(url: string, schedule: Float64Array, load: Partial<OpenLoad> = {}) {
    const bounds = { connections: 200, maxOutstanding: 1_000, requestTimeoutMs: 10_000 };
    return runOpenLoop({ url, saleId: 5, users: users(schedule.length), schedule, ...bounds, ...load });
  }

  it('sends every attempt once, not before its start, and records what the server answered', async () => {
    const shop = await fallibleShop();
    const schedule = poisson({ ratePerSecond: 500, durationMs: 1_000, seed: 1 });
    const { length } = schedule;
    const { history, sending } = await rush(shop.url, schedule, { connections: 20 });
    expect([...shop.seen].sort()).toEqual(users(length).sort());
    expect(history.map(({ userId }) => userId)).toEqual(users(length));
    for (const record of history) {
      const { id, userId, invokedUs, completedUs, outcome, orderId } = record;
      expect(invokedUs).toBeGreaterThanOrEqual(Math.floor(schedule[id]!));
      if (outcome === 'unknown') expect(record).toMatchObject(unanswered);
      else expect(completedUs).toBeGreaterThan(invokedUs);
      expect(orderId).toBe(outcome === 'accepted' ? `order-of-${userId}` : null);
    }
    expect(usersOf(history, 'unknown').sort()).toEqual([...shop.harmed].sort());
    expect(usersOf(history, 'busy')).toHaveLength(shop.seen.filter((_, n) => n % 10 === 5).length);
    expect(sending).toMatchObject({ scheduled: length, sent: length, dropped: 0, unconnected: 0 });
  });

  it('drops and counts attempts beyond the bound, and those that found no server', async () => {
    const silent = await fakeShop(() => {});
    const load = { connections: 10, maxOutstanding: 20, requestTimeoutMs: 1_000 };
    const { history, sending, reasons } = await rush(silent.url, headAndTail(100), load);
    expect([silent.seen, history.map(({ userId }) => userId)]).toEqual([users(10), users(10)]);
    for (const record of history) expect(record).toMatchObject(unanswered);
    expect(sending).toMatchObject({ scheduled: 100, sent: 10, dropped: 90, unconnected: 0, notBegun: 0 });
    expect(reasons).toContainEqual(expect.stringContaining('90.0 % of the attempts were dropped'));
    const none = await rush(`http://127.0.0.1:${await freePort()}`, headAndTail(50));
    expect(none).toMatchObject({ history: [], sending: { sent: 0, dropped: 0, unconnected: 50 } });
    expect(none.reasons).toContainEqual('100.0 % of the attempts found no connection, at most 1 % may');
  });

  it('keeps its results when it is stopped, and awaits answers when an answer ends its schedule', async () => {
    const end = new AbortController();
    const shop = await fakeShop((n, answer) => n < 100 && answer());
    const stopped = await rush(shop.url, headAndTail(200, 9_800), {
      signal: end.signal,
      onProgress: (answers) => void (answers === 100 && shop.seen.length === 200 && end.abort()),
    });
    const [known, unknown] = ['accepted', 'unknown'].map((one) =>
      usersOf(stopped.history, one as AttemptOutcome),
    );
    expect([known!.length, unknown!.length]).toEqual([100, 100]);
    expect(stopped.sending).toMatchObject({ sent: 200, dropped: 0, unconnected: 0, notBegun: 9_800 });
    let answers = 0;
    const slow = await fakeShop((n, answer) => setTimeout(answer, n < 20 ? 0 : 100));
    const ended = await rush(slow.url, headAndTail(45, 955), { onAnswer: () => ++answers >= 45 });
    expect(usersOf(ended.history, 'accepted')).toHaveLength(45);
    expect(ended.sending).toMatchObject({ sent: 45, notBegun: 955 });
  });
});

describe.skipIf(findK6() === null)(`k6 (skipped without it: ${k6Hint})`, () => {
  const attack = (url: string, load: Partial<K6Load> = {}) =>
    runK6({
      ...{ url, saleId: 5, users: users(600), script: 'fixed', connections: 10, ratePerSecond: 300, folder },
      ...{ durationMs: 120_000, requestTimeoutMs: 10_000, signal: new AbortController().signal },
      ...load,
    });

  it('sends every attempt of a fixed list once, and records what the server answered', async () => {
    const shop = await fallibleShop();
    const { history, dropped, strangeAnswers, thresholds } = await attack(shop.url);
    expect(history.map(({ userId }) => userId).sort()).toEqual([...shop.seen].sort());
    expect([...shop.seen].sort()).toEqual(users(600).sort());
    for (const record of history) {
      const { id, userId, saleId, orderId, outcome, invokedUs, completedUs } = record;
      expect({ userId, saleId }).toEqual({ userId: users(600)[id], saleId: 5 });
      expect(orderId).toBe(outcome === 'accepted' ? `order-of-${userId}` : null);
      if (outcome === 'unknown') expect(record).toMatchObject(unanswered);
      else expect(completedUs).toBeGreaterThan(invokedUs);
    }
    expect(usersOf(history, 'unknown').sort()).toEqual([...shop.harmed].sort());
    expect([usersOf(history, 'busy').length, usersOf(history, 'accepted').length]).toEqual([60, 420]);
    expect({ dropped, strangeAnswers }).toEqual({ dropped: 0, strangeAnswers: [] });
    expect(thresholds).toContainEqual({ name: 'stampede_unexpected count==0', passed: true });
  });
});

/** Orders change state as they should. */
async function payableOrders() {
  const states = new Map<string, string>();
  const times = new Map<string, number>();
  const stateAfter = (what: string, state: string): string | null => {
    if (what === 'cancel') return state === 'pending' ? 'cancelled' : null;
    return state === 'cancelled' || state === 'refund-due' ? 'refund-due' : 'paid';
  };
  const url = await serve((body, response, request) => {
    const cancelled = /^\/orders\/(.+)\/cancel$/.exec(request.url ?? '')?.[1];
    const id: string = cancelled ?? JSON.parse(body).orderId;
    const what = cancelled === undefined ? 'pay' : 'cancel';
    times.set(`${what} ${id}`, (times.get(`${what} ${id}`) ?? 0) + 1);
    const status = stateAfter(what, states.get(id) ?? 'pending');
    if (status === null) response.writeHead(409).end('{"type":"/problems/invalid-transition"}');
    else response.end(JSON.stringify({ orderId: id, status: states.set(id, status).get(id) }));
  });
  return { url, times };
}

it('after a load: pays, cancels and pays too late, each twice, and leaves the other orders as they are', async () => {
  const orderIds = Array.from({ length: 12 }, (_, n) => `order-${n}`);
  const run = (url: string, load: Partial<PostLoad> = {}) => {
    const { signal } = new AbortController();
    return runPostLoad({ url, orderIds, priceCents: 1_000, mayCancel: true, signal, ...load });
  };
  const { url, times } = await payableOrders();
  expect(await run(url)).toEqual({ paid: 4, cancelled: 4, refundDue: 2, findings: [] });
  expect([...times.values()]).toEqual(Array.from({ length: 4 + 4 + 2 }, () => 2));
  expect(new Set([...times.keys()].map((deed) => deed.split(' ')[1])).size).toBe(8);
  const others = await payableOrders();
  const payments = { paid: 4, cancelled: 0, refundDue: 0, findings: [] };
  expect(await run(others.url, { mayCancel: false })).toEqual(payments);
});
