/**
 * The points ledger: append-only, one entry per (user, source type, source id). The unique key makes a repeated award
 * harmless; there is no lock and no read before the insert.
 */
import type { PointsAccount, PointsEntry } from '../domain/points.ts';
import type { PostgresStore } from '../store/postgres/pool.ts';

export interface Award {
  readonly userId: string;
  readonly sourceType: string;
  readonly sourceId: string;
  readonly points: number;
}

/** `conflict`: the source has already awarded a different number of points, shown in `entry`; nothing was written. */
export interface AwardResult {
  readonly kind: 'added' | 'repeated' | 'conflict';
  readonly entry: PointsEntry;
}

export interface Ledger {
  /** Adds an entry, or returns the existing one of the same source. */
  award(award: Award): Promise<AwardResult>;
  /** The balance of all entries, and the newest `max` of them. */
  account(userId: string, max: number): Promise<PointsAccount>;
}

interface EntryRow {
  readonly id: string;
  readonly source_type: string;
  readonly source_id: string;
  readonly points: number;
  readonly created_at: Date;
}

const COLUMNS = 'id, source_type, source_id, points, created_at';

export function ledger({ pool }: PostgresStore): Ledger {
  return {
    async award({ userId, sourceType, sourceId, points }) {
      const inserted = await pool.query<EntryRow>({
        name: 'award-points',
        text: `INSERT INTO points_entries (user_id, source_type, source_id, points) VALUES ($1, $2, $3, $4)
               ON CONFLICT (user_id, source_type, source_id) DO NOTHING RETURNING ${COLUMNS}`,
        values: [userId, sourceType, sourceId, points],
      });
      if (inserted.rows[0] !== undefined) return { kind: 'added', entry: toEntry(inserted.rows[0]) };
      const first = await pool.query<EntryRow>({
        name: 'find-points',
        text: `SELECT ${COLUMNS} FROM points_entries WHERE user_id = $1 AND source_type = $2 AND source_id = $3`,
        values: [userId, sourceType, sourceId],
      });
      // Entries are never deleted, so the conflicting one exists.
      const entry = toEntry(first.rows[0]!);
      return { kind: entry.points === points ? 'repeated' : 'conflict', entry };
    },
    async account(userId, max) {
      const { rows } = await pool.query<EntryRow & { balance: string }>(
        `SELECT ${COLUMNS}, sum(points) OVER () AS balance FROM points_entries WHERE user_id = $1
         ORDER BY id DESC LIMIT $2`,
        [userId, max],
      );
      return { balance: Number(rows[0]?.balance ?? 0), entries: rows.map(toEntry) };
    },
  };
}

function toEntry(row: EntryRow): PointsEntry {
  return {
    id: Number(row.id),
    sourceType: row.source_type,
    sourceId: row.source_id,
    points: row.points,
    createdAt: row.created_at.toISOString(),
  };
}
