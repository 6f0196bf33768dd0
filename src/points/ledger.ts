/**
 * The points ledger: append-only, one entry for each (user, source type, source id). The unique key alone makes a
 * repeated award harmless: there is no lock and no look before the insert.
 */
import type { PointsAccount, PointsEntry } from '../domain/points.ts';
import type { PostgresStore } from '../store/postgres/pool.ts';

export interface Award {
  readonly userId: string;
  readonly sourceType: string;
  readonly sourceId: string;
  readonly points: number;
}

/** `conflict`: the source has awarded another number of points before, which `entry` shows; nothing was written. */
export interface AwardResult {
  readonly kind: 'added' | 'repeated' | 'conflict';
  readonly entry: PointsEntry;
}

export interface Ledger {
  /** Adds an entry, or finds the first one of the same source. */
  award(award: Award): Promise<AwardResult>;
  /** The balance over all entries, and the newest of them. */
  account(userId: string, most: number): Promise<PointsAccount>;
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
      // Entries are never deleted, so the one that the insert met is there.
      const entry = toEntry(first.rows[0]!);
      return { kind: entry.points === points ? 'repeated' : 'conflict', entry };
    },
    async account(userId, most) {
      const { rows } = await pool.query<EntryRow & { balance: string }>(
        `SELECT ${COLUMNS}, sum(points) OVER () AS balance FROM points_entries WHERE user_id = $1
         ORDER BY id DESC LIMIT $2`,
        [userId, most],
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
