/** Steps shared by the tests of the locks. */
import { expect, vi } from 'vitest';
import { eventually } from '../../lab/kit/eventually.ts';
import {
  type AcquireResult,
  type Lease,
  LeaseLostError,
  type Lock,
  type ReleaseResult,
} from '../../src/locks/lock.ts';
import { type AcquireOptions, type CheckedOptions, MAX_MS } from '../../src/locks/options.ts';
import type { LockFixture, LockProcess } from '../support/lock-groups.ts';

/** The longest wait for a lock that becomes free. */
export const PATIENCE_MS = 60_000;
/** An answer that took as long may be late: the shortest bound of a server is 200 ms. */
const LATE_MS = 150;
/** The control timer's delay after a deadline. Another claim cannot be granted before twice that. */
const CONTROL_MS = 5;

/** What the tests of one lock share. They run at once. */
export interface Harness {
  readonly fixture: LockFixture;
  test(title: string, body: (scope: Scope) => Promise<void>): void;
}

/** What one test uses. */
export interface Scope {
  /** Two processes. */
  readonly a: Contender;
  readonly b: Contender;
  /** A resource. */
  readonly r: string;
  /** One more process, which is closed after the test. */
  process(): Promise<Contender>;
  /** One more resource for this test alone. */
  resource(): string;
}

export interface Contender extends LockProcess {
  /** Called after an acquire whose server was late, which may have taken the resource. */
  onLate?(resource: string): Promise<void>;
}

/** A single attempt. Its lease outlasts the test. */
export const once: CheckedOptions = { ttlMs: 5 * PATIENCE_MS, waitMs: 0 };

/** Resources of which a server was late. What a late request holds is freed a little later. */
const late = new Set<string>();

/**
 * Asks again while a server is late, as it may be on a busy machine.
 * @param reason of an `unavailable` that is the answer
 */
export const untilAvailable = <T extends { readonly kind: string; readonly reason?: string }>(
  ask: () => Promise<T>,
  reason?: string,
): Promise<T> =>
  eventually(ask, (answer) => answer.kind !== 'unavailable' || answer.reason === reason, 150_000);

/**
 * Acquires a lock that must be free, or become free within `waitMs`. A server that is late is asked again, with the patience to outlast
 * what a late request may still hold: less than the TTL, so that a lease that is never released is still seen.
 * @throws if it is not granted
 */
export async function hold(
  { lock, onLate }: Pick<Contender, 'lock' | 'onLate'>,
  resource: string,
  more: Partial<AcquireOptions> = {},
): Promise<Lease> {
  const options = { ...once, ...more };
  const result = await untilAvailable(async () => {
    // Of the servers of redlock, late ones make a free lock look held.
    const isPatient = late.has(resource) || lock.name === 'redlock';
    const waitMs = isPatient ? Math.max(options.waitMs, PATIENCE_MS) : options.waitMs;
    const answer = await lock.acquire(resource, { ...options, waitMs });
    if (answer.kind === 'unavailable') {
      late.add(resource);
      await onLate?.(resource);
    }
    return answer;
  });
  if (result.kind !== 'held') throw new Error(`${resource} was not acquired: ${JSON.stringify(result)}`);
  return result.lease;
}

/** What an acquire comes to. A server that is late is asked again, for what is left of the wait. */
export async function kindOf(
  { lock }: { readonly lock: Lock },
  resource: string,
  more: Partial<AcquireOptions> = {},
): Promise<AcquireResult['kind']> {
  const options = { ...once, ...more };
  let { waitMs } = options;
  const untilMs = performance.now() + waitMs;
  const result = await untilAvailable(() => {
    const asking = lock.acquire(resource, { ...options, waitMs });
    return asking.finally(() => {
      waitMs = Math.max(0, untilMs - performance.now());
    });
  });
  return result.kind;
}

/** The value and how long it took. */
export async function timed<T>(work: () => Promise<T>): Promise<{ value: T; tookMs: number }> {
  const startMs = performance.now();
  const value = await work();
  return { value, tookMs: performance.now() - startMs };
}

/** What is expected of a release that took `tookMs`: a late server leaves its outcome unknown. */
export const unlessLate = <T>(tookMs: number, ended: T, unknown: T): T =>
  tookMs < LATE_MS ? ended : expect.toBeOneOf([ended, unknown]);

/** Releases a lease, and checks how it ended. @returns how, or `unknown` if the server was late */
export async function ends(lease: Lease, expected: ReleaseResult): Promise<ReleaseResult> {
  const { value, tookMs } = await timed(() => lease.release());
  expect(value).toEqual(unlessLate(tookMs, expected, 'unknown'));
  if (value === 'unknown') late.add(lease.resource);
  return value;
}

/** `expect.poll` for tests that run at once. */
export const soon = (check: () => unknown): Promise<unknown> =>
  vi.waitFor(check, { timeout: 90_000, interval: 20 });

/** Waits for the next renewal of a lease. */
export async function renewed(lease: Lease): Promise<void> {
  const { deadlineMs } = lease;
  await expect.poll(() => lease.deadlineMs).toBeGreaterThan(deadlineMs);
  expect(lease.signal.aborted).toBe(false);
}

/** Acquires a free lock. @throws when another claim holds it */
export const held = (lock: Lock, resource: string, more: Partial<AcquireOptions> = {}): Promise<Lease> =>
  hold({ lock }, resource, more);

export interface Loss {
  /** When a lease's signal fired, on `performance.now()`'s clock; infinite until then. */
  readonly lostMs: number;
  /** Whether a second timer has fired, which is due just after the lease's deadline. */
  readonly isPastDeadline: boolean;
}

export function watchLoss(lease: Lease): Loss {
  const { signal } = lease;
  const watch = {
    lostMs: signal.aborted ? performance.now() : Number.POSITIVE_INFINITY,
    isPastDeadline: false,
  };
  signal.addEventListener('abort', () => {
    watch.lostMs = performance.now();
  });
  const look = () => {
    const leftMs = lease.deadlineMs + CONTROL_MS - performance.now();
    watch.isPastDeadline = leftMs <= 0;
    if (leftMs > 0 && leftMs < MAX_MS) setTimeout(look, Math.ceil(leftMs)).unref();
  };
  look();
  return watch;
}

/**
 * Called as soon as another claim is granted: the holder must have been signalled before. Where this process pauses it may handle the grant
 * before its timers, and then the second timer has not fired either; even then the deadline is over.
 */
export function expectLossBefore(lease: Lease, { lostMs, isPastDeadline }: Loss): void {
  const nextMs = performance.now();
  if (isPastDeadline) expect(lostMs).toBeLessThan(nextMs);
  expect(lease.deadlineMs).toBeLessThan(nextMs);
  expect(lease.signal.reason).toBeInstanceOf(LeaseLostError);
}
