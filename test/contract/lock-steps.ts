/** Steps that the tests of the lock contract are made of. */
import type { AcquireOptions, AcquireResult, Lease, Lock } from '../../src/locks/lock.ts';
import type { LockFixture, LockProcess } from '../support/lock-process.ts';

/** What the tests of one lock have in common. */
export interface Bench {
  readonly fixture: LockFixture;
  /** A process that is closed after the test. */
  process(): Promise<LockProcess>;
  /** A resource of the test's own. */
  resource(): string;
}

export const soon: AcquireOptions = { ttlMs: 5_000, waitMs: 0 };

/** Acquires what must be free. @throws when it is not */
export async function hold(
  { lock }: { readonly lock: Lock },
  resource: string,
  more: Partial<AcquireOptions> = {},
): Promise<Lease> {
  const result = await lock.acquire(resource, { ...soon, ...more });
  if (result.kind !== 'held') throw new Error(`${resource} was not held: ${JSON.stringify(result)}`);
  return result.lease;
}

export async function kindOf(
  { lock }: { readonly lock: Lock },
  resource: string,
  more: Partial<AcquireOptions> = {},
): Promise<AcquireResult['kind']> {
  return (await lock.acquire(resource, { ...soon, ...more })).kind;
}

/** With the time that it took. */
export async function timed<T>(work: Promise<T>): Promise<{ value: T; tookMs: number }> {
  const startMs = performance.now();
  const value = await work;
  return { value, tookMs: performance.now() - startMs };
}
