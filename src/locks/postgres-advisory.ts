/**
 * A transaction's advisory lock in Postgres, on a connection of its own for as long as it is held.
 *
 *   local turn ──▶ connect ──▶ try ──held by another──▶ wait in Postgres ──▶ confirm ──▶ held: see renewing-lease.ts
 *                                │ got it: held             │ lock_timeout: contended
 *                                                           └ aborted: pg_cancel_backend
 *
 * The lease is the connection. A heartbeat on it renews; idle_in_transaction_session_timeout is the TTL, counted by
 * Postgres from the end of the last heartbeat, so that the session of a paused, dead or unreachable holder ends after
 * the holder's own deadline. A wait is confirmed by one heartbeat, because nobody can tell from its answer when the
 * lock was granted. Transaction scope, not session scope: a connection that goes back to a pool (also PgBouncer's)
 * cannot take a lock along.
 *
 * No fencing token. Rejected: pg_current_xact_id() and sequences may repeat after a crash of the server.
 */
import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import { localQueue } from '../concurrency/local-queue.ts';
import {
  AdvisorySession,
  ANSWER_MS,
  closeSessionPool,
  openSessionPool,
} from '../store/postgres/advisory-session.ts';
import { expectedPostgresFailure } from '../store/postgres/failures.ts';
import type { PostgresStore } from '../store/postgres/pool.ts';
import { inTime } from './kit/polling.ts';
import { RenewingLease } from './kit/renewing-lease.ts';
import { unlessAborted, type Waiter, waitingLock } from './kit/waiting-lock.ts';
import type { AcquireOptions, AcquireResult, Lock, LockDescription } from './lock.ts';

export const description: LockDescription = {
  name: 'postgres-advisory',
  summary:
    'An advisory lock of a Postgres transaction on a connection of its own; its session ends with the TTL.',
  flaw: 'A server that restarts or ends the session frees the lock in the same moment in which it tells its holder.',
  needs: 'DATABASE_URL',
  capabilities: {
    expires: true,
    checksOwner: true,
    settlesLostAnswers: true,
    renews: true,
    signalsLoss: true,
    reentrant: false,
    fair: false,
    fenced: false,
    waitsByEvent: true,
    survivesFailover: false,
  },
};

/** Locks that one process holds or waits for in Postgres at once; more wait for one of these connections. */
const CONNECTIONS = 16;

/** Makes the lock on a pool of its own, with the service's connection settings. */
export async function create({ postgres }: { readonly postgres: PostgresStore }): Promise<Lock> {
  return createPostgresAdvisoryLock(postgres.pool.options);
}

export function createPostgresAdvisoryLock(service: pg.PoolOptions): Lock {
  const pool = openSessionPool(service, CONNECTIONS);

  async function ask(resource: string, { ttlMs }: AcquireOptions, waiter: Waiter): Promise<AcquireResult> {
    let session: AdvisorySession | null = null;
    try {
      session = await AdvisorySession.open(pool, resource, waiter.signal);
      if (session === null) return waiter.ended();
      const kept = session;
      let askedMs = performance.now();
      let got = await unlessAborted(kept.tryLock(ttlMs), waiter.signal);
      const leftMs = Math.ceil(waiter.untilMs - performance.now());
      if (got === false && leftMs > 0) {
        got = await unlessAborted(kept.wait(leftMs), waiter.signal);
        askedMs = performance.now();
        if (got) await kept.beat(ANSWER_MS);
      }
      if (got === null) kept.cancel();
      if (got === false) await kept.end('ROLLBACK');
      if (!got) return waiter.ended();
      const server = { renew: () => kept.beat(ttlMs), release: () => kept.end('COMMIT') };
      const claim = { resource, token: randomUUID(), fencingToken: null, ttlMs, askedMs };
      const lease = new RenewingLease(server, claim);
      lease.onEnd = () => kept.destroy(); // which does nothing after a release that was answered
      kept.onLost = () => lease.lose('the connection is over');
      return await inTime(lease, waiter, 'postgres-slow');
    } catch (error) {
      session?.destroy();
      if (waiter.signal.aborted) return waiter.ended();
      const failure = expectedPostgresFailure(error);
      return { kind: 'unavailable', reason: 'reason' in failure ? failure.reason : failure.code };
    }
  }

  return waitingLock({
    name: description.name,
    queue: localQueue(),
    ask,
    close: () => closeSessionPool(pool),
  });
}
