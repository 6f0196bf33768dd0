/** What a database has been through, compared with prisma/migrations. */
import type pg from 'pg';
import { StartError } from '../../config/errors.ts';

/** On 2026-11-22 one migration replaced those before it. Databases that began with this one have another history. */
const REPLACED = '20261121000000_init';
/** The last commit that starts on a database with the replaced migrations. */
const LAST_WITH_REPLACED = '2f797a3';

const ADVICE = `To start empty, name a new database in DATABASE_URL, or move the folder of a local Postgres away (mv .local .local-old).
CHANGELOG.md, "A database from before 2026-11-22", says how to export its data.`;

/** The migrations of a database, compared with those in the folder. */
export interface History {
  /** Migrations of the folder that the database lacks. */
  readonly pending: readonly string[];
  /** Migrations that the database has beyond those of the folder: a newer version has migrated it. */
  readonly newer: readonly string[];
}

/** Reads `_prisma_migrations`. @throws StartError when the migrations of the folder cannot follow what the database has */
export async function historyOf(db: Pick<pg.Pool, 'query'>, folder: readonly string[]): Promise<History> {
  const { rows } = await db.query<{ name: string; finished: boolean }>(
    `SELECT migration_name AS name, finished_at IS NOT NULL AS finished FROM _prisma_migrations
     WHERE rolled_back_at IS NULL ORDER BY migration_name`,
  );
  const failed = rows.find(({ finished }) => !finished);
  if (failed !== undefined)
    throw new StartError(
      `The migration ${failed.name} was begun and not finished: the database may have a part of it. Restore a backup. If it has nothing of it, run as the owner of the tables, and start again:
  DELETE FROM _prisma_migrations WHERE migration_name = '${failed.name}' AND finished_at IS NULL;`,
    );
  const applied = rows.map(({ name }) => name);
  const pending = folder.filter((name) => !applied.includes(name));
  const unknown = applied.filter((name) => !folder.includes(name));
  const newest = folder.at(-1)!;
  if (unknown.length > 0 && (pending.length > 0 || unknown.some((name) => name < newest)))
    throw new StartError(anotherHistory(unknown));
  return { pending, newer: unknown };
}

function anotherHistory(unknown: readonly string[]): string {
  const cause = unknown.includes(REPLACED)
    ? `The database was made before 2026-11-22, when one migration replaced ${unknown.join(', ')}. This version cannot read it; the last one that can is commit ${LAST_WITH_REPLACED}.`
    : `The database has another history than this version: its migrations ${unknown.join(', ')} are not in prisma/migrations. Another branch or a fork has migrated it.`;
  return `${cause}\n${ADVICE}`;
}

/** @throws StartError when a database without `_prisma_migrations` has tables: they are not Stampede's */
export async function refuseForeignTables(db: Pick<pg.Pool, 'query'>): Promise<void> {
  const { rows } = await db.query<{ name: string }>(
    `SELECT tablename AS name FROM pg_tables WHERE schemaname = current_schema() ORDER BY tablename`,
  );
  if (rows.length === 0) return;
  const shown = rows.slice(0, 5).map(({ name }) => name);
  const tables = rows.length > shown.length ? [...shown, '…'] : shown;
  throw new StartError(
    `The database has tables (${tables.join(', ')}), but no table _prisma_migrations: another program made them, or a dump was restored without that table. Name an empty database in DATABASE_URL, or restore the whole dump.`,
  );
}
