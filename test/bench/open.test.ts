import { describe, expect, it } from 'vitest';
import { poisson } from '../../bench/load/attempts.ts';
import { type OpenLoad, runOpenLoop } from '../../bench/load/open.ts';
import { percentiles, type Sending, whyInvalid } from '../../bench/load/sending.ts';
import type { HistoryRecord } from '../../lab/history.ts';
import { freePort } from '../../src/local/server-process.ts';
import { fakeShop, halfAnswer, users } from './fake-service.ts';

/** `attempts` starts, `everyMs` apart. */
const evenly = (attempts: number, everyMs: number): Float64Array =>
  Float64Array.from({ length: attempts }, (_, n) => n * everyMs * 1_000);
/** `head` starts at once, and `tail` in an hour. */
const headAndTail = (head: number, tail: number): Float64Array =>
  Float64Array.from({ length: head + tail }, (_, n) => (n < head ? 0 : 3.6e9));

function rush(url: string, schedule: Float64Array, load: Partial<OpenLoad> = {}) {
  const bounds = { connections: 200, maxOutstanding: 1_000, requestTimeoutMs: 10_000 };
  return runOpenLoop({ url, saleId: 5, users: users(schedule.length), schedule, ...bounds, ...load });
}

const accepted = (history: readonly HistoryRecord[]) =>
  history.filter(({ outcome }) => outcome === 'accepted').length;

describe('open loop', () => {
  it('sends every attempt once, at its intended start or a little later', async () => {
    const fake = await fakeShop((_n, answer) => answer());
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
    const stalling = await fakeShop((_n, answer) => {
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
    const silent = await fakeShop(() => {});
    const schedule = evenly(100, 0.01);
    const load = { connections: 10, maxOutstanding: 20, requestTimeoutMs: 1_000 };
    const { history, sending, reasons } = await rush(silent.url, schedule, load);
    expect(silent.seen).toEqual(users(10));
    expect(history.map(({ userId }) => userId)).toEqual(users(10));
    const nothing = { outcome: 'unknown', result: 'info', completedUs: null };
    for (const record of history) expect(record).toMatchObject(nothing);
    expect(sending).toMatchObject({ scheduled: 100, sent: 10, dropped: 90, unconnected: 0, notBegun: 0 });
    expect(reasons).toContainEqual(expect.stringContaining('90.0 % of the attempts were dropped'));
  });

  it('keeps its results when it is stopped', async () => {
    const end = new AbortController();
    const fake = await fakeShop((n, answer) => n < 100 && answer());
    const load = {
      signal: end.signal,
      onProgress: (answers: number) => void (answers === 100 && fake.seen.length === 200 && end.abort()),
    };
    const { history, sending } = await rush(fake.url, headAndTail(200, 9_800), load);
    expect(accepted(history)).toBe(100);
    expect(history.filter(({ outcome }) => outcome === 'unknown')).toHaveLength(100);
    expect(sending).toMatchObject({ sent: 200, dropped: 0, unconnected: 0, notBegun: 9_800 });
  });

  it.each(['reset', 'half an answer'])('records attempts with a %s as unknown', async (harm) => {
    const harmed = new Set<string>();
    const fake = await fakeShop((n, answer, _response, request) => {
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
    expect(accepted(history)).toBe(240);
  });

  it('counts unsent attempts separately when no server listens', async () => {
    const nothing = `http://127.0.0.1:${await freePort()}`;
    const { history, sending, reasons } = await rush(nothing, evenly(50, 1), {});
    expect(history).toEqual([]);
    expect(sending).toMatchObject({ scheduled: 50, sent: 0, dropped: 0, unconnected: 50, notBegun: 0 });
    expect(reasons).toContainEqual('100.0 % of the attempts found no connection, at most 1 % may');
  });

  it('is not valid when the generator cannot keep up', async () => {
    const fake = await fakeShop((_n, answer) => answer());
    const block = (): void => {
      for (const until = performance.now() + 120; performance.now() < until; );
    };
    const schedule = evenly(1_000, 1);
    const { sending, reasons, history } = await rush(fake.url, schedule, { onProgress: block });
    expect(sending.ownLagMs.p99).toBeGreaterThan(50);
    expect(reasons.join()).toMatch(/was sent \d+ ms late or more, .*the generator was late/);
    // The attempts are late, not lost, and their latency includes the delay.
    expect(accepted(history)).toBe(1_000);
    const openMs = history.map(({ id, completedUs }) => (completedUs! - schedule[id]!) / 1_000);
    expect(Math.max(...openMs)).toBeGreaterThan(80);
  });

  it('ends its schedule on an answer, and awaits outstanding answers', async () => {
    const fake = await fakeShop((n, answer) => setTimeout(answer, n < 20 ? 0 : 100));
    let answers = 0;
    const onAnswer = () => ++answers >= 20;
    const { history, sending } = await rush(fake.url, headAndTail(45, 955), { onAnswer });
    expect(accepted(history)).toBe(45);
    expect(sending).toMatchObject({ sent: 45, notBegun: 955 });
  });
});

describe('a schedule counts as kept', () => {
  const lag = { p50: 1, p99: 50, max: 400 };
  const late = { ...lag, p99: 70 };
  const counts = { scheduled: 1_000, sent: 980, dropped: 10, unconnected: 10, notBegun: 0 };
  const kept: Sending = { ...counts, lagMs: lag, ownLagMs: lag, utilization: 0.95 };

  it.each<[string, Partial<Sending>, RegExp]>([
    ['at the bounds', {}, /^$/],
    ['unless busy', { utilization: 0.96 }, /^the generator was busy 96\.0 % of the time/],
    [
      'unless late',
      { lagMs: late, ownLagMs: { ...lag, p99: 51 } },
      /^.* 70 ms late .*: the generator was late$/,
    ],
    ['unless short of connections', { lagMs: late }, /^.* 70 ms late .*: 64 connections were busy$/],
    ['unless dropping', { dropped: 11 }, /^1\.1 % of the attempts were dropped, .*: 128 were outstanding$/],
  ])('%s', (_name, change, reasons) => {
    const load = { connections: 64, maxOutstanding: 128 };
    expect(whyInvalid({ ...kept, ...change }, load).join('\n')).toMatch(reasons);
  });
});
