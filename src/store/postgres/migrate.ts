/**
 * Applies prisma/migrations with Prisma's own schema engine, compiled to WebAssembly, so no binary has to be downloaded. It fills
 * `_prisma_migrations` as `prisma migrate deploy` does; both can be used on one database.
 *
 * Everything runs on one connection in one transaction: the lock, the scripts and the engine's bookkeeping. A start that is
 * killed halfway leaves nothing behind. Of several processes that start at once, one applies while the others wait, and then find
 * nothing to do. (A migration can therefore not use CREATE INDEX CONCURRENTLY.)
 */
import { readdir, readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { PrismaPg } from '@prisma/adapter-pg';
import { bindMigrationAwareSqlAdapterFactory } from '@prisma/driver-adapter-utils';
import type * as EngineModule from '@prisma/schema-engine-wasm';
import pg from 'pg';
import { StartError } from '../../config/errors.ts';
import { type History, historyOf, refuseForeignTables } from './migration-history.ts';
import { addressOf, prismaOptions, serverOf } from './pool.ts';
import { missingGrants } from './privileges.ts';

// Node 20's types declare the namespace and not the value.
declare const WebAssembly: {
  instantiate(
    bytes: Uint8Array,
    imports: object,
  ): Promise<{ instance: { exports: { __wbindgen_start(): void } } }>;
};

const root = fileURLToPath(new URL('../../../prisma/', import.meta.url));
/** The key of the advisory lock; an arbitrary constant. */
const MIGRATION_LOCK = 7_261_737;

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
  // One connection, never closed while idle: it has the transaction.
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
    // The timeouts are those of the service.
    for (const timeout of ['statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout'])
      await pool.query(`SET LOCAL ${timeout} = 0`);
    await pool.query('SELECT pg_advisory_xact_lock($1)', [MIGRATION_LOCK]);
    await createSchema(pool, addressOf(databaseUrl).schema);
    const { pending, newer } = await readHistory(pool);
    const applied = pending.length === 0 ? [] : await apply(pool, databaseUrl);
    const grants = serviceRole === null ? [] : await missingGrants(pool, serviceRole);
    for (const grant of grants) await pool.query(grant);
    await pool.query('COMMIT');
    return { applied, newer };
  } finally {
    await pool.end(); // rolls back what was not committed
  }
}

async function createSchema(pool: pg.Pool, schema: string | null): Promise<void> {
  if (schema === null) return;
  const { rows } = await pool.query<{ missing: boolean }>(
    `SELECT NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1) AS missing`,
    [schema],
  );
  if (rows[0]!.missing) await pool.query(`CREATE SCHEMA "${schema}"`);
}

async function readHistory(pool: pg.Pool): Promise<History> {
  const names = await migrationNames();
  const { rows } = await pool.query<{ known: boolean; readable: boolean | null; creates: boolean | null }>(
    `SELECT known IS NOT NULL AS known, has_table_privilege(known, 'SELECT') AS readable,
       has_schema_privilege(current_schema(), 'CREATE') AS creates
     FROM to_regclass('_prisma_migrations') AS known`,
  );
  const { known, readable, creates } = rows[0]!;
  const refuse = (what: string) =>
    new StartError(`${what} Set MIGRATION_DATABASE_URL to the role that owns the tables.`);
  if (known && !readable) throw refuse('The database user may not read the table _prisma_migrations.');
  if (!known) await refuseForeignTables(pool);
  const history = known ? await historyOf(pool, names) : { pending: names, newer: [] };
  const { pending } = history;
  if (pending.length > 0 && !creates)
    throw refuse(
      `The database lacks the migrations ${pending.join(', ')}, and its user may not create tables.`,
    );
  return history;
}

async function migrationNames(): Promise<string[]> {
  const entries = await readdir(`${root}migrations`, { withFileTypes: true });
  return entries
    .filter((entry) => entry.isDirectory())
    .map((entry) => entry.name)
    .sort();
}

async function apply(pool: pg.Pool, databaseUrl: string): Promise<readonly string[]> {
  const { SchemaEngine } = await loadEngine();
  const schema = await readFile(`${root}schema.prisma`, 'utf8');
  const scripts = new WholeScripts(pool, databaseUrl);
  const adapter = bindMigrationAwareSqlAdapterFactory(scripts);
  const engine = await SchemaEngine.new({ datamodels: [['schema.prisma', schema]] }, () => {}, adapter);
  try {
    const migrationDirectories = await Promise.all((await migrationNames()).map(readMigration));
    const { appliedMigrationNames } = await engine.applyMigrations({
      migrationsList: {
        baseDir: `${root}migrations`,
        lockfile: {
          path: 'migration_lock.toml',
          content: await readFile(`${root}migrations/migration_lock.toml`, 'utf8'),
        },
        shadowDbInitScript: '',
        migrationDirectories,
      },
      filters: { externalTables: [], externalEnums: [] },
    });
    return appliedMigrationNames;
  } catch (error) {
    // The engine's own message is a trace of its modules.
    const cause = scripts.failure ?? (error as Error);
    throw new StartError(`A migration failed, and the database is as it was before: ${cause.message}`, {
      cause,
    });
  } finally {
    engine.free();
  }
}

async function readMigration(name: string) {
  const value = await readFile(`${root}migrations/${name}/migration.sql`, 'utf8');
  return { path: name, migrationFile: { path: 'migration.sql', content: { tag: 'ok' as const, value } } };
}

/** The adapter cuts a script at every semicolon, also inside comments and functions; Postgres reads it whole. */
class WholeScripts extends PrismaPg {
  /** What Postgres said of the script that failed. */
  failure: Error | null = null;
  readonly #pool: pg.Pool;
  constructor(pool: pg.Pool, databaseUrl: string) {
    super(pool, prismaOptions(databaseUrl));
    this.#pool = pool;
  }
  override async connect() {
    const adapter = await super.connect();
    adapter.executeScript = async (script) => {
      await this.#pool.query(script).catch((error: Error) => {
        this.failure = error;
        throw error;
      });
    };
    return adapter;
  }
}

let engineModule: Promise<typeof EngineModule> | undefined;
/** One instance for the process: the glue code keeps it in a variable, and timers of an engine outlive the engine. */
function loadEngine(): Promise<typeof EngineModule> {
  engineModule ??= instantiateEngine();
  return engineModule;
}

/**
 * The package's own entry imports a `.wasm` file as a module, which Node 20 does not do without a flag; its glue
 * code is exported, and is given the instance here.
 */
async function instantiateEngine(): Promise<typeof EngineModule> {
  const require = createRequire(import.meta.url);
  const gluePath = require.resolve('@prisma/schema-engine-wasm/schema_engine_bg');
  const glue = await import('@prisma/schema-engine-wasm/schema_engine_bg');
  const bytes = await readFile(gluePath.replace(/\.js$/, '.wasm'));
  const { instance } = await WebAssembly.instantiate(bytes, { './schema_engine_bg.js': glue });
  glue.__wbg_set_wasm(instance.exports);
  instance.exports.__wbindgen_start();
  return glue as unknown as typeof EngineModule;
}
