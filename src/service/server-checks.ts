/**
 * Checks a Postgres, or a pooler in front of one, before a service uses it.
 *
 *   server and settings ──as needed──▶ tables and rights ──▶ in a new schema, which is dropped at the end:
 *                                                            isolation, timeouts, latency, a sale by each strategy
 */
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { missingOnServer } from '../store/postgres/check-server.ts';
import { migrationsOf } from '../store/postgres/migrate.ts';
import { missingGrants } from '../store/postgres/privileges.ts';
import { choices } from './core.ts';
import { saleProblems } from './sale-check.ts';
import { migrate, reach, roleOf, withPool } from './startup.ts';

export interface Check {
  readonly name: string;
  /** Such as the version. */
  readonly found: string;
  /** What is wrong, and what to do about it; empty: nothing. */
  readonly problems: readonly string[];
}
type Finding = Omit<Check, 'name'>;

/** Commits slower than this leave no time for an attempt: 70 % of ADMISSION_MS. */
const SLOW_COMMIT_MS = 70;
const ok = (found: string): Finding => ({ found, problems: [] });
const problem = (text: string): Finding => ({ found: '', problems: [text] });

/**
 * Runs the checks one after the other; those of behavior only when the server and its settings are as needed.
 * @param events the EVENTS of the service
 * @param signal ends after the check in progress
 * @throws StartError when the server cannot be reached
 */
export async function* checkDatabase(
  databaseUrl: string,
  events: readonly string[],
  signal: AbortSignal,
): AsyncGenerator<Check> {
  const server = await reach('Postgres', 'DATABASE_URL', databaseUrl, () =>
    serverAndSettings(databaseUrl, events),
  );
  yield { name: 'server and settings', ...server };
  yield await named('tables and rights', () => tablesAndRights(databaseUrl));
  if (server.problems.length > 0) return;
  const schema = `check_server_${randomBytes(6).toString('hex')}`;
  const scratch = await named('a schema for the other checks', () => createScratch(databaseUrl, schema));
  try {
    if (scratch.problems.length > 0) return yield scratch;
    for (const check of behaviors(withSchema(databaseUrl, schema))) {
      if (signal.aborted) return;
      yield await check();
    }
  } finally {
    await withPool(databaseUrl, (pool) => pool.query(`DROP SCHEMA IF EXISTS ${schema} CASCADE`));
  }
}

function behaviors(url: string): (() => Promise<Check>)[] {
  const strategies = choices.withoutRedis.strategies.map(
    (strategy) => () =>
      named(`a sale by ${strategy}`, async () => ({
        found: '',
        problems: await saleProblems(url, strategy),
      })),
  );
  return [
    () => named('isolation', () => withPool(url, isolation, 2)),
    () => named('timeouts', () => withPool(url, timeouts, 2)),
    () => named('latency', () => withPool(url, latency)),
    ...strategies,
  ];
}

/** An error is a problem. */
async function named(name: string, check: () => Promise<Finding>): Promise<Check> {
  return { name, ...(await check().catch((error: Error) => problem(error.message))) };
}

async function serverAndSettings(url: string, events: readonly string[]): Promise<Finding> {
  const problems = await missingOnServer(url, events);
  const { role, version, lossy } = await withPool(url, roleOf);
  const warning = lossy === null ? '' : `; off, so that orders are lost when the machine fails: ${lossy}`;
  return { found: `Postgres ${version}, role ${role}${warning}`, problems };
}

async function tablesAndRights(url: string): Promise<Finding> {
  const { known, creates, pending } = await migrationsOf(url);
  if (pending.length > 0 && !creates)
    return problem(
      `${pending.length} migrations are missing, and the role may not create tables. Run npm run migrate with MIGRATION_DATABASE_URL, the URL of the role that owns the database.`,
    );
  if (!known) return ok('no tables yet; the role may create them');
  const grants = await withPool(url, (pool) => missingGrants(pool, null));
  return {
    found: pending.length === 0 ? 'every migration is applied' : `${pending.length} migrations to apply`,
    problems:
      grants.length === 0 ? [] : [`The role lacks privileges. Run as the owner:\n${grants.join(';\n')};`],
  };
}

/** @param url of any form */
const withSchema = (url: string, schema: string): string => {
  const bare = url.replace(/([?&])schema=[^&]*&?/, '$1').replace(/[?&]$/, '');
  return `${bare}${bare.includes('?') ? '&' : '?'}schema=${schema}`;
};

/** With the tables of the service, and one of these checks. */
async function createScratch(databaseUrl: string, schema: string): Promise<Finding> {
  const url = withSchema(databaseUrl, schema);
  try {
    await withPool(databaseUrl, (pool) => pool.query(`CREATE SCHEMA ${schema}`));
  } catch (error) {
    if ((error as pg.DatabaseError).code !== '42501') throw error;
    return problem(
      'The role may not create a schema. Run this with the URL of the owner, too: the checks of isolation, timeouts, latency and sales need a schema, which they drop.',
    );
  }
  const { rows } = await withPool(url, (pool) => pool.query<{ is: string }>('SELECT current_schema() AS is'));
  if (rows[0]!.is !== schema)
    return problem(
      'The pooler drops search_path, so the checks of isolation, timeouts, latency and sales cannot have a schema of their own. Run this with the URL of Postgres itself, too.',
    );
  await migrate(url);
  await withPool(url, (pool) => pool.query('CREATE TABLE check_server AS SELECT 1 AS id, 1 AS units'));
  return ok('');
}

const TAKE = 'UPDATE check_server SET units = units - 1 WHERE id = 1 AND units > 0';

/** Runs `work` while another transaction holds the row, and has taken its last unit. */
async function besideHolder<T>(
  pool: pg.Pool,
  work: (other: pg.PoolClient, commit: () => Promise<unknown>) => Promise<T>,
) {
  const [holder, other] = await Promise.all([pool.connect(), pool.connect()]);
  try {
    await holder.query('UPDATE check_server SET units = 1');
    await holder.query('BEGIN');
    await holder.query(TAKE);
    await other.query('BEGIN');
    return await work(other, () => holder.query('COMMIT'));
  } finally {
    for (const client of [holder, other]) client.release(true); // rolls back
  }
}

const isolation = (pool: pg.Pool): Promise<Finding> =>
  besideHolder(pool, async (other, commit) => {
    const waiting = other.query(TAKE).then(
      ({ rowCount }) => `${rowCount} rows`,
      (error: pg.DatabaseError) => `error ${error.code}`,
    );
    await sleep(200); // time to wait for the row
    await commit();
    const result = await waiting;
    return result === '0 rows'
      ? ok('a statement that waited for a row sees its new version')
      : problem(
          `A statement that waited for a row ended with ${result}, not with the new version of the row: the server has another isolation than Postgres's READ COMMITTED.`,
        );
  });

async function timeouts(pool: pg.Pool): Promise<Finding> {
  const codeOf = (client: pg.PoolClient, setting: string, statement: string) =>
    client.query(`SET LOCAL ${setting} = 100`).then(() =>
      client.query(statement).then(
        () => 'none',
        ({ code }: pg.DatabaseError) => code,
      ),
    );
  const codes = await besideHolder(pool, async (other) => {
    const statement = await codeOf(other, 'statement_timeout', 'SELECT pg_sleep(10)');
    await other.query('ROLLBACK; BEGIN');
    return { statement, lock: await codeOf(other, 'lock_timeout', TAKE) };
  });
  if (codes.statement === '57014' && codes.lock === '55P03')
    return ok('statement_timeout and lock_timeout end a statement');
  return problem(
    `A statement beyond statement_timeout ended with the error ${codes.statement}, one beyond lock_timeout with ${codes.lock}; 57014 and 55P03 are needed.`,
  );
}

async function latency(pool: pg.Pool): Promise<Finding> {
  const trip = await medianMs(100, () => pool.query('SELECT 1'));
  const commit = await medianMs(30, () => pool.query('UPDATE check_server SET units = 1'));
  const found = `round trip ${trip.toFixed(2)} ms, commit ${commit.toFixed(2)} ms (medians)`;
  const slow = `A commit takes longer than ${SLOW_COMMIT_MS} ms, so most attempts are answered busy. Move the service nearer to Postgres, use a disk that flushes faster, or raise ADMISSION_MS.`;
  return { found, problems: commit > SLOW_COMMIT_MS ? [slow] : [] };
}

async function medianMs(times: number, work: () => Promise<unknown>): Promise<number> {
  const taken: number[] = [];
  for (let n = 0; n < times; n++) {
    const startedMs = performance.now();
    await work();
    taken.push(performance.now() - startedMs);
  }
  return taken.sort((a, b) => a - b)[Math.floor(times / 2)]!;
}
