/**
 * The points ledger: append-only, one entry per (user, source type, source id). How it recognizes a repeated award
 * (POINTS_GUARD):
 *
 *   unique-key   insert; the unique key rejects a repeat, which then reads the first entry. No lock, no read before
 *   lock         acquire the lock of the source, read, insert if nothing was found. For comparison: it costs the lock's round
 *                trips, and awards wait while the lock's server is down
 *
 * Safety does not depend on the lock: when it admits two holders, the unique key still rejects the second entry.
 */
import { createHash } from 'node:crypto';
import type pg from 'pg';
import { type Lock, using } from '../locks/lock.ts';
import { type IdempotencyKey, once } from '../store/postgres/idempotency.ts';
import type { PostgresStore } from '../store/postgres/pool.ts';
import { fromRow } from '../store/postgres/rows.ts';

/** One award, or the reversal of one. Never edited. */
export interface PointsEntry {
  readonly id: number;
  readonly sourceType: string;
  readonly sourceId: string;
  readonly points: number;
  readonly createdAt: string;
}

/** A user's points: the balance is the sum of all entries, of which the newest are listed. */
export interface PointsAccount {
  readonly balance: number;
  readonly entries: readonly PointsEntry[];
}

export interface Award {
  readonly userId: string;
  readonly sourceType: string;
  readonly sourceId: string;
  readonly points: number;
}

export type AwardResult =
  /** `conflict`: the source has already awarded a different number of points, shown in `entry`; nothing was written. */
  | { readonly kind: 'added' | 'repeated' | 'conflict'; readonly entry: PointsEntry }
  /** The lock was not acquired; nothing was written. */
  | { readonly kind: 'busy'; readonly reason: string };

export interface Ledger {
  /**
   * Adds an entry, or returns the existing one of the same source.
   * @param key of a request that has one: a repeat gets the same result
   * @throws errors of Postgres; the entry may exist then
   */
  award(award: Award, key?: IdempotencyKey | null): Promise<AwardResult>;
  /** The balance of all entries, and the newest `max` of them. */
  account(userId: string, max: number): Promise<PointsAccount>;
}

type Db = Pick<pg.PoolClient, 'query'>;

/** `ORDER BY id` would sort by this number, which has no index. */
const COLUMNS = `id::float8 AS id, source_type AS "sourceType", source_id AS "sourceId", points, created_at AS "createdAt"`;

/** The lock that POINTS_GUARD=lock takes. */
export interface AwardLock {
  readonly lock: Lock;
  readonly lockTtlMs: number;
  readonly lockWaitMs: number;
}

/** The unique key by name: without it Postgres rejects the statement, instead of adding repeats. */
const UNIQUE_KEY = { name: 'award-points', conflict: 'ON CONFLICT (user_id, source_type, source_id)' };
/** Under the lock any unique key will do, and the statement also runs on the control's table, which has none. */
const UNDER_LOCK = { name: 'award-points-under-lock', conflict: 'ON CONFLICT' };

/** @param guard null: the unique key alone */
export function ledger(postgres: PostgresStore, guard: AwardLock | null): Ledger {
  const { pool } = postgres;
  const { name, conflict } = guard === null ? UNIQUE_KEY : UNDER_LOCK;
  async function find({ userId, sourceType, sourceId, points }: Award, db: Db): Promise<AwardResult | null> {
    const { rows } = await db.query({
      name: 'find-points',
      text: `SELECT ${COLUMNS} FROM points_entries WHERE user_id = $1 AND source_type = $2 AND source_id = $3`,
      values: [userId, sourceType, sourceId],
    });
    if (rows[0] === undefined) return null;
    const entry = fromRow<PointsEntry>(rows[0]);
    return { kind: entry.points === points ? 'repeated' : 'conflict', entry };
  }

  async function insert(award: Award, db: Db): Promise<AwardResult> {
    const { userId, sourceType, sourceId, points } = award;
    const { rows } = await db.query({
      name,
      text: `INSERT INTO points_entries (user_id, source_type, source_id, points) VALUES ($1, $2, $3, $4)
             ${conflict} DO NOTHING RETURNING ${COLUMNS}`,
      values: [userId, sourceType, sourceId, points],
    });
    if (rows[0] !== undefined) return { kind: 'added', entry: fromRow(rows[0]) };
    return (await find(award, db))!; // entries are never deleted
  }

  /** One request with a key is one transaction. */
  async function add(
    key: IdempotencyKey | null,
    write: (db: Db) => Promise<AwardResult>,
  ): Promise<AwardResult> {
    if (key === null) return write(pool);
    return once(postgres, key, async (client) => {
      const value = await write(client);
      return { commit: value.kind === 'added' || value.kind === 'repeated', value };
    });
  }

  /** The lock is held until the transaction has ended. It may need a connection of the pool, so it is acquired before one is taken. */
  async function underLock(
    { lock, lockTtlMs: ttlMs, lockWaitMs: waitMs }: AwardLock,
    award: Award,
    work: () => Promise<AwardResult>,
  ): Promise<AwardResult> {
    const result = await using(lock, resourceOf(award), { ttlMs, waitMs }, work);
    if (result.kind === 'done') return result.value;
    return { kind: 'busy', reason: 'reason' in result ? result.reason : 'lock-contended' };
  }

  return {
    async award(award, key = null) {
      const before = postgres.timeline();
      const write =
        guard === null ? insert : async (_: Award, db: Db) => (await find(award, db)) ?? insert(award, db);
      const put = () => add(key, (db) => write(award, db));
      const result = await (guard === null ? put() : underLock(guard, award, put));
      if (result.kind === 'repeated' || result.kind === 'conflict') await postgres.replicated(before);
      return result;
    },
    async account(userId, max) {
      const { rows } = await pool.query<{ readonly balance: string }>(
        `SELECT ${COLUMNS}, sum(points) OVER () AS balance FROM points_entries WHERE user_id = $1
         ORDER BY points_entries.id DESC LIMIT $2`,
        [userId, max],
      );
      const entries = rows.map(({ balance, ...entry }) => fromRow<PointsEntry>(entry));
      return { balance: Number(rows[0]?.balance ?? 0), entries };
    },
  };
}

/** Hashed: not every lock accepts every character and length in a name. */
function resourceOf({ userId, sourceType, sourceId }: Award): string {
  const source = createHash('sha256').update(JSON.stringify([userId, sourceType, sourceId]));
  return `points:${source.digest('hex')}`;
}
