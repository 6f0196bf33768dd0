/**
 * How a repeated award of points is recognized:
 *
 *   unique-key   by the service's ledger: insert; the unique key rejects a repeat, which then reads the first entry
 *   lock         acquire the lock of the source, read, insert if nothing was found
 *
 * Safety does not depend on the lock: when it admits two holders, the unique key still rejects the second entry.
 */
import { createHash } from 'node:crypto';
import type pg from 'pg';
import { type ClientLock, openClientLock } from '../../../lab/clients/open-lock.ts';
import { type Award, ledger } from '../../../src/points/ledger.ts';
import { openPostgres } from '../../../src/store/postgres/pool.ts';

export interface Guard {
  readonly databaseUrl: string;
  readonly redisUrl: string;
  /** A value of LOCK; null: the unique key alone. */
  readonly lock: string | null;
}

export type GuardedLedger = Awaited<ReturnType<typeof openGuardedLedger>>;

export async function openGuardedLedger({ databaseUrl, redisUrl, lock }: Guard) {
  const postgres = openPostgres(databaseUrl, () => {});
  const held = lock === null ? null : await openClientLock(lock, { databaseUrl, redisUrl });
  const points = ledger(postgres);
  return {
    /**
     * @param waitMs how long it waits for the lock
     * @returns `refused`: the lock was not acquired, or the source has awarded other points; nothing was written
     */
    async award(award: Award, waitMs: number) {
      if (held !== null) return awardUnderLock(held, postgres.pool, award, waitMs);
      const { kind } = await points.award(award);
      return kind === 'conflict' ? 'refused' : kind;
    },
    async [Symbol.asyncDispose]() {
      await held?.close();
      await postgres.close();
    },
  };
}

async function awardUnderLock(lock: ClientLock, pool: pg.Pool, award: Award, waitMs: number) {
  const grant = await lock.acquire(resourceOf(award), waitMs, new AbortController().signal);
  if ('refused' in grant) return 'refused';
  try {
    return await readAndInsert(pool, award);
  } finally {
    await grant.release();
  }
}

/** Any unique key will do, and the statement also runs on the control's table, which has none. */
async function readAndInsert(pool: pg.Pool, { userId, sourceType, sourceId, points }: Award) {
  const { rowCount: found } = await pool.query({
    name: 'find-points',
    text: 'SELECT id FROM points_entries WHERE user_id = $1 AND source_type = $2 AND source_id = $3',
    values: [userId, sourceType, sourceId],
  });
  if (found) return 'repeated';
  const { rowCount: added } = await pool.query({
    name: 'award-points-under-lock',
    text: `INSERT INTO points_entries (user_id, source_type, source_id, points) VALUES ($1, $2, $3, $4)
           ON CONFLICT DO NOTHING`,
    values: [userId, sourceType, sourceId, points],
  });
  return added ? 'added' : 'repeated';
}

/** Hashed: not every lock accepts every character and length in a name. */
function resourceOf({ userId, sourceType, sourceId }: Award): string {
  const source = createHash('sha256').update(JSON.stringify([userId, sourceType, sourceId]));
  return `points:${source.digest('hex')}`;
}
