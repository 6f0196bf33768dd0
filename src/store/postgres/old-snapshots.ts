/**
 * What makes hot rows slow: a snapshot that is held for long keeps every version of a row since, and each read of it passes all of
 * them. Only the holder can be seen, not its start, unless the service's role may read the statistics of others; so a snapshot's
 * age counts from the first read that found it.
 */
import type { PostgresStore } from './pool.ts';

export interface OldSnapshots {
  /** How long the oldest snapshot has been seen, seconds; 0: none is older than the last write. */
  readonly oldestS: number;
  /** Dead rows by table. */
  readonly deadRows: ReadonlyMap<string, number>;
}

// Sessions of this database and of walsenders (hot_standby_feedback), prepared transactions, replication slots. VACUUM holds none back.
const HELD = `
  SELECT pid::text || ' ' || backend_xmin AS holder FROM pg_stat_activity
  WHERE age(backend_xmin) > 0 AND (datid IS NULL OR datname = current_database()) AND pid <> pg_backend_pid()
    AND pid NOT IN (SELECT pid FROM pg_stat_progress_vacuum)
  UNION ALL
  SELECT gid FROM pg_prepared_xacts WHERE database = current_database()
  UNION ALL
  SELECT slot_name || ' ' || xmin FROM pg_replication_slots WHERE age(xmin) > 0`;
/** The tables whose rows a sale changes again and again. */
const DEAD = `SELECT relname AS table, n_dead_tup::float8 AS rows FROM pg_stat_user_tables
  WHERE relname IN ('sales', 'orders', 'stock_units', 'mirror_outbox', 'tasks')`;

/** @returns a function that reads them; it throws what Postgres throws */
export function oldSnapshots({ pool }: Pick<PostgresStore, 'pool'>): () => Promise<OldSnapshots> {
  let seen: ReadonlyMap<string, number> = new Map();
  return async () => {
    const [held, dead] = [
      await pool.query<{ holder: string }>(HELD),
      await pool.query<{ table: string; rows: number }>(DEAD),
    ];
    const nowMs = performance.now();
    seen = new Map(held.rows.map(({ holder }) => [holder, seen.get(holder) ?? nowMs]));
    return {
      oldestS: Math.max(0, ...[...seen.values()].map((sinceMs) => (nowMs - sinceMs) / 1_000)),
      deadRows: new Map(dead.rows.map(({ table, rows }) => [table, rows])),
    };
  };
}
