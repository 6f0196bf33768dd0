/**
 * The interface of every lock: mutual exclusion over a named resource, granted as a lease that expires.
 *
 *   acquire ──▶ contended | unavailable | aborted            (nothing is held)
 *      │
 *      └──▶ held ──release──▶ released
 *             │
 *             └──renewal failed, or the deadline is near──▶ lost: `signal` has fired
 *
 * `signal` fires before the lease can expire at the server. The holder's own monotonic clock decides, so the signal does
 * not depend on the network. A holder stops writing when its signal fires. A store that checks fencing tokens rejects
 * writes that arrive later.
 */
import { type AcquireOptions, type CheckedOptions, type OptionsAndWork, optionsAndWork } from './options.ts';

/** The result of an attempt to acquire a lock. */
export type AcquireResult =
  | { readonly kind: 'held'; readonly lease: Lease }
  /** Another contender held the lock for the whole wait. */
  | { readonly kind: 'contended' }
  /** The lock's server did not reply, or rejected the request. Nothing is held, or only until the TTL expires. */
  | { readonly kind: 'unavailable'; readonly reason: string }
  /** The caller's signal fired during the wait. What a request already on its way acquires is released in the background. */
  | { readonly kind: 'aborted' };

/**
 * How a lease ended. `released`: the server still had it. `lost`: it had ended before, and its signal has fired. `unknown`: the server did
 * not answer; the lock is freed in the background, or expires with its TTL.
 */
export type ReleaseResult = 'released' | 'lost' | 'unknown';

/** One holder's time-limited hold of a lock. */
export interface Lease extends AsyncDisposable {
  readonly resource: string;
  /** Unique to this acquisition. */
  readonly token: string;
  /** Grows with every lease of the resource; null for a lock without fencing tokens. */
  readonly fencingToken: number | null;
  /**
   * Fires before the lease can expire; its reason is a `LeaseLostError`. Every read compares the clock with the deadline,
   * so a process that resumes after a pause never sees an expired lease as held.
   */
  readonly signal: AbortSignal;
  /** Until then the server admits no other holder, on `performance.now()`'s clock, unless it loses the lease or ends it early. Each renewal moves it. */
  readonly deadlineMs: number;
  /**
   * Frees the lock. Never throws, and resolves within a few seconds, however silent the server is. A further call has no effect and the
   * same result.
   */
  release(): Promise<ReleaseResult>;
}

export interface Lock {
  readonly name: string;
  /**
   * The options of an acquisition with the defaults of this lock. The shortest `ttlMs` differs by lock: with less, the reply of a healthy
   * server may come after the lease.
   * @throws LockOptionsError
   */
  check(resource: string, options?: AcquireOptions): CheckedOptions;
  /**
   * Returns failures of servers and contention as values; never throws for them. A `waitMs` above 0 bounds the call, however silent the
   * server is.
   * @throws LockOptionsError for a mistake in the arguments; nothing was sent
   */
  acquire(resource: string, options?: AcquireOptions): Promise<AcquireResult>;
  /** Ends timers, waiters and the leases that renew. Other leases expire. */
  close(): Promise<void>;
}

/** Together they make a lease safe under crashes, lost replies and long work; a failover may still admit a second holder. */
export const LEASE_CAPABILITIES = [
  /** A dead holder's lock becomes free without intervention. */
  'expires-after-holder-death',
  /** A release has an effect only if its own acquisition holds the lock. */
  'release-checks-ownership',
  /** An acquire whose reply was lost is retried or compensated, and blocks no one. */
  'ambiguous-acquire-resolved',
  /** Work longer than the TTL keeps the lock. */
  'held-while-working',
  /** The lease's signal fires before another contender can hold the lock. */
  'loss-signalled-before-expiry',
] as const;

/**
 * What a lock can do, as data for the documentation, `GET /strategies` and the contract suite. The suite asserts both
 * ways: a listed capability holds, and an unlisted one is missing.
 */
export const LOCK_CAPABILITIES = [
  ...LEASE_CAPABILITIES,
  /** Every lease has a fencing token that grows. */
  'fencing-tokens',
  /** The same owner may acquire the lock again. */
  'reentrant',
  /** Waiters do not poll, apart from a slow safety poll. */
  'waits-by-notification',
  /** First come, first served. */
  'fair',
  /** The loss of one server, or a failover to a replica, admits no second holder. */
  'survives-failover',
] as const;
export type LockCapability = (typeof LOCK_CAPABILITIES)[number];

/** The variable that configures a lock's server. */
export type LockServer = 'REDIS_URL' | 'REDLOCK_URLS' | 'ZOOKEEPER_URL' | 'DATABASE_URL';

export interface LockDescription {
  readonly name: string;
  /** One sentence. */
  readonly summary: string;
  /** Known flaws, one sentence each; null for none beyond the missing capabilities. */
  readonly flaw: string | null;
  readonly needs: LockServer;
  readonly capabilities: readonly LockCapability[];
}

/** The reason of a lease's signal. */
export class LeaseLostError extends Error {
  override readonly name = 'LeaseLostError';
  readonly code = 'ERR_STAMPEDE_LEASE_LOST';
}

/** A lock cannot be created: its configuration is wrong, or too few of its servers are reachable. */
export class LockSetupError extends Error {
  override readonly name = 'LockSetupError';
  readonly code = 'ERR_STAMPEDE_LOCK_SETUP';
}

/** What `usingOrThrow` throws when the lock was not acquired: `result` says why. */
export class NotAcquiredError extends Error {
  override readonly name = 'NotAcquiredError';
  readonly code = 'ERR_STAMPEDE_LOCK_NOT_ACQUIRED';
  readonly result: NotAcquired;

  constructor(resource: string, result: NotAcquired) {
    super(`${resource} was not acquired: ${'reason' in result ? result.reason : result.kind}`);
    this.result = result;
  }
}

export type NotAcquired = Exclude<AcquireResult, { kind: 'held' }>;

export interface Done<T> {
  readonly kind: 'done';
  readonly value: T;
  readonly ended: ReleaseResult;
}

/**
 * Runs `work` under a lease and releases it afterwards. An error of `work` is rethrown unchanged.
 * @param given options, which may be left out, and the work
 * @returns in `ended` whether the server still had the lease at the end
 * @throws LockOptionsError
 */
export async function using<T>(
  lock: Lock,
  resource: string,
  ...given: OptionsAndWork<(lease: Lease) => Promise<T>>
): Promise<Done<T> | NotAcquired> {
  const [options, work] = optionsAndWork(given);
  const result = await lock.acquire(resource, options);
  return result.kind === 'held' ? whileHeld(result.lease, work) : result;
}

/** `using` that throws what was not acquired. @throws NotAcquiredError, LockOptionsError, and what `work` throws */
export async function usingOrThrow<T>(
  lock: Lock,
  resource: string,
  ...given: OptionsAndWork<(lease: Lease) => Promise<T>>
): Promise<Done<T>> {
  const result = await using(lock, resource, ...given);
  if (result.kind !== 'done') throw new NotAcquiredError(resource, result);
  return result;
}

/** Runs `work`, and releases the lease afterwards, also when `work` throws. */
export async function whileHeld<T, L extends Pick<Lease, 'release'>>(
  lease: L,
  work: (lease: L) => Promise<T>,
): Promise<Done<T>> {
  let value: T;
  try {
    value = await work(lease);
  } catch (error) {
    await lease.release();
    throw error;
  }
  return { kind: 'done', value, ended: await lease.release() };
}
