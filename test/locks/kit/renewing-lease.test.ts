/** The clock of a lease that renews itself, to the millisecond: the server is scripted, and time is the test's. */
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { type LeaseBackend, RenewingLease } from '../../../src/locks/kit/renewing-lease.ts';
import { LeaseLostError } from '../../../src/locks/lock.ts';

const TTL_MS = 1_000;
/** The deadline of a lease that was requested at 0: 1 % and 2 ms before the server's. */
const DEADLINE_MS = 988;
const LONGEST_HOLD_MS = 600_000;
const now = () => performance.now();

beforeEach(() => {
  vi.useFakeTimers({ now: 0 });
  vi.spyOn(Math, 'random').mockReturnValue(1); // no jitter: a renewal each third of the TTL
});
afterEach(() => {
  vi.restoreAllMocks();
  vi.useRealTimers();
});

type Reply = boolean | 'failure' | 'silence';

/** @param replies to the renewals, each after `delayMs`; the last one repeats */
function leaseWith(replies: readonly Reply[], delayMs = 0, releases: Reply = true) {
  const startMs = now();
  const askedMs: number[] = [];
  const answer = async (reply: Reply): Promise<boolean> => {
    if (reply === 'silence') return new Promise(() => {});
    await new Promise((resolve) => setTimeout(resolve, delayMs));
    if (reply === 'failure') throw new Error('no connection');
    return reply;
  };
  let released = 0;
  const backend: LeaseBackend = {
    renew() {
      askedMs.push(Math.round(now() - startMs));
      return answer(replies[Math.min(askedMs.length, replies.length) - 1]!);
    },
    release() {
      released++;
      return answer(releases);
    },
  };
  const given = { resource: 'r', token: 't', fencingToken: 1, ttlMs: TTL_MS, requestedAtMs: startMs };
  const lease = new RenewingLease(backend, given);
  const events: number[] = [];
  const watch = () => lease.signal.addEventListener('abort', () => events.push(Math.round(now() - startMs)));
  watch();
  let ends = 0;
  lease.onEnd = () => ends++;
  return { lease, askedMs, lostMs: events, startMs, released: () => released, ends: () => ends };
}
const pass = (ms: number) => vi.advanceTimersByTimeAsync(ms);

it('is renewed each third of its TTL, from when each request was sent, until it is released', async () => {
  const { lease, askedMs, lostMs, startMs, released, ends } = leaseWith([true], 100);
  expect(lease.deadlineMs - startMs).toBe(DEADLINE_MS);
  await pass(420);
  expect(lease.deadlineMs - startMs).toBe(DEADLINE_MS);
  await pass(20);
  expect(lease.deadlineMs - startMs).toBeCloseTo(333 + DEADLINE_MS, -1);
  await pass(10_000);
  expect(askedMs.slice(0, 3).map((ms) => Math.round(ms / 10))).toEqual([33, 67, 100]);
  const result = lease.release();
  expect(lease.release()).toBe(result);
  await pass(100);
  expect(await result).toBe('released');
  const renewals = askedMs.length;
  await pass(10_000);
  expect([askedMs.length, released(), ends(), lostMs]).toEqual([renewals, 1, 1, []]);
});

it.each<[string, readonly Reply[], number]>([
  ['fails', ['failure'], 0],
  ['has no reply', ['silence'], 0],
  ['has its reply after the lease', [true], 2_000],
])('signals the loss at its deadline when each renewal %s', async (_, replies, delayMs) => {
  const { lease, askedMs, lostMs, released, ends } = leaseWith(replies, delayMs);
  await pass(DEADLINE_MS - 1);
  expect(lostMs).toEqual([]);
  await pass(2);
  expect(lostMs).toEqual([DEADLINE_MS]);
  expect(askedMs.length).toBeGreaterThan(1); // it asked again before
  await pass(5_000);
  expect(lease.signal.reason).toBeInstanceOf(LeaseLostError);
  expect(lease.deadlineMs).toBeLessThan(now());
  expect(await lease.release()).toBe('lost');
  expect([released(), ends()]).toEqual([1, 1]); // the server may have it still
});

it.each<[string, readonly Reply[], number]>([
  ['fail', ['failure', 'failure', 'failure', true], 0],
  ['stay without reply', ['silence', true], 0],
  ['are answered late', [true], 600],
])('is kept while some renewals %s', async (_, replies, delayMs) => {
  const { lease, lostMs } = leaseWith(replies, delayMs);
  await pass(5_000);
  expect(lostMs).toEqual([]);
  expect(lease.deadlineMs).toBeGreaterThan(now());
});

it('is lost at once when the server has it no more', async () => {
  const { lease, lostMs } = leaseWith([true, false]);
  await pass(670);
  expect(lostMs.map((ms) => Math.round(ms / 10))).toEqual([67]);
  expect(lease.deadlineMs).toBeLessThanOrEqual(now());
});

it('reads as lost after a pause of the process, before any timer', () => {
  const { lease, startMs } = leaseWith([true]);
  const clock = vi.spyOn(performance, 'now').mockReturnValue(startMs + DEADLINE_MS - 1);
  expect(lease.signal.aborted).toBe(false);
  clock.mockReturnValue(startMs + DEADLINE_MS);
  expect(lease.signal.aborted).toBe(true);
});

it('ends with a hung holder', async () => {
  const { lostMs } = leaseWith([true]);
  await pass(LONGEST_HOLD_MS + TTL_MS);
  expect(lostMs).toHaveLength(1);
  expect(lostMs[0]).toBeGreaterThan(LONGEST_HOLD_MS - 2 * TTL_MS);
  expect(lostMs[0]).toBeLessThanOrEqual(LONGEST_HOLD_MS);
});

it.each([
  [false, 'lost', true],
  ['failure', 'unknown', false],
  ['silence', 'unknown', false],
] as const)('a release answered with %s is %s', async (reply, expected, isLost) => {
  const { lease, ends } = leaseWith([true], 0, reply);
  const result = lease.release();
  await pass(3_001);
  expect(await result).toBe(expected);
  vi.spyOn(performance, 'now').mockReturnValue(0); // the deadline has passed meanwhile
  expect([lease.signal.aborted, ends()]).toEqual([isLost, 1]);
});
