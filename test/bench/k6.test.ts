import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { afterAll, afterEach, describe, expect, it, vi } from 'vitest';
import { findK6, type K6Load, k6Hint, runK6 } from '../../bench/load/k6.ts';
import type { AttemptOutcome, HistoryRecord } from '../../lab/history.ts';
import { closeServers, halfAnswer, serve, users } from './fake-service.ts';

const missing = findK6() === null;
const folder = mkdtempSync(join(tmpdir(), 'stampede-k6-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

interface Shop {
  readonly stock: number;
  /** Answers nothing about the sale once it has sold a unit. */
  readonly deaf?: boolean;
  /** Answers the n-th purchase, counted from 0. @returns true if it was answered here, or never will be */
  readonly plant?: (n: number, response: ServerResponse, request: IncomingMessage) => boolean;
}

afterEach(() => void vi.unstubAllEnvs());

type Fake = Awaited<ReturnType<typeof fakeService>>;

/** Sells `stock` units of sale 5, one to a customer, and counts its answers. */
async function fakeService({ stock, deaf = false, plant }: Shop) {
  const fake = {
    /** The users of the purchases that arrived, in order. */
    seen: [] as string[],
    orders: new Map<string, string>(),
    answered: {} as Partial<Record<AttemptOutcome, number>>,
  };
  const tell = (response: ServerResponse, what: AttemptOutcome, status: number, body: object): void => {
    fake.answered[what] = (fake.answered[what] ?? 0) + 1;
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  };
  const sell = (userId: string, response: ServerResponse): void => {
    const known = fake.orders.get(userId);
    if (known !== undefined) tell(response, 'replayed', 200, { orderId: known, replayed: true });
    else if (fake.orders.size >= stock) {
      tell(response, 'sold-out', 409, { type: '/problems/sold-out', title: 'sold out', status: 409 });
    } else {
      const orderId = `order-of-${userId}`;
      fake.orders.set(userId, orderId);
      tell(response, 'accepted', 201, { orderId, userId, status: 'pending', replayed: false });
    }
  };
  const url = await serve((text, response, request) => {
    if (request.method === 'POST' && request.url === '/sales/5/orders') {
      const { userId } = JSON.parse(text) as { userId: string };
      const n = fake.seen.push(userId) - 1;
      if (!plant?.(n, response, request)) sell(userId, response);
    } else {
      const sold = fake.orders.size;
      const sale = { id: 5, stock, sold, remaining: Math.max(0, stock - sold) };
      if (!deaf || sold === 0) response.end(JSON.stringify(sale));
    }
  });
  return { ...fake, url };
}

function attack(fake: Fake, load: Partial<K6Load>): ReturnType<typeof runK6> {
  return runK6({
    ...{ url: fake.url, saleId: 5, users: users(600), script: 'fixed', connections: 10, ratePerSecond: 300 },
    ...{ durationMs: 120_000, requestTimeoutMs: 10_000, signal: new AbortController().signal },
    folder: relative('', folder), // relative, as in the bench
    ...load,
  });
}

/** The customers whose attempts ended so. */
const usersOf = (history: readonly HistoryRecord[], wanted: AttemptOutcome): string[] =>
  history.flatMap(({ outcome, userId }) => (outcome === wanted ? [userId] : []));

const counts = (history: readonly HistoryRecord[]): Record<string, number> =>
  Object.fromEntries(history.map(({ outcome }) => [outcome, usersOf(history, outcome).length]));

/** Checks a history by itself and against the server. */
function expectHistory(history: readonly HistoryRecord[], fake: Fake, list: readonly string[]): void {
  expect(new Set(history.map(({ id }) => id)).size).toBe(history.length);
  expect(history.map(({ userId }) => userId).sort()).toEqual([...fake.seen].sort());
  for (const { id, userId, op, saleId, invokedUs, completedUs, outcome, orderId, status } of history) {
    expect({ op, saleId, userId }).toEqual({ op: 'purchase', saleId: 5, userId: list[id] });
    expect(Number.isInteger(invokedUs) && invokedUs >= 0).toBe(true);
    if (outcome === 'unknown') expect({ completedUs, status }).toEqual({ completedUs: null, status: null });
    else expect(completedUs).toBeGreaterThan(invokedUs);
    if (outcome === 'accepted') expect(orderId).toBe(fake.orders.get(userId));
  }
}

const needsK6 = missing ? ` (skipped: ${k6Hint})` : '';

describe.skipIf(missing)(`k6 as the load generator${needsK6}`, () => {
  afterEach(() => expect(readdirSync(folder)).toEqual([]));

  it('sends every attempt of a fixed list exactly once, and classifies outcomes as the server does', async () => {
    vi.stubEnv('K6_ITERATIONS', '3'); // neither counts
    vi.stubEnv('URL', 'http://127.0.0.1:1');
    const list = [...users(500), ...users(100)];
    const hung: string[] = [];
    const fake = await fakeService({
      stock: 50,
      plant(n, response) {
        if (n === 300) hung.push(fake.seen[n]!);
        if (n === 200) response.writeHead(500).end('{"type":"/problems/internal-error","title":"é"}');
        return n === 200 || n === 300;
      },
    });
    const result = await attack(fake, { users: list });

    expect(fake.seen).toHaveLength(600);
    expectHistory(result.history, fake, list);
    expect(counts(result.history)).toEqual({ ...fake.answered, unexpected: 1, unknown: 1 });
    expect(fake.answered).toMatchObject({ accepted: 50, replayed: expect.any(Number) });
    expect(usersOf(result.history, 'unknown')).toEqual(hung);
    expect(result.strangeAnswers).toEqual([
      { status: 500, body: '{"type":"/problems/internal-error","title":"é"}' },
    ]);
    expect(result.dropped).toBe(0);
    expect(result.cpuS).toBeGreaterThan(0);
    expect(result.thresholds).toHaveLength(3);
    expect(result.thresholds).toContainEqual({ name: 'stampede_unexpected count==0', passed: false });
    expect(result.thresholds).toContainEqual({ name: 'stampede_oversold count==0', passed: true });
  });

  it('records attempts with a reset or half an answer as unknown', async () => {
    const harmed = new Set<string>();
    const fake = await fakeService({
      stock: 600,
      plant(n, _response, request) {
        if (n % 20 > 1) return false;
        harmed.add(fake.seen[n]!);
        if (n % 20 === 1) halfAnswer(request);
        else setTimeout(() => request.socket.resetAndDestroy(), 5);
        return true;
      },
    });
    const { history } = await attack(fake, {});
    expectHistory(history, fake, users(600));
    expect(usersOf(history, 'unknown').sort()).toEqual([...harmed].sort());
    expect(counts(history).accepted).toBe(540);
  });

  it.each([
    ['fixed', 'is deaf to k6’s last question'],
    ['rush', 'answers it'],
  ] as const)(
    'ends soon, and leaves nothing, when it is ended: %s, and the service %s',
    async (script, service) => {
      const end = new AbortController();
      const fake = await fakeService({
        stock: 1_000,
        deaf: service !== 'answers it',
        plant: (n) => {
          if (n === 109) setTimeout(() => end.abort(), 100);
          return n >= 100;
        },
      });
      // Without the end, it lasts longer than a test may; the rush grows as one of 300/s in 20 s.
      const long = { durationMs: 600_000, requestTimeoutMs: 600_000, ratePerSecond: 9_000 };
      const load = { script, signal: end.signal, users: users(5_000), ...long };
      const { history, thresholds } = await attack(fake, load);
      // k6 is killed: it would wait 10 s for the answer, and then judge.
      if (service !== 'answers it') expect(thresholds).toEqual([]);
      expectHistory(history, fake, load.users);
      expect(counts(history)).toEqual({ accepted: 100, unknown: 10 });
      expect((await attack(fake, load)).history).toEqual([]);
    },
  );

  it('fails with the output of k6 when there is no service', async () => {
    const fake = await fakeService({ stock: 1 });
    await closeServers();
    await expect(attack(fake, {})).rejects.toThrow(/k6 ended with code 107[\s\S]*GET \/sales\/5/);
  });
});
