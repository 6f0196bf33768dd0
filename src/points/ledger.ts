/**
 * The points ledger: append-only, one entry per (user, source type, source id). An award is inserted; the unique key rejects a repeat,
 * which then reads the first entry. It needs no lock, and no read before.
 */
import type pg from 'pg';
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

export interface AwardResult {
  /** `conflict`: the source has already awarded a different number of points, shown in `entry`; nothing was written. */
  readonly kind: 'added' | 'repeated' | 'conflict';
  readonly entry: PointsEntry;
}

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

export function ledger(postgres: PostgresStore): Ledger {
  const { pool } = postgres;
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
    // The unique key by name: without it Postgres rejects the statement, instead of adding repeats.
    const { rows } = await db.query({
      name: 'award-points',
      text: `INSERT INTO points_entries (user_id, source_type, source_id, points) VALUES ($1, $2, $3, $4)
             ON CONFLICT (user_id, source_type, source_id) DO NOTHING RETURNING ${COLUMNS}`,
      values: [userId, sourceType, sourceId, points],
    });
    if (rows[0] !== undefined) return { kind: 'added', entry: fromRow(rows[0]) };
    return (await find(award, db))!; // entries are never deleted
  }

  /** One request with a key is one transaction. */
  async function add(award: Award, key: IdempotencyKey | null): Promise<AwardResult> {
    if (key === null) return insert(award, pool);
    return once(postgres, key, async (client) => {
      const value = await insert(award, client);
      return { commit: value.kind !== 'conflict', value };
    });
  }

  return {
    async award(award, key = null) {
      const before = postgres.timeline();
      const result = await add(award, key);
      if (result.kind !== 'added') await postgres.replicated(before);
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
