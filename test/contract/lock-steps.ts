/** Steps shared by the tests of the lock contract. */
import type { AcquireOptions, AcquireResult, Lease, Lock } from '../../src/locks/lock.ts';
import { eventually } from '../support/client.ts';
import type { LockFixture, LockProcess } from '../support/lock-groups.ts';

/** What the tests of one lock share. */
export interface Harness {
  readonly fixture: LockFixture;
  /** A process that is closed after the test. */
  process(): Promise<LockProcess>;
  /** A resource for this test alone. */
  resource(): string;
}

/** A single attempt. */
export const once: AcquireOptions = { ttlMs: 5_000, waitMs: 0 };

/**
 * Acquires a lock that must be free, or become free within `waitMs`. A server that is late on a busy machine is asked again, with the
 * patience to outlast what the late request may still hold until it is compensated. @throws if it is not granted
 */
export async function hold(
  { lock }: { readonly lock: Lock },
  resource: string,
  more: Partial<AcquireOptions> = {},
): Promise<Lease> {
  const { waitMs } = { ...once, ...more };
  let patienceMs = waitMs;
  const result = await eventually(
    () => lock.acquire(resource, { ...once, ...more, waitMs: patienceMs }),
    ({ kind }) => {
      patienceMs = Math.max(waitMs, 4_000); // less than the TTL: a lease that is never released is still seen
      return kind !== 'unavailable';
    },
  );
  if (result.kind !== 'held') throw new Error(`${resource} was not acquired: ${JSON.stringify(result)}`);
  return result.lease;
}

export async function kindOf(
  { lock }: { readonly lock: Lock },
  resource: string,
  more: Partial<AcquireOptions> = {},
): Promise<AcquireResult['kind']> {
  return (await lock.acquire(resource, { ...once, ...more })).kind;
}

/** The value and how long it took. */
export async function timed<T>(work: () => Promise<T>): Promise<{ value: T; tookMs: number }> {
  const startMs = performance.now();
  const value = await work();
  return { value, tookMs: performance.now() - startMs };
}

/** When a lease's signal fired, on `performance.now()`'s clock; infinite until then. */
export function watchLoss({ signal }: Lease): { readonly lostMs: number } {
  const watch = { lostMs: Number.POSITIVE_INFINITY };
  signal.addEventListener('abort', () => {
    watch.lostMs = performance.now();
  });
  return watch;
}
