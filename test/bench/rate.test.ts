/** The closed loops on a server that counts, and every generator on the real service. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { type Layout, layoutOf } from '../../bench/kit/pin.ts';
import { merged, shareOf } from '../../bench/load/autocannon.ts';
import { chooseGenerator } from '../../bench/load/generator.ts';
import { findK6, runK6 } from '../../bench/load/k6.ts';
import type { RateLoad, RateResult } from '../../bench/load/rate.ts';
import { auditSale } from '../../lab/audit/sale.ts';
import { createSale } from '../../lab/clients/admin.ts';
import { findProgram } from '../../lab/kit/processes.ts';
import { spawnService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';
import { fakeShop, halfAnswer, users } from './fake-service.ts';

const folder = mkdtempSync(join(tmpdir(), 'stampede-rate-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const shared = layoutOf(false, { allowed: [], taskset: false }) as Layout;
const base: Omit<RateLoad, 'url' | 'signal'> = {
  ...{ saleIds: [7, 8], connections: 8, prefix: 'b' },
  ...{ durationMs: null, attempts: 400, record: true },
};

function attack(kind: 'wrk' | 'autocannon', url: string, load: Partial<RateLoad> = {}): Promise<RateResult> {
  const generator = chooseGenerator(kind, shared, folder);
  if (typeof generator === 'string') throw new Error(generator);
  return generator.run({ ...base, url, signal: new AbortController().signal, ...load });
}

const kinds = findProgram('wrk') === null ? (['autocannon'] as const) : (['wrk', 'autocannon'] as const);

describe.each(kinds)('a closed loop with %s', (kind) => {
  it('sends each attempt for another customer, over all sales, and records every answer', async () => {
    const fake = await fakeShop((_n, accept) => accept());
    const { history, answers, refused, unanswered, latencyMs, cpuS } = await attack(kind, fake.url);
    expect(new Set(fake.seen).size).toBe(fake.seen.length);
    const seen = fake.seen.filter((user) => user !== 'b1000000000');
    expect(history.map(({ userId }) => userId).sort()).toEqual([...seen].sort());
    const accepted = history.filter(({ outcome }) => outcome === 'accepted');
    expect(history.length - accepted.length).toBeLessThanOrEqual(base.connections);
    for (const { userId, saleId, id, orderId, invokedUs, completedUs, result } of accepted) {
      const expected = { orderId: `order-of-${userId}`, saleId: [7, 8][id % 2], result: 'ok' };
      expect({ orderId, saleId, result }).toEqual(expected);
      expect(completedUs).toBeGreaterThanOrEqual(invokedUs);
    }
    expect(accepted.length).toBeGreaterThanOrEqual(answers - base.connections);
    expect({ refused, unanswered }).toEqual({ refused: 0, unanswered: 0 });
    expect(latencyMs!.p50).toBeGreaterThan(0);
    expect(cpuS).toBeGreaterThanOrEqual(0); // in ticks of 10 ms
  });

  it('sends the ticket of each customer with its attempt', async () => {
    const tickets = join(folder, `tickets-${kind}.txt`);
    const customers = Array.from({ length: 100_000 }, (_, n) => `b${1_000_000_001 + n}`);
    writeFileSync(tickets, customers.map((customer) => `ticket-of-${customer}\n`).join(''));
    const sent: (string | undefined)[] = [];
    const fake = await fakeShop((_n, accept, _response, request) => {
      sent.push(request.headers.authorization);
      accept();
    });
    const { refused, unanswered } = await attack(kind, fake.url, { tickets, record: false });
    expect({ refused, unanswered }).toEqual({ refused: 0, unanswered: 0 });
    expect(sent.length).toBeGreaterThan(20);
    expect(sent).toEqual(fake.seen.map((customer) => `Bearer ticket-of-${customer}`));
  });

  it('counts rejections, and mistakes none for an order', async () => {
    const fake = await fakeShop((n, accept, response) => {
      if (n % 4 === 0) response.writeHead(503).end('{"type":"/problems/busy"}');
      else accept();
    });
    const { history, answers, refused } = await attack(kind, fake.url);
    expect(refused / answers).toBeCloseTo(0.25, 1);
    const outcomes = new Set(history.map(({ outcome }) => outcome));
    expect(outcomes.has('accepted')).toBe(true);
    expect([...outcomes].every((outcome) => ['accepted', 'busy', 'unknown'].includes(outcome))).toBe(true);
    const named = history.filter(({ orderId }) => orderId !== null);
    expect(named.every(({ userId, orderId }) => orderId === `order-of-${userId}`)).toBe(true);
    expect(named.length).toBeGreaterThanOrEqual(answers - refused - base.connections);
  });

  it('does not attribute half an answer to a later attempt', async () => {
    const fake = await fakeShop((n, accept, _response, request) => {
      if (n % 10 === 3) halfAnswer(request);
      else accept();
    });
    const { history } = await attack(kind, fake.url);
    const accepted = history.filter(({ outcome }) => outcome === 'accepted');
    expect(accepted.length).toBeGreaterThan(20);
    expect(accepted.every(({ userId, orderId }) => orderId === `order-of-${userId}`)).toBe(true);
  });

  it('ends at once with its signal', async () => {
    const stop = new AbortController();
    const fake = await fakeShop((n, accept) => (n === 100 ? stop.abort(new Error('interrupted')) : accept()));
    const long = { durationMs: 3_600_000, attempts: null, signal: stop.signal };
    await expect(attack(kind, fake.url, long)).rejects.toThrow('interrupted');
  });
});

it('the numbers of several workers are added up', () => {
  const numbers = { durationMs: 5, answers: 2, refused: 1, unanswered: 0, latencyMs: null, cpuS: 1 };
  expect(merged([numbers, { ...numbers, durationMs: 6, latencyMs: { p50: 1, p99: 2 } }])).toEqual({
    ...{ durationMs: 6, answers: 4, refused: 2, unanswered: 0, cpuS: 2 },
    latencyMs: { p50: 1, p99: 2 },
  });
  // Of three workers, each has its attempts and connections, and none is left out.
  const quantities = { least: 1, most: 4 };
  const more = { customers: 10, quantities, tickets: 'file' };
  const load = {
    ...base,
    url: '',
    attempts: 7,
    connections: 5,
    signal: new AbortController().signal,
    ...more,
  };
  const shares = [0, 1, 2].map((index) => shareOf(load, index, 3));
  const shown = shares.map(({ first, step, attempts, connections }) => [first, step, attempts, connections]);
  expect(shown.join(' ')).toBe('1,3,3,2 2,3,2,2 3,3,2,1');
  for (const share of shares) expect(share).toMatchObject(more);
});

describe('on the real service', () => {
  it('every generator leaves a history that the audit confirms', async () => {
    await using stores = await openTestStores();
    await using service = await spawnService({ ...envOf(stores), STRATEGY: 'lua', ADMISSION_MS: '60000' });
    const { url } = service;
    const check = async (saleId: number, history: RateResult['history'], least: number): Promise<void> => {
      expect(history.filter(({ outcome }) => outcome === 'accepted').length).toBeGreaterThan(least);
      const { verdict, findings } = await auditSale({ ...stores, saleId, history });
      expect({ verdict, findings }).toEqual({ verdict: 'pass', findings: [] });
    };
    for (const kind of kinds) {
      const saleId = await createSale(url, 50_000);
      const load = { saleIds: [saleId], prefix: kind };
      await check(saleId, (await attack(kind, url, load)).history, 5);
    }
    if (findK6() === null) return;
    const saleId = await createSale(url, 50);
    const { history } = await runK6({
      ...{ url, saleId, users: users(120), script: 'fixed', connections: 8, ratePerSecond: 100 },
      ...{ durationMs: 120_000, requestTimeoutMs: 10_000, folder, signal: new AbortController().signal },
    });
    await check(saleId, history, 49);
  });
});
