/** A caller's pool of node-postgres (the package `pg`) for the locks. */
import type pg from 'pg';
import type { PostgresPool } from '../callers.ts';
import type { PostgresClient } from '../clients.ts';
import { isRolledBack } from './postgres-errors.ts';

/** What the locks write; see docs/explanation/locks.md. One small row stays for each resource ever locked. */
const TABLE = `CREATE TABLE IF NOT EXISTS lock_rows (
  resource text PRIMARY KEY,
  owner text NOT NULL,
  fence bigint NOT NULL CHECK (fence > 0),
  expires_at timestamptz NOT NULL
)`;

export async function createLockRows(pool: PostgresPool): Promise<void> {
  const found = await pool.query(`SELECT to_regclass('lock_rows') IS NOT NULL AS is_there`);
  if (!found.rows[0].is_there) await pool.query(TABLE);
}

export const fromPool = (pool: PostgresPool): PostgresClient => ({ pool: pool as pg.Pool, explain });

/** An answer of Postgres rolled the statement back; after any other error it may have been executed, or may yet. */
function explain(error: unknown) {
  const { code = '', severity, syscall } = error as { code?: string; severity?: string; syscall?: string };
  if (isRolledBack(severity, code)) return { kind: 'unavailable', reason: `postgres-${code}` };
  if (syscall === 'connect' || syscall === 'getaddrinfo')
    return { kind: 'not-sent', reason: 'postgres-unreachable' };
  return { kind: 'unknown', reason: 'postgres-no-answer' };
}
