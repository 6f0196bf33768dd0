import type { IncomingMessage, ServerResponse } from 'node:http';
import { describe, expect, it } from 'vitest';
import { poisson } from '../../bench/load/attempts.ts';
import { type OpenLoad, runOpenLoop } from '../../bench/load/open.ts';
import { percentiles, type Sending, whyInvalid } from '../../bench/load/sending.ts';
import type { HistoryRecord } from '../../lab/history.ts';
import { closeServers, halfAnswer, serve, users } from './fake-service.ts';

/** What the server under load does with the n-th purchase, counted from 0. */
type Behaviour = (n: number, accept: () => void, request: IncomingMessage) => void;

async function fakeService(behave: Behaviour): Promise<{ readonly url: string; readonly seen: string[] }> {
  const seen: string[] = [];
  const url = await serve((body, response, request) => {
    if (request.method !== 'POST') return response.end('{"status":"ok"}');
    expect(request.url).toBe('/sales/5/orders');
    const { userId } = JSON.parse(body) as { userId: string };
    behave(seen.push(userId) - 1, () => accept(response, userId), request);
  });
  return { url, seen };
}

function accept(response: ServerResponse, userId: string): void {
  const order = { orderId: `order-of-${userId}`, saleId: 5, userId, status: 'pending', replayed: false };
  response.writeHead(201, { 'content-type': 'application/json' }).end(JSON.stringify(order));
}

/** `attempts` starts, `everyMs` apart. */
const evenly = (attempts: number, everyMs: number): Float64Array =>
  Float64Array.from({ length: attempts }, (_, n) => n * everyMs * 1_000);

function rush(url: string, schedule: Float64Array, load: Partial<OpenLoad> = {}) {
  return runOpenLoop({
    url,
    saleId: 5,
    users: users(schedule.length),
    schedule,
    connections: 200,
    maxOutstanding: 1_000,
    requestTimeoutMs: 10_000,
    ...load,
  });
}

/** Every scheduled attempt is counted once. */
function total({ sent, dropped, unconnected, notBegun }: Sending): number {
  return sent + dropped + unconnected + notBegun;
}

describe('open loop', () => {
  it('sends every attempt once, at its intended start or a little later', async () => {
    const fake = await fakeService((_n, answer) => answer());
    const schedule = poisson({ ratePerSecond: 500, durationMs: 1_000, seed: 1 });
    const result = await rush(fake.url, schedule);
    expect([...fake.seen].sort()).toEqual(users(schedule.length).sort());
    expect(result.history.map(({ userId }) => userId)).toEqual(users(schedule.length));
    for (const { id, invokedUs, completedUs, outcome, orderId, userId } of result.history) {
      expect({ outcome, orderId }).toEqual({ outcome: 'accepted', orderId: `order-of-${userId}` });
      expect(invokedUs).toBeGreaterThanOrEqual(Math.floor(schedule[id]!));
      expect(completedUs).toBeGreaterThan(invokedUs);
    }
    expect(result.sending).toMatchObject({ scheduled: schedule.length, sent: schedule.length, dropped: 0 });
  });

  it('shows a stall of 200 ms in its p99', async () => {
    let stallAt: number | null = null;
    const stalling = await fakeService((_n, answer) => {
      stallAt ??= performance.now() + 700;
      const sinceMs = performance.now() - stallAt;
      if (sinceMs >= 0 && sinceMs < 200) setTimeout(answer, 200 - sinceMs);
      else answer();
    });

    // Even with 4 connections: an attempt due in the stall waits for one, and its wait counts.
    for (const connections of [4, 200]) {
      const schedule = poisson({ ratePerSecond: 400, durationMs: 2_000, seed: 2 });
      stallAt = null;
      const { history } = await rush(stalling.url, schedule, { connections });
      const openUs = history.map(({ id, completedUs }) => completedUs! - schedule[id]!);
      expect(percentiles(openUs).p99).toBeGreaterThan(150);
    }
  });

  it('drops and counts attempts beyond the bound and attempts that waited too long', async () => {
    const silent = await fakeService(() => {});
    const schedule = evenly(100, 0.01);
    const load = { connections: 10, maxOutstanding: 20, requestTimeoutMs: 1_000 };
    const { history, sending, reasons } = await rush(silent.url, schedule, load);
    expect(silent.seen).toEqual(users(10));
    expect(history.map(({ userId }) => userId)).toEqual(users(10));
    for (const { outcome, result, completedUs } of history)
      expect({ outcome, result, completedUs }).toEqual({
        outcome: 'unknown',
        result: 'info',
        completedUs: null,
      });
    expect(sending).toMatchObject({ scheduled: 100, sent: 10, dropped: 90, unconnected: 0, notBegun: 0 });
    expect(reasons).toContainEqual(expect.stringContaining('90.0 % of the attempts were dropped'));
  });

  it('keeps its results when it is stopped', async () => {
    const end = new AbortController();
    const fake = await fakeService((n, answer) => {
      if (n < 100) answer();
      if (n === 105) setTimeout(() => end.abort(), 300);
    });
    const begin = performance.now();
    const { history, sending } = await rush(fake.url, evenly(10_000, 2), { signal: end.signal });
    expect(performance.now() - begin).toBeLessThan(5_000);
    const accepted = history.filter(({ outcome }) => outcome === 'accepted');
    const unknown = history.filter(({ outcome }) => outcome === 'unknown');
    expect(accepted).toHaveLength(100);
    expect(unknown.length).toBeGreaterThanOrEqual(6);
    expect(accepted.length + unknown.length).toBe(sending.sent);
    expect(sending.notBegun).toBeGreaterThan(9_000);
    expect(total(sending)).toBe(10_000);
  });

  it.each(['reset', 'half an answer'])('records attempts with a %s as unknown', async (harm) => {
    const harmed = new Set<string>();
    const fake = await fakeService((n, answer, request) => {
      if (n % 5 !== 3) return answer();
      harmed.add(fake.seen[n]!);
      if (harm === 'half an answer') halfAnswer(request);
      else setTimeout(() => request.socket.resetAndDestroy(), 5);
    });
    const { history, sending } = await rush(fake.url, evenly(300, 1), { connections: 20 });
    expect(sending).toMatchObject({ sent: 300, dropped: 0, unconnected: 0 });
    expect([...fake.seen].sort()).toEqual(users(300).sort());
    const unknown = history.filter(({ outcome }) => outcome === 'unknown');
    expect(new Set(unknown.map(({ userId }) => userId))).toEqual(harmed);
    expect(unknown.every(({ completedUs, status }) => completedUs === null && status === null)).toBe(true);
    expect(history.filter(({ outcome }) => outcome === 'accepted')).toHaveLength(240);
  });

  it('counts unsent attempts separately when no server listens', async () => {
    const fake = await fakeService(() => {});
    await closeServers();
    const { history, sending, reasons } = await rush(fake.url, evenly(50, 1), {});
    expect(history).toEqual([]);
    expect(sending).toMatchObject({ scheduled: 50, sent: 0, dropped: 0, unconnected: 50, notBegun: 0 });
    expect(reasons).toContainEqual('100.0 % of the attempts found no connection, at most 1 % may');
  });

  it('is not valid when the generator cannot keep up', async () => {
    const fake = await fakeService((_n, answer) => answer());
    const block = (): void => {
      for (const until = performance.now() + 120; performance.now() < until; );
    };
    const { sending, reasons, history } = await rush(fake.url, evenly(1_000, 1), {
      onProgress: block,
    });
    expect(sending.ownLagMs.p99).toBeGreaterThan(50);
    expect(reasons).toContainEqual(
      expect.stringMatching(/was sent \d+ ms late or more, .*the generator was late/),
    );
    // The attempts are late, not lost, and their latency includes the delay.
    expect(history.filter(({ outcome }) => outcome === 'accepted')).toHaveLength(1_000);
    expect(Math.max(...history.map((record) => latencyMs(record, evenly(1_000, 1))))).toBeGreaterThan(80);
  });

  it('ends its schedule on an answer, and awaits outstanding answers', async () => {
    const fake = await fakeService((_n, answer) => setTimeout(answer, 50));
    let answers = 0;
    const onAnswer = (): boolean => ++answers >= 20;
    const { history, sending } = await rush(fake.url, evenly(1_000, 2), { onAnswer });
    expect(history.length).toBeLessThan(100);
    expect(history.every(({ outcome }) => outcome === 'accepted')).toBe(true);
    expect(sending.notBegun).toBe(1_000 - history.length);
  });
});

function latencyMs({ id, completedUs }: HistoryRecord, schedule: Float64Array): number {
  return (completedUs! - schedule[id]!) / 1_000;
}

describe('whether a schedule was kept', () => {
  const lag = { p50: 1, p99: 50, max: 400 };
  const kept: Sending = {
    scheduled: 1_000,
    sent: 980,
    dropped: 10,
    unconnected: 10,
    notBegun: 0,
    lagMs: lag,
    ownLagMs: lag,
    utilization: 0.95,
  };
  const load = { connections: 64, maxOutstanding: 128 };

  it.each<[string, Partial<Sending>, string[]]>([
    ['at the bounds', {}, []],
    ['busy', { utilization: 0.96 }, ['the generator was busy 96.0 % of the time, at most 95 % may be']],
    [
      'late by itself',
      { lagMs: { ...lag, p99: 70 }, ownLagMs: { ...lag, p99: 51 } },
      ['1 of 100 attempts was sent 70 ms late or more, at most 50 ms may be: the generator was late'],
    ],
    [
      'short of connections',
      { lagMs: { ...lag, p99: 70 } },
      ['1 of 100 attempts was sent 70 ms late or more, at most 50 ms may be: 64 connections were busy'],
    ],
    [
      'dropping',
      { dropped: 11 },
      ['1.1 % of the attempts were dropped, at most 1 % may be: 128 were outstanding'],
    ],
    ['refused', { unconnected: 500 }, ['50.0 % of the attempts found no connection, at most 1 % may']],
  ])('%s', (_name, change, expected) => {
    expect(whyInvalid({ ...kept, ...change }, load)).toEqual(expected);
  });
});
