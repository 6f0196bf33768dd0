/**
 * A lock as a row in Postgres: owner, expiry and fencing token.
 *
 *   local turn ──▶ attempt ──contended──▶ pause ──▶ attempt …        waitMs elapsed: contended
 *                    │ └──no reply, or aborted──▶ a compensation releases by token until Postgres replies or the TTL expires
 *                    ▼
 *                  held: kit/renewing-lease.ts
 *
 * The database's clock decides on expiry at the moment the row is locked: `clock_timestamp()`, because `now()` is the start
 * of the transaction. A token is that clock in microseconds, or the row's last token + 1 if that is greater. A released row
 * keeps the last token for KEPT, so that a clock that is set back by less lowers no token. Then it is deleted. Rejected: a
 * sequence for the fence, because two concurrent inserts may commit in another order than they drew their numbers.
 */
import { randomUUID } from 'node:crypto';
import { failureOf, type PostgresClient, RequestError } from './clients.ts';
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
  flaw: "If the database's clock jumps ahead, a lease expires there before its holder's deadline. An asynchronous standby may lack a lock when it is promoted; if its clock is behind, its fencing tokens are lower than before.",
  needs: 'DATABASE_URL',
  capabilities: [...LEASE_CAPABILITIES, 'fencing-tokens'],
};

/** How long a row that is not held keeps its token, and by how much the clock may be set back. */
const KEPT = "interval '1 day'";
/** How often a process deletes rows that are no longer needed, and how many at most with one statement. */
const SWEEP_MS = 3_600_000;
const SWEEP_ROWS = 10_000;

const UNTIL = "clock_timestamp() + $3 * interval '1 millisecond'";
const CLOCK_US = '(extract(epoch FROM clock_timestamp()) * 1000000)::bigint';
// The subquery reads a held row without locking it; the upsert alone would lock and write the row on every attempt.
const ACQUIRE = `INSERT INTO lock_rows AS held (resource, owner, fence, expires_at)
  SELECT $1, $2, ${CLOCK_US}, ${UNTIL}
  WHERE NOT EXISTS (SELECT FROM lock_rows WHERE resource = $1 AND expires_at > clock_timestamp())
  ON CONFLICT (resource) DO UPDATE SET owner = $2, fence = greatest(held.fence + 1, ${CLOCK_US}), expires_at = ${UNTIL}
  WHERE held.expires_at <= clock_timestamp()
  RETURNING fence`;
const RENEW = `UPDATE lock_rows SET expires_at = ${UNTIL}
  WHERE resource = $1 AND owner = $2 AND expires_at > clock_timestamp() RETURNING fence`;
// Long ago, so that a clock that is set back does not make the row look held.
const RELEASE = `UPDATE lock_rows SET expires_at = clock_timestamp() - ${KEPT}
  WHERE resource = $1 AND owner = $2 AND expires_at > clock_timestamp() RETURNING fence`;
// An earlier version of this lock may run beside this one. It counts tokens from 1, and its rows stay until this one has used them.
const SWEEP = `DELETE FROM lock_rows WHERE resource IN (SELECT resource FROM lock_rows
  WHERE expires_at < clock_timestamp() - 2 * ${KEPT} AND fence > 1000000000000 LIMIT ${SWEEP_ROWS} FOR UPDATE SKIP LOCKED)`;

/** Uses the service's pool. A connection is taken for each statement only. */
export async function create({
  postgres: { pool, explain },
}: {
  readonly postgres: PostgresClient;
}): Promise<Lock> {
  const compensations = new Compensations();
  let sweepAtMs = 0;

  /** @returns the result; null: the signal had fired before there was a connection @throws RequestError, and defects as they are */
  async function query(name: string, text: string, values: unknown[], ms: number, signal?: AbortSignal) {
    const client = await pool.connect().catch((error) => {
      throw new RequestError({ ...explain(error), kind: 'not-sent' }, error);
    });
    let broken: Error | undefined;
    try {
      if (signal?.aborted) return null;
      const config = { name, text, values, query_timeout: Math.min(ms, REPLY_MS) };
      return await client.query<{ fence: string }>(config);
    } catch (error) {
      broken = error as Error;
      throw new RequestError(explain(error), error);
    } finally {
      client.release(broken);
    }
  }
  const acquire = async (resource: string, token: string, ttlMs: number, signal: AbortSignal) => {
    const row = (await query('lock-acquire', ACQUIRE, [resource, token, ttlMs], ttlMs, signal))?.rows[0];
    return row === undefined ? null : Number(row.fence);
  };
  const renew = async (resource: string, token: string, ttlMs: number) =>
    (await query('lock-renew', RENEW, [resource, token, ttlMs], ttlMs / 3))!.rowCount === 1;
  const release = async (resource: string, token: string) =>
    (await query('lock-release', RELEASE, [resource, token], REPLY_MS))!.rowCount === 1;

  /** Releases what `acquiring` took or may still take. */
  function compensate(resource: string, token: string, ttlMs: number, acquiring: Promise<unknown>): void {
    const mayHold = acquiring.then(
      (fencingToken) => fencingToken !== null,
      (error) => error instanceof RequestError && error.isUnknown,
    );
    // Repeated after "not held": the statement may still be in flight.
    compensations.add(async () => !(await mayHold) || release(resource, token), ttlMs);
  }

  /** In the background: deletes rows that are no longer needed, at the first acquisition and then once in SWEEP_MS. */
  function sweep(): void {
    if (performance.now() < sweepAtMs) return;
    sweepAtMs = performance.now() + SWEEP_MS;
    compensations.add(async () => {
      if ((await query('lock-sweep', SWEEP, [], REPLY_MS))!.rowCount === SWEEP_ROWS) sweepAtMs = 0; // there are more
      return true;
    }, 0);
  }

  async function tryAcquire(resource: string, ttlMs: number, waiter: Waiter): Promise<AcquireResult | Retry> {
    const token = randomUUID();
    const requestedAtMs = performance.now();
    const acquiring = acquire(resource, token, ttlMs, waiter.signal);
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
      const { isUnknown, reason } = failureOf(error);
      if (isUnknown) compensate(resource, token, ttlMs, acquiring);
      return { kind: 'unavailable', reason };
    }
  }

  return waitingLock({
    name: description.name,
    minTtlMs: MIN_TTL_MS,
    queue: localQueue(),
    acquire(resource, { ttlMs }, waiter) {
      sweep();
      return poll(waiter, () => tryAcquire(resource, ttlMs, waiter));
    },
    close: () => compensations.close(),
  });
}
