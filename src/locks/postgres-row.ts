/**
 * A lock as a row in Postgres: owner, expiry and fencing token.
 *
 *   local turn ──▶ attempt ──contended──▶ pause ──▶ attempt …        waitMs elapsed: contended
 *                    │ └──no reply, or aborted──▶ a compensation releases by token until Postgres replies or the TTL expires
 *                    ▼
 *                  held: kit/renewing-lease.ts
 *
 * The database's clock decides on expiry at the moment the row is locked: `clock_timestamp()`, because `now()` is the start
 * of the transaction. A released row stays, because its fence must keep growing: one small row for each resource ever
 * locked. Rejected: a sequence for the fence and deleted rows, because two concurrent inserts may commit in another order
 * than they drew their numbers.
 */
import { randomUUID } from 'node:crypto';
import type { PostgresClient } from './clients.ts';
import { Compensations } from './kit/compensations.ts';
import { localQueue } from './kit/local-queue.ts';
import { acceptLease, poll, type Retry } from './kit/poll.ts';
import { MIN_TTL_MS, REPLY_MS } from './kit/postgres.ts';
import { RenewingLease } from './kit/renewing-lease.ts';
import { unlessAborted, type Waiter, waitingLock } from './kit/waiting-lock.ts';
import { type AcquireResult, LEASE_CAPABILITIES, type Lock, type LockDescription } from './lock.ts';

export const description: LockDescription = {
  name: 'postgres-row',
  summary: 'One row in Postgres: owner, expiry by the database clock, compare on release, growing fence.',
  flaw: "If the database's clock jumps ahead, a lease expires there before its holder's deadline. An asynchronous standby may lack a lock, and its token, when it is promoted.",
  needs: 'DATABASE_URL',
  capabilities: [...LEASE_CAPABILITIES, 'fencing-tokens'],
};

// The subquery reads a held row without locking it; the upsert alone would lock and write the row on every attempt.
const ACQUIRE = `INSERT INTO lock_rows AS held (resource, owner, fence, expires_at)
  SELECT $1, $2, 1, clock_timestamp() + $3 * interval '1 millisecond'
  WHERE NOT EXISTS (SELECT FROM lock_rows WHERE resource = $1 AND expires_at > clock_timestamp())
  ON CONFLICT (resource) DO UPDATE SET owner = $2, fence = held.fence + 1,
    expires_at = clock_timestamp() + $3 * interval '1 millisecond'
  WHERE held.expires_at <= clock_timestamp()
  RETURNING fence`;
const RENEW = `UPDATE lock_rows SET expires_at = clock_timestamp() + $3 * interval '1 millisecond'
  WHERE resource = $1 AND owner = $2 AND expires_at > clock_timestamp() RETURNING fence`;
const RELEASE = `UPDATE lock_rows SET expires_at = '-infinity'
  WHERE resource = $1 AND owner = $2 AND expires_at > clock_timestamp() RETURNING fence`;

/** Uses the service's pool. A connection is taken for each statement only. */
export async function create({
  postgres: { pool, explain },
}: {
  readonly postgres: PostgresClient;
}): Promise<Lock> {
  const compensations = new Compensations();

  /** @returns the fencing token of the affected row, or null if no row was affected */
  async function run(name: string, text: string, values: unknown[], ttlMs: number): Promise<number | null> {
    const query = { name, text, values, query_timeout: Math.min(ttlMs, REPLY_MS) };
    const { rows } = await pool.query<{ fence: string }>(query);
    return rows[0] === undefined ? null : Number(rows[0].fence);
  }
  const acquire = (resource: string, token: string, ttlMs: number) =>
    run('lock-acquire', ACQUIRE, [resource, token, ttlMs], ttlMs);
  const renew = async (resource: string, token: string, ttlMs: number) =>
    (await run('lock-renew', RENEW, [resource, token, ttlMs], ttlMs / 3)) !== null;
  const release = async (resource: string, token: string) =>
    (await run('lock-release', RELEASE, [resource, token], REPLY_MS)) !== null;

  /** Releases what `acquiring` took or may still take. */
  function compensate(resource: string, token: string, ttlMs: number, acquiring: Promise<unknown>): void {
    const attempt = async () => {
      if ((await acquiring.catch(() => 'unknown')) === null) return true;
      return release(resource, token); // retried after "not held": the statement may still be in flight
    };
    compensations.add(attempt, ttlMs);
  }

  async function tryAcquire(resource: string, ttlMs: number, waiter: Waiter): Promise<AcquireResult | Retry> {
    const token = randomUUID();
    const requestedAtMs = performance.now();
    const acquiring = acquire(resource, token, ttlMs);
    try {
      const fencingToken = await unlessAborted(acquiring, waiter.signal);
      if (fencingToken !== null) {
        const backend = {
          renew: () => renew(resource, token, ttlMs),
          release: () =>
            release(resource, token).catch((error) => {
              compensations.add(() => release(resource, token).then(() => true), ttlMs);
              throw error;
            }),
        };
        const lease = new RenewingLease(backend, { resource, token, fencingToken, ttlMs, requestedAtMs });
        return await acceptLease(lease, waiter, 'postgres-slow');
      }
      if (waiter.signal.aborted) compensate(resource, token, ttlMs, acquiring);
      return { kind: 'retry' };
    } catch (error) {
      const failure = explain(error);
      if (failure.kind === 'unknown') compensate(resource, token, ttlMs, acquiring);
      return { kind: 'unavailable', reason: failure.reason };
    }
  }

  return waitingLock({
    name: description.name,
    minTtlMs: MIN_TTL_MS,
    queue: localQueue(),
    acquire: (resource, { ttlMs }, waiter) => poll(waiter, () => tryAcquire(resource, ttlMs, waiter)),
    close: () => compensations.close(),
  });
}
