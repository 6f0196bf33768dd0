/**
 * A lock as a row in Postgres: owner, expiry and fencing token.
 *
 *   local turn ──▶ ask ──held by another──▶ wait a little ──▶ ask …        until waitMs is over: contended
 *                   │ └──no answer, or aborted──▶ settle: given back by its token, until answered or the TTL is over
 *                   ▼
 *                 held: see renewing-lease.ts
 *
 * Expiry is judged by the database's clock at the moment the row is locked (`clock_timestamp()`, not `now()`, which is
 * the transaction's start). A row stays when its lock is given back, because its fence must go on growing: one small
 * row for each resource that was ever locked. Rejected: a sequence for the fence and rows that are deleted, since two
 * claims that insert at once may commit in another order than they drew their numbers.
 */
import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import { localQueue } from '../concurrency/local-queue.ts';
import { expectedPostgresFailure } from '../store/postgres/failures.ts';
import type { PostgresStore } from '../store/postgres/pool.ts';
import { Settlements } from './kit/ambiguous-write.ts';
import { inTime, poll, type Wait } from './kit/polling.ts';
import { RenewingLease } from './kit/renewing-lease.ts';
import { unlessAborted, type Waiter, waitingLock } from './kit/waiting-lock.ts';
import type { AcquireResult, Lock, LockDescription } from './lock.ts';

export const description: LockDescription = {
  name: 'postgres-row',
  summary:
    'One row in Postgres: owner, expiry by the database clock, compare on release, growing fencing token.',
  flaw: 'When the clock of the database jumps ahead, a lease ends there before its holder is told.',
  needs: 'DATABASE_URL',
  capabilities: {
    expires: true,
    checksOwner: true,
    settlesLostAnswers: true,
    renews: true,
    signalsLoss: true,
    reentrant: false,
    fair: false,
    fenced: true,
    waitsByEvent: false,
    survivesFailover: false,
  },
};

/** How long one statement may take before its outcome counts as unknown. */
const ANSWER_MS = 1_500;

// A row that is held is only read: the upsert would lock it, and write that down, for every question.
const TAKE = `INSERT INTO lock_rows AS held (resource, owner, fence, expires_at)
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

/** Makes the lock on the service's own pool; nobody holds a connection while waiting or working. */
export async function create({ postgres }: { readonly postgres: PostgresStore }): Promise<Lock> {
  return createPostgresRowLock(postgres.pool);
}

export function createPostgresRowLock(pool: pg.Pool): Lock {
  const settlements = new Settlements();

  /** @returns the fencing token of the row that the statement met, or null when it met none */
  async function run(name: string, text: string, values: unknown[], ttlMs: number): Promise<number | null> {
    const query = { name, text, values, query_timeout: Math.min(ttlMs, ANSWER_MS) };
    const { rows } = await pool.query<{ fence: string }>(query);
    return rows[0] === undefined ? null : Number(rows[0].fence);
  }
  const take = (resource: string, token: string, ttlMs: number) =>
    run('lock-take', TAKE, [resource, token, ttlMs], ttlMs);
  const renew = async (resource: string, token: string, ttlMs: number) =>
    (await run('lock-renew', RENEW, [resource, token, ttlMs], ttlMs / 3)) !== null;
  const release = async (resource: string, token: string) =>
    (await run('lock-release', RELEASE, [resource, token], ANSWER_MS)) !== null;

  /** Gives back what `taking` may have taken or may still take. */
  function settle(resource: string, token: string, ttlMs: number, taking: Promise<unknown>): void {
    const undo = async () => {
      if ((await taking.catch(() => 'unknown')) === null) return true;
      return release(resource, token); // "not held" is no answer to rely on: the statement may still be under way
    };
    settlements.undo(undo, ttlMs);
  }

  async function askOnce(resource: string, ttlMs: number, waiter: Waiter): Promise<AcquireResult | Wait> {
    const token = randomUUID();
    const askedMs = performance.now();
    const taking = take(resource, token, ttlMs);
    try {
      const fencingToken = await unlessAborted(taking, waiter.signal);
      if (fencingToken !== null) {
        const server = {
          renew: () => renew(resource, token, ttlMs),
          release: () => release(resource, token),
        };
        const lease = new RenewingLease(server, { resource, token, fencingToken, ttlMs, askedMs });
        return await inTime(lease, waiter, 'postgres-slow');
      }
      if (waiter.signal.aborted) settle(resource, token, ttlMs, taking);
      return { kind: 'wait' };
    } catch (error) {
      const failure = expectedPostgresFailure(error);
      if (failure.kind === 'unknown') settle(resource, token, ttlMs, taking);
      return { kind: 'unavailable', reason: 'reason' in failure ? failure.reason : failure.code };
    }
  }

  return waitingLock({
    name: description.name,
    queue: localQueue(),
    ask: (resource, { ttlMs }, waiter) => poll(waiter, () => askOnce(resource, ttlMs, waiter)),
    close: () => settlements.close(),
  });
}
