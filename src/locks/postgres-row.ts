/**
 * A lock as a row in Postgres: owner, expiry and fencing token.
 *
 *   kit/polled-lock.ts ──granted──▶ held: kit/renewing-lease.ts
 *     └──no reply, or aborted──▶ a compensation releases by token until Postgres replies or the TTL expires
 *
 * The database's clock decides on expiry at the moment the row is locked: `clock_timestamp()`, because `now()` is the start
 * of the transaction. A token is that clock in microseconds, or the row's last token + 1 if that is greater. A released row
 * keeps the last token for KEPT, so that a clock that is set back by less lowers no token. Then it is deleted. Rejected: a
 * sequence for the fence, because two concurrent inserts may commit in another order than they drew their numbers.
 */
import { failureOf, type PostgresClient, RequestError } from './clients.ts';
import { polledLock } from './kit/polled-lock.ts';
import { MIN_TTL_MS, REPLY_MS } from './kit/postgres.ts';
import { LEASE_CAPABILITIES, type Lock, type LockDescription } from './lock.ts';

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
  onError = () => {},
}: {
  readonly postgres: PostgresClient;
  readonly onError?: ((doing: string, error: unknown) => void) | undefined;
}): Promise<Lock> {
  let sweepAtMs = 0;
  let sweeping: Promise<void> = Promise.resolve();

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

  /** Deletes rows that are no longer needed. */
  async function sweep(): Promise<void> {
    const swept = await query('lock-sweep', SWEEP, [], REPLY_MS);
    if (swept!.rowCount === SWEEP_ROWS) sweepAtMs = 0; // there are more
  }

  return polledLock({
    name: description.name,
    minTtlMs: MIN_TTL_MS,
    slowReason: 'postgres-slow',
    mayRunLate: true,
    async tryAcquire({ resource, token, ttlMs }, signal) {
      if (performance.now() >= sweepAtMs) {
        sweepAtMs = performance.now() + SWEEP_MS;
        sweeping = sweep().catch((error) => onError('sweep-lock-rows', error)); // in the background
      }
      try {
        const row = (await query('lock-acquire', ACQUIRE, [resource, token, ttlMs], ttlMs, signal))?.rows[0];
        return row === undefined ? { kind: 'retry' } : { kind: 'held', fencingToken: Number(row.fence) };
      } catch (error) {
        const { isUnknown, reason } = failureOf(error);
        if (isUnknown) throw error;
        return { kind: 'unavailable', reason }; // it has no effect that a compensation would have to undo
      }
    },
    renew: async ({ resource, token, ttlMs }) =>
      (await query('lock-renew', RENEW, [resource, token, ttlMs], ttlMs / 3))!.rowCount === 1,
    release: async ({ resource, token }) =>
      (await query('lock-release', RELEASE, [resource, token], REPLY_MS))!.rowCount === 1,
    close: () => sweeping,
  });
}
