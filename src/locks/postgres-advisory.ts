/**
 * An advisory lock of a Postgres transaction, on a dedicated connection for as long as the lock is held.
 *
 *   local turn ──▶ connect ──▶ try ──contended──▶ wait in Postgres ──▶ confirm ──▶ held: kit/renewing-lease.ts
 *                                │ granted              │ lock_timeout: contended
 *                                ▼                      └ aborted: pg_cancel_backend
 *                              held
 *
 * The lease is the connection. A heartbeat on it renews. The TTL is idle_in_transaction_session_timeout, which Postgres
 * counts from the end of the last heartbeat: the session of a paused, dead or unreachable holder ends after the holder's
 * own deadline. A wait is confirmed by one heartbeat, because its reply does not say when the lock was granted. The lock
 * has transaction scope, so a connection that returns to a pool (PgBouncer's included) cannot keep it.
 *
 * No fencing token. Rejected: pg_current_xact_id() and sequences may repeat after a crash of the server.
 */
import { randomUUID } from 'node:crypto';
import { type PostgresClient, RequestError } from './clients.ts';
import {
  AdvisorySession,
  closeSessionPool,
  openCancelPool,
  openSessionPool,
} from './kit/advisory-session.ts';
import { LocalQueue } from './kit/local-queue.ts';
import { MIN_TTL_MS, REPLY_MS } from './kit/postgres.ts';
import { RenewingLease } from './kit/renewing-lease.ts';
import { type Waiter, waitingLock } from './kit/waiting-lock.ts';
import { within } from './kit/within.ts';
import { type AcquireResult, LEASE_CAPABILITIES, type Lock, type LockDescription } from './lock.ts';
import type { CheckedOptions } from './options.ts';

export const description: LockDescription = {
  name: 'postgres-advisory',
  summary: 'An advisory lock of a Postgres transaction on its own connection; the session ends with the TTL.',
  flaw: 'A server that restarts or ends the session frees the lock at the same moment as it notifies the holder. No standby has the lock when it is promoted.',
  needs: 'DATABASE_URL',
  capabilities: [...LEASE_CAPABILITIES, 'waits-by-notification'],
};

/** Locks that one process holds or waits for in Postgres at once; further ones wait for a connection. */
const MAX_CONNECTIONS = 16;
/** Interval between looks for a free connection. */
const TURN_MS = 20;

/** Opens dedicated pools with the settings of the given one. */
export async function create({ postgres }: { readonly postgres: PostgresClient }): Promise<Lock> {
  const pool = openSessionPool(postgres.pool, MAX_CONNECTIONS);
  const cancelPool = openCancelPool(postgres.pool);

  async function acquire(
    resource: string,
    { ttlMs }: CheckedOptions,
    waiter: Waiter,
  ): Promise<AcquireResult> {
    let opened: AdvisorySession | null = null;
    // A turn at the pool would end after the pool's own time.
    while (pool.totalCount - pool.idleCount + pool.waitingCount >= MAX_CONNECTIONS) {
      const isWaiting = await waiter.pause(TURN_MS);
      if (!isWaiting) return { kind: 'unavailable', reason: 'too-many-leases' };
    }
    try {
      opened = await AdvisorySession.open(pool, resource, waiter.signal);
      if (opened === null) return waiter.notAcquired();
      const session = opened;
      let requestedAtMs = performance.now();
      let isGranted = await within(session.tryLock(ttlMs), undefined, waiter.signal);
      const leftMs = Math.ceil(waiter.untilMs - performance.now());
      if (isGranted === false && leftMs > 0) {
        isGranted = await within(session.wait(leftMs), undefined, waiter.signal);
        requestedAtMs = performance.now();
        if (isGranted) await session.heartbeat(REPLY_MS);
      }
      if (isGranted === null) session.cancel(cancelPool);
      if (isGranted === false) await session.end('ROLLBACK');
      if (!isGranted) return waiter.notAcquired();
      const backend = { renew: () => session.heartbeat(ttlMs), release: () => session.end('COMMIT') };
      const acquisition = { resource, token: randomUUID(), fencingToken: null, ttlMs, requestedAtMs };
      const lease = new RenewingLease(backend, acquisition);
      lease.onEnd = () => session.destroy(); // no effect after a release that Postgres confirmed
      session.onLost = () => lease.lose('the connection was lost');
      return { kind: 'held', lease };
    } catch (error) {
      opened?.destroy();
      throw error instanceof RequestError ? error : new RequestError(postgres.explain(error), error);
    }
  }

  return waitingLock({
    name: description.name,
    minTtlMs: MIN_TTL_MS,
    slowReason: 'postgres-slow',
    queue: new LocalQueue(),
    acquire,
    async close() {
      await closeSessionPool(pool); // resolves after the cancels, which need the other pool
      await closeSessionPool(cancelPool);
    },
  });
}
