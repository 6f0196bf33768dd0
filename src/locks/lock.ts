/**
 * The interface of every lock: mutual exclusion over a named resource, by a lease that ends by itself.
 *
 *   acquire ──▶ contended | unavailable | aborted            (nothing is held)
 *      │
 *      └──▶ held ──release──▶ given back
 *             │
 *             └──renewal failed, or the deadline came near──▶ lost: `signal` has fired
 *
 * `signal` fires *before* the lease can have expired at the server: the holder's own monotonic clock tells, also
 * when the server cannot be reached. Whoever holds a lease stops writing when its signal fires; a store that checks
 * fencing tokens refuses what comes too late all the same.
 */

/** How the attempt to get a lease ended. */
export type AcquireResult =
  | { readonly kind: 'held'; readonly lease: Lease }
  /** Somebody else held it for as long as we were willing to wait. */
  | { readonly kind: 'contended' }
  /** The lock's server did not answer, or refused; nothing is held, or only until the TTL is over. */
  | { readonly kind: 'unavailable'; readonly reason: string }
  /** The caller's signal fired while waiting. */
  | { readonly kind: 'aborted' };

export interface AcquireOptions {
  /** Length of the lease in milliseconds; a lock that renews keeps it for longer. */
  readonly ttlMs: number;
  /** How long to wait for a lock that is held, in milliseconds; 0 asks once. */
  readonly waitMs: number;
  readonly signal?: AbortSignal;
  /** Who asks. A reentrant lock lets the same owner in again; without an owner every claim is a stranger. */
  readonly owner?: string;
  /** For a read-write lock: readers share. Default: `write`. */
  readonly mode?: 'read' | 'write';
}

/** One holder's time-limited claim. */
export interface Lease extends AsyncDisposable {
  readonly resource: string;
  /** Unique to this claim. */
  readonly token: string;
  /** Grows with every lease of the resource; null for a lock that has none. */
  readonly fencingToken: number | null;
  /**
   * Fires before the lease can have expired; its reason is a `LeaseLostError`. Reading it compares the clock with the
   * deadline, so that a process that was stopped and goes on does not see a lease that is over as held.
   */
  readonly signal: AbortSignal;
  /** Until when the lease is surely held, on `performance.now()`'s clock; moves with each renewal. */
  readonly deadlineMs: number;
  /** Gives the lock back. Never throws. @returns whether it was still held. */
  release(): Promise<boolean>;
}

export interface Lock {
  readonly name: string;
  /** Never throws for what a server or a rival does: see AcquireResult. */
  acquire(resource: string, options: AcquireOptions): Promise<AcquireResult>;
  /** Ends timers and waiters; leases still held run out. */
  close(): Promise<void>;
}

/**
 * What a lock can do, as data: the documentation, `GET /strategies` and the contract suite read it, and what is not
 * claimed here the suite asserts to be missing.
 */
export interface LockCapabilities {
  /** A dead holder's lock ends by itself. */
  readonly expires: boolean;
  /** A release gives back only what its own claim holds. */
  readonly checksOwner: boolean;
  /** A request whose answer was lost is settled, and locks nobody out. */
  readonly settlesLostAnswers: boolean;
  /** Work that takes longer than the TTL keeps the lock. */
  readonly renews: boolean;
  /** The lease's signal fires before another can hold the lock. */
  readonly signalsLoss: boolean;
  /** The same owner may acquire again what it holds. */
  readonly reentrant: boolean;
  /** First come, first served. */
  readonly fair: boolean;
  /** Every lease has a fencing token that grows. */
  readonly fenced: boolean;
  /** Waiting does not poll (but for a safety poll). */
  readonly waitsByEvent: boolean;
  /** Losing one server, or failing over to a replica, lets no second holder in. */
  readonly survivesFailover: boolean;
}

/** A variable that names the server of a lock. */
export type LockServer = 'REDIS_URL' | 'REDLOCK_URLS' | 'ZOOKEEPER_URL' | 'DATABASE_URL';

export interface LockDescription {
  readonly name: string;
  /** One sentence. */
  readonly summary: string;
  /** What it is known to fail in, in one sentence for each flaw; null for none that its capabilities do not tell. */
  readonly flaw: string | null;
  readonly needs: LockServer;
  readonly capabilities: LockCapabilities;
}

/** The reason of a lease's signal. */
export class LeaseLostError extends Error {
  override readonly name = 'LeaseLostError';
  readonly code = 'LEASE_LOST';
}

/**
 * Runs `work` under a lease and gives the lock back afterwards, whatever happens. What `work` throws is thrown on
 * unchanged; a release that fails never hides it.
 */
export async function using<T>(
  lock: Lock,
  resource: string,
  options: AcquireOptions,
  work: (lease: Lease) => Promise<T>,
): Promise<{ readonly kind: 'done'; readonly value: T } | Exclude<AcquireResult, { kind: 'held' }>> {
  const result = await lock.acquire(resource, options);
  if (result.kind !== 'held') return result;
  try {
    return { kind: 'done', value: await work(result.lease) };
  } finally {
    await result.lease.release();
  }
}
