/**
 * Applies the scripts of prisma/migrations, and fills `_prisma_migrations` as `prisma migrate deploy` does; both can be used on one
 * database.
 *
 * Everything runs on one connection in one transaction: the lock, the scripts and their records. A start that is killed halfway
 * leaves nothing behind. Of several processes that start at once, one applies while the others wait, and then find nothing to do.
 * (A migration can therefore not use CREATE INDEX CONCURRENTLY.)
 *
 * Beside services that sell, the tables of purchases are locked first. A transaction that has one of them may wait for the other: before
 * Postgres finds that deadlock, and ends one of both, this one ends itself, and begins again a second later, however often that takes.
 */
import { createHash, randomUUID } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { StartError } from '../../config/errors.ts';
import { classifyPostgresError } from '../failures/postgres.ts';
import { type History, historyOf, refuseForeignTables } from './migration-history.ts';
import { addressOf, retried, serverOf } from './pool.ts';
import { missingGrants } from './privileges.ts';

const migrations = new URL('../../../prisma/migrations/', import.meta.url);
/** The key of the advisory lock; an arbitrary constant. */
const MIGRATION_LOCK = 7_261_737;

/** As Prisma creates it. */
const CREATE_HISTORY = `CREATE TABLE _prisma_migrations (
  id varchar(36) PRIMARY KEY,
  checksum varchar(64) NOT NULL,
  finished_at timestamptz,
  migration_name varchar(255) NOT NULL,
  logs text,
  rolled_back_at timestamptz,
  started_at timestamptz NOT NULL DEFAULT now(),
  applied_steps_count integer NOT NULL DEFAULT 0)`;

export interface Migrated {
  /** The names of the migrations that this call applied. */
  readonly applied: readonly string[];
  /** Migrations of a newer version, which this one lacks. The process may run beside that version, or after it. */
  readonly newer: readonly string[];
}

/**
 * Migrates the database to the newest version.
 * @param serviceRole the role of the service, which is given what it needs to read and write rows; null: the same role
 * @throws StartError when the role may not migrate, the database has another history, or a migration fails; what Postgres throws
 *   when it cannot be reached or a grant fails. The database is then as it was before the call.
 */
export async function migrate(databaseUrl: string, serviceRole: string | null = null): Promise<Migrated> {
  for (;;) {
    try {
      return await retried(() => migrateOnce(databaseUrl, serviceRole));
    } catch (error) {
      if (classifyPostgresError(error).reason !== LOCKED) throw error;
      await sleep(PAUSE_MS);
    }
  }
}

function migrateOnce(databaseUrl: string, serviceRole: string | null): Promise<Migrated> {
  return inTransaction(databaseUrl, async (pool) => {
    // The timeouts are those of the service.
    for (const timeout of ['statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout'])
      await pool.query(`SET LOCAL ${timeout} = 0`);
    await pool.query('SELECT pg_advisory_xact_lock($1)', [MIGRATION_LOCK]);
    await createSchema(pool, addressOf(databaseUrl).schema);
    const { known, creates, pending, newer } = await readHistory(pool);
    if (pending.length > 0 && !creates)
      throw new StartError(
        `The database lacks the migrations ${pending.join(', ')}, and its user may not create tables. ${AS_OWNER}`,
      );
    if (!known) await pool.query(CREATE_HISTORY);
    if (pending.length > 0 && !pending[0]!.endsWith('_init')) await lockTables(pool);
    if (pending.length > 0) await apply(pool, pending);
    const grants = serviceRole === null ? [] : await missingGrants(pool, serviceRole);
    for (const grant of grants) await pool.query(grant);
    return { applied: pending, newer };
  });
}

/** Reads what `migrate` would do, and writes nothing. @throws StartError when the database has another history */
export function migrationsOf(databaseUrl: string): Promise<Readable> {
  return inTransaction(databaseUrl, async (pool) => {
    await pool.query('SET TRANSACTION READ ONLY');
    return await readHistory(pool);
  });
}

/**
 * Checks that the database has every migration, and writes nothing.
 * @throws StartError when it lacks one or has another history; what Postgres throws when it cannot be reached
 */
export async function checkMigrated(databaseUrl: string): Promise<Migrated> {
  const { pending, newer } = await migrationsOf(databaseUrl);
  if (pending.length === 0) return { applied: [], newer };
  throw new StartError(
    `The database lacks the migrations ${pending.join(', ')}, and with MIGRATE=never the start does not apply them. Run first: npm run migrate (in the image: node dist/commands/migrate.js).`,
  );
}

/** On one connection, never closed while idle: it has the transaction. */
async function inTransaction<T>(databaseUrl: string, work: (pool: pg.Pool) => Promise<T>): Promise<T> {
  const pool = new pg.Pool({
    ...serverOf(databaseUrl),
    max: 1,
    idleTimeoutMillis: 0,
    connectionTimeoutMillis: 10_000,
  });
  pool.on('error', () => {}); // a lost connection also fails the query in progress
  try {
    // Under a stricter level the snapshot would be older than the lock, and lack what another process has just applied.
    await pool.query('BEGIN ISOLATION LEVEL READ COMMITTED');
    const result = await work(pool);
    await pool.query('COMMIT');
    return result;
  } finally {
    await pool.end(); // rolls back what was not committed
  }
}

/** How long services wait for a migration that waits, milliseconds: less than `deadlock_timeout`, which is a second by default. */
const LOCK_MS = 300;
const PAUSE_MS = 1_000;
const LOCKED = 'lock-timeout';

/** Locks the tables of purchases against every other transaction. From now on no lock is waited for longer. @throws what Postgres throws */
async function lockTables(pool: pg.Pool): Promise<void> {
  await pool.query(`SET LOCAL lock_timeout = ${LOCK_MS}`);
  await pool.query('LOCK TABLE orders, sales IN ACCESS EXCLUSIVE MODE');
}

async function createSchema(pool: pg.Pool, schema: string | null): Promise<void> {
  if (schema === null) return;
  const { rows } = await pool.query<{ missing: boolean }>(
    `SELECT NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1) AS missing`,
    [schema],
  );
  if (rows[0]!.missing) await pool.query(`CREATE SCHEMA "${schema}"`);
}

const AS_OWNER = 'Set MIGRATION_DATABASE_URL to the role that owns the tables.';

interface Readable extends History {
  /** Whether the database has the table of its history. */
  readonly known: boolean;
  /** Whether the role may create tables. */
  readonly creates: boolean | null;
}

async function readHistory(pool: pg.Pool): Promise<Readable> {
  const names = await migrationNames();
  const { rows } = await pool.query<{ known: boolean; readable: boolean | null; creates: boolean | null }>(
    `SELECT known IS NOT NULL AS known, has_table_privilege(known, 'SELECT') AS readable,
       has_schema_privilege(current_schema(), 'CREATE') AS creates
     FROM to_regclass('_prisma_migrations') AS known`,
  );
  const { known, readable, creates } = rows[0]!;
  if (known && !readable)
    throw new StartError(`The database user may not read the table _prisma_migrations. ${AS_OWNER}`);
  if (!known) await refuseForeignTables(pool);
  const history = known ? await historyOf(pool, names) : { pending: names, newer: [] };
  return { ...history, known, creates };
}

async function migrationNames(): Promise<string[]> {
  const entries = await readdir(migrations, { withFileTypes: true });
  return entries
    .filter((entry) => entry.isDirectory())
    .map((entry) => entry.name)
    .sort();
}

/** @throws StartError saying what Postgres said; what another transaction causes as it is, for the next try */
async function apply(pool: pg.Pool, names: readonly string[]): Promise<void> {
  try {
    for (const name of names) await applyScript(pool, name);
  } catch (cause) {
    const { kind, reason } = classifyPostgresError(cause);
    if (kind === 'conflict' || reason === LOCKED) throw cause;
    const { message } = cause as Error;
    throw new StartError(`A migration failed, and the database is as it was before: ${message}`, { cause });
  }
}

/** By the clock at each step: the transaction has one `now()`, and Prisma sorts by the start. */
async function applyScript(pool: pg.Pool, name: string): Promise<void> {
  const script = await readFile(new URL(`${name}/migration.sql`, migrations), 'utf8');
  const id = randomUUID();
  const checksum = createHash('sha256').update(script).digest('hex');
  await pool.query(
    `INSERT INTO _prisma_migrations (id, checksum, migration_name, started_at) VALUES ($1, $2, $3, clock_timestamp())`,
    [id, checksum, name],
  );
  await pool.query(script);
  await pool.query(
    `UPDATE _prisma_migrations SET finished_at = clock_timestamp(), applied_steps_count = 1 WHERE id = $1`,
    [id],
  );
}
