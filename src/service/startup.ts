/** Finds the stores of a service: those that the configuration names, and local ones in place of the others. */
import pg from 'pg';
import type { Logger } from 'pino';
import type { Config } from '../config/env.ts';
import { StartError } from '../config/errors.ts';
import { serversOf } from '../config/urls/hosts.ts';
import { LocalStoreError } from '../local/errors.ts';
import { startLocalStores } from '../local/stores.ts';
import { LOCAL_FOLDER } from '../local/urls.ts';
import { tlsAdvice } from '../store/failures/tls-advice.ts';
import { checkCells } from '../store/postgres/cells.ts';
import { missingOnServer } from '../store/postgres/check-server.ts';
import { checkMigrated, migrate } from '../store/postgres/migrate.ts';
import { serverOf } from '../store/postgres/pool.ts';
import { missingGrants } from '../store/postgres/privileges.ts';

export { migrate };

export interface StoreUrls {
  readonly databaseUrl: string;
  /** Null: the service runs on Postgres alone. */
  readonly redisUrl: string | null;
}

interface FoundStores extends StoreUrls {
  /** null: the role of `databaseUrl` migrates. */
  readonly migrationDatabaseUrl: string | null;
}

const isWithoutRedis = (error: unknown): error is LocalStoreError =>
  error instanceof LocalStoreError &&
  ['redis-missing', 'redis-install-failed', 'redis-too-old'].includes(error.code);

/**
 * Starts local stores where none are named: a Redis only where a setting needs it.
 * @param onStarted receives what stops them
 * @throws LocalStoreError also when there is no Redis to start, naming what needs it
 */
export async function findStores(
  { databaseUrl, migrationDatabaseUrl, redisUrl, postgresAlone, localRedis, localRedisFor }: Config,
  log: Logger,
  onStarted: (stop: () => Promise<unknown>) => void,
): Promise<FoundStores> {
  const local = await startLocalStores({
    folder: LOCAL_FOLDER,
    postgres: databaseUrl === null,
    redis: redisUrl === null && !postgresAlone,
    installRedis: localRedis,
    say: (line) => log.info(line),
  }).catch((error) => {
    if (!isWithoutRedis(error)) throw error;
    const instead = `Redis is for ${localRedisFor.join(', ')}; without, the service runs on Postgres alone`;
    throw new LocalStoreError(error.code, `${error.message}\n${instead}`, { cause: error });
  });
  onStarted(() => local.stop());
  return {
    databaseUrl: databaseUrl ?? local.databaseUrl!,
    migrationDatabaseUrl: databaseUrl === null ? local.migrationDatabaseUrl : migrationDatabaseUrl,
    redisUrl: redisUrl ?? local.redisUrl,
  };
}

/** What a start and the command `migrate` report. */
export type MigrationLog = Readonly<
  Record<'info' | 'warn', (details: Readonly<Record<string, unknown>>, message: string) => void>
>;

/** Before a service starts: migrates the stores, and checks which cell each Postgres is. @throws StartError as `migrateStores`, `checkCells` */
export async function prepareStores(
  found: FoundStores,
  config: MigrationConfig,
  log: MigrationLog,
): Promise<void> {
  await migrateStores(found, config, log);
  await checkCells([found.databaseUrl, ...config.cellDatabaseUrls], config.migrate !== 'never');
}

type MigrationConfig = Pick<Config, 'events' | 'migrate' | 'cellDatabaseUrls'>;

/**
 * Checks each server, applies the migrations as the role that owns the tables, and gives the role of the service what it needs. With
 * MIGRATE=never it writes nothing. The service's role migrates the cells.
 * @throws StartError also when the server or its settings cannot be used, or the role of the service lacks a privilege
 */
export async function migrateStores(
  found: FoundStores,
  config: MigrationConfig,
  log: MigrationLog,
): Promise<void> {
  await migrateStore('DATABASE_URL', found, config, log);
  for (const databaseUrl of config.cellDatabaseUrls)
    await migrateStore('CELL_DATABASE_URLS', { databaseUrl, migrationDatabaseUrl: null }, config, log);
}

async function migrateStore(
  variable: 'DATABASE_URL' | 'CELL_DATABASE_URLS',
  { databaseUrl, migrationDatabaseUrl: ownerUrl }: Omit<FoundStores, 'redisUrl'>,
  { events, migrate: when }: MigrationConfig,
  log: MigrationLog,
): Promise<void> {
  const migrationDatabaseUrl = when === 'never' ? null : ownerUrl;
  await checkServer(variable, databaseUrl, events);
  if (migrationDatabaseUrl !== null) await checkServer('MIGRATION_DATABASE_URL', migrationDatabaseUrl);
  const asService = <T>(work: (client: pg.Pool) => Promise<T>) =>
    reach('Postgres', variable, databaseUrl, () => withPool(databaseUrl, work));
  const { role, isSuperuser } = await asService(roleOf);
  if (isSuperuser) {
    const message = `The service uses a superuser of Postgres: name another role in ${variable}, and this one in MIGRATION_DATABASE_URL`;
    log.warn({ role }, message);
  }
  const { applied, newer } =
    migrationDatabaseUrl === null
      ? await reach('Postgres', variable, databaseUrl, () =>
          (when === 'never' ? checkMigrated : migrate)(databaseUrl),
        )
      : await reach('Postgres', 'MIGRATION_DATABASE_URL', migrationDatabaseUrl, () =>
          migrate(migrationDatabaseUrl, role),
        );
  if (applied.length > 0) log.info({ applied }, 'Applied database migrations');
  if (newer.length > 0) {
    const message =
      'A newer version has migrated the database. CHANGELOG.md says whether this version can run beside it; to upgrade: git pull && npm install';
    log.warn({ migrations: newer }, message);
  }
  const grants = await asService((pool) => missingGrants(pool, null));
  if (grants.length === 0) return;
  throw new StartError(
    `The role ${role} of ${variable} lacks privileges. Run as the owner of the tables:\n${grants.map((grant) => `  ${grant};`).join('\n')}\nOr set MIGRATION_DATABASE_URL to the owner, and the start does this.`,
  );
}

/** @throws StartError */
async function checkServer(variable: string, url: string, events: readonly string[] = []): Promise<void> {
  const missing = await reach('Postgres', variable, url, () => missingOnServer(url, events));
  if (missing.length === 0) return;
  const list = missing.map((text) => `\n- ${text.replaceAll('DATABASE_URL', variable)}`).join('');
  throw new StartError(
    `Postgres at ${serversOf(url)} is not as the service needs it (docs/reference/configuration.md, "Settings of Postgres"):${list}`,
  );
}

export async function withPool<T>(
  databaseUrl: string,
  work: (pool: pg.Pool) => Promise<T>,
  max = 1,
): Promise<T> {
  const pool = new pg.Pool({ ...serverOf(databaseUrl), max, connectionTimeoutMillis: 10_000 });
  pool.on('error', () => {}); // the query in progress fails as well
  return work(pool).finally(() => pool.end());
}

interface Role {
  readonly role: string;
  readonly isSuperuser: boolean;
  /** Of the server. */
  readonly version: string;
  /** Settings that are off, and without which committed orders are lost when the machine fails, such as "fsync"; null: none. */
  readonly lossy: string | null;
}

export async function roleOf(pool: pg.Pool): Promise<Role> {
  const { rows } = await pool.query<Role>(
    `SELECT rolname AS role, rolsuper AS "isSuperuser", current_setting('server_version') AS version, (
       SELECT string_agg(name, ', ' ORDER BY name) FROM pg_settings WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off') AS lossy
     FROM pg_roles WHERE rolname = current_user`,
  );
  return rows[0]!;
}

/** @throws StartError naming the variable, without its password, when a store cannot be used */
export async function reach<T>(
  store: string,
  variable: string,
  url: string,
  connect: () => Promise<T>,
): Promise<T> {
  try {
    return await connect();
  } catch (cause) {
    if (cause instanceof StartError) throw cause;
    const message = (cause as Error).message || String((cause as { code?: unknown }).code ?? cause);
    const or = /^(DATABASE|REDIS)_URL$/.test(variable) ? `, or leave it empty to start a local ${store}` : '';
    throw new StartError(
      `Cannot use ${store} at ${serversOf(url)}: ${message}\n${poolerAdvice(cause) ?? tlsAdvice(variable, url, cause) ?? `Check ${variable}${or}.`}`,
      {
        cause,
      },
    );
  }
}

/** PgBouncer answers so to a startup parameter that it neither forwards nor is to ignore. */
function poolerAdvice(error: unknown): string | null {
  if ((error as { readonly code?: string }).code !== '08P01') return null;
  return 'A pooler is in front of Postgres. docs/how-to/deploy.md, "Prepare the stores", has its settings, such as ignore_startup_parameters.';
}
