/** Compares a Postgres with what the service needs of it: its version, its encoding, its settings and what is between. */
import pg from 'pg';
import { limits } from '../../config/limits.ts';
import { addressOf, serverOf } from './pool.ts';
import { isAsNeeded, neededSettings } from './settings.ts';

/** The oldest version that the Postgres project maintains, and the oldest that the tests run on. */
const OLDEST = 15;

interface Session {
  readonly version: number;
  readonly encoding: string;
  /** The first of search_path. A role that may not use `public` yet is given that by the migration. */
  readonly schema: string | null;
  readonly role: string;
  readonly pid: number;
}

/**
 * Reads back what a connection needs, and writes nothing.
 * @returns what is missing, each with what to do about it; empty: nothing @throws what Postgres throws
 */
export async function missingOnServer(
  databaseUrl: string,
  events: readonly string[] = [],
): Promise<readonly string[]> {
  const pool = new pg.Pool({
    ...serverOf(databaseUrl, events),
    max: 2,
    connectionTimeoutMillis: limits.postgresConnectMs,
  });
  pool.on('error', () => {}); // the query in progress fails as well
  const { schema } = addressOf(databaseUrl);
  try {
    const client = await pool.connect();
    try {
      const session = await readSession(client);
      // A pooler gives a connection a number of its own.
      const isPooled = (client as unknown as { readonly processID: number }).processID !== session.pid;
      return [
        ...wrongServer(session, schema),
        ...(await wrongSettings(client, neededSettings({ schema, events }), session.role, isPooled)),
        ...(isPooled && !(await keepsStatements(client, pool)) ? [NO_STATEMENTS] : []),
      ];
    } finally {
      client.release();
    }
  } finally {
    await pool.end();
  }
}

async function readSession(client: pg.ClientBase): Promise<Session> {
  const { rows } = await client.query<Session>(
    `SELECT current_setting('server_version_num')::int / 10000 AS version, current_setting('server_encoding') AS encoding,
       coalesce(current_schema(), CASE WHEN 'public' = ANY (path) THEN 'public' END) AS schema,
       quote_ident(current_user) AS role, pg_backend_pid() AS pid
     FROM string_to_array(translate(current_setting('search_path'), '" ', ''), ',') AS path`,
  );
  return rows[0]!;
}

/** @param wanted the schema that the URL names */
function wrongServer({ version, encoding, schema }: Session, wanted: string | null): string[] {
  const wrong: string[] = [];
  if (version < OLDEST)
    wrong.push(`The server is Postgres ${version}. Upgrade it to Postgres ${OLDEST} or later.`);
  if (encoding !== 'UTF8')
    wrong.push(
      `The database has the encoding ${encoding}, which lacks most characters. Create another with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0, and restore a dump of this one into it.`,
    );
  if (wanted === null && schema !== 'public')
    wrong.push(
      schema === null
        ? 'The search_path of the role names no schema that exists. Add schema=public to DATABASE_URL, or the schema of the tables.'
        : `The search_path of the role begins with the schema ${schema}. Add schema=${schema} to DATABASE_URL to have the tables there, or schema=public.`,
    );
  return wrong;
}

async function wrongSettings(
  client: pg.ClientBase,
  needed: Readonly<Record<string, string>>,
  role: string,
  isPooled: boolean,
): Promise<string[]> {
  const { rows } = await client.query<{ name: string; value: string }>(
    `SELECT needed.name, coalesce(s.setting, current_setting(needed.name, true), '') AS value
     FROM unnest($1::text[]) WITH ORDINALITY AS needed (name, position)
       LEFT JOIN pg_settings AS s ON lower(s.name) = needed.name
     ORDER BY position`,
    [Object.keys(needed)],
  );
  const wrong = rows.filter(({ name, value }) => !isAsNeeded(name, value, needed[name]!));
  if (wrong.length === 0) return [];
  const found = wrong.map(({ name, value }) => `${name} = '${value}'`).join(', ');
  // A list in quotes would be one name with quotes.
  const literal = (name: string) => (name === 'search_path' ? needed[name] : `'${needed[name]}'`);
  const statements = wrong.map(({ name }) => `\n  ALTER ROLE ${role} SET ${name} = ${literal(name)};`);
  const cause = isPooled
    ? 'A pooler drops the settings that a connection sends, and the role has others'
    : 'DATABASE_URL or the role has settings with which the service cannot keep its promises';
  const mend = isPooled
    ? 'Run as this role, or as a superuser where it may not, and then RECONNECT in the pooler:'
    : 'Remove them from the URL, or run as this role, or as a superuser where it may not:';
  return [`${cause}: ${found}. ${mend}${statements.join('')}`];
}

const NO_STATEMENTS =
  "The pooler does not keep prepared statements: a statement that one client prepared is another client's. Use PgBouncer 1.21 or later with max_prepared_statements above 0, or pool_mode = session.";

/**
 * Two clients prepare different statements under one name, and execute them in an order in which a pooler that gives each
 * transaction any connection gives one of them the other's, or a connection without.
 */
async function keepsStatements(first: pg.ClientBase, pool: pg.Pool): Promise<boolean> {
  const second = await pool.connect();
  try {
    for (const client of [first, second, second, first, first, second, first, second]) {
      const said = client === first ? 'first' : 'second';
      const statement = { name: 'check-server', text: `SELECT '${said}' AS said` };
      const { rows } = await client.query<{ said: string }>(statement);
      if (rows[0]?.said !== said) return false;
    }
    return true;
  } catch (error) {
    if (!(error instanceof pg.DatabaseError) || !PREPARED.has(error.code ?? '')) throw error;
    return false;
  } finally {
    second.release(true);
  }
}
/** A prepared statement that does not exist, or exists already. */
const PREPARED = new Set(['26000', '42P05']);
