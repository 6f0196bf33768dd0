/** What the promises need of a connection, on databases and roles that are configured otherwise, and behind a pooler. */
import pino from 'pino';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { temporaryFolder } from '../../lab/kit/temporary-folder.ts';
import {
  findPgBouncer,
  keepsStatements,
  openPgBouncer,
  type PgBouncer,
} from '../../lab/servers/pgbouncer.ts';
import { withPostgres } from '../../lab/servers/stores.ts';
import { migrateStores } from '../../src/service/startup.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { saleTable } from '../../src/store/postgres/sales.ts';
import { opened } from '../support/opened.ts';
import { openTestStores } from '../support/stores.ts';

const stores = opened(openTestStores);
const role = `stampede_settings_${process.pid}`;
const databases: string[] = [];
beforeAll(async () => {
  await stores.sql.query(`CREATE ROLE ${role} LOGIN PASSWORD 'secret'`);
});
afterAll(async () => {
  for (const name of databases) await stores.sql.query(`DROP DATABASE ${name} WITH (FORCE)`);
  await stores.sql.query(`DROP OWNED BY ${role}`);
  await stores.sql.query(`DROP ROLE ${role}`);
});

/** A new database. @param how after CREATE DATABASE and its name @returns its URL for a superuser */
async function database(how: string, ...settings: string[]): Promise<string> {
  const name = `settings_${process.pid}_${databases.length}`;
  await stores.sql.query(`CREATE DATABASE ${name} ${how}`);
  databases.push(name);
  for (const setting of settings) await stores.sql.query(`ALTER DATABASE ${name} SET ${setting}`);
  return Object.assign(new URL(stores.ownerUrl), { pathname: `/${name}` }).href;
}
const like = (url: string, search: string) => Object.assign(new URL(url), { search }).href;
const asRole = (url: string) => Object.assign(new URL(url), { username: role, password: 'secret' }).href;
const SALE = { name: 's', stock: 1, priceCents: 1, startsAt: null, endsAt: null };
const log = pino({ level: 'silent' });
/** What a start does before it serves. */
const refusal = (databaseUrl: string, migrationDatabaseUrl: string | null = null): Promise<string> =>
  migrateStores(
    { databaseUrl, migrationDatabaseUrl, redisUrl: null },
    { events: [], migrate: 'auto', cellDatabaseUrls: [] },
    log,
  ).then(
    () => 'none',
    (error: Error) => (error.name === 'StartError' ? error.message : String(error)),
  );
async function session(url: string, name: string): Promise<unknown> {
  await using postgres = disposable(url);
  return (await postgres.pool.query('SELECT current_setting($1) AS value', [name])).rows[0].value;
}
function disposable(url: string) {
  const postgres = openPostgres(url, () => {});
  return { ...postgres, [Symbol.asyncDispose]: () => postgres.close() };
}

describe('a connection has what the promises need, on a database that sets', () => {
  it.each([
    ["datestyle = 'German'", 'datestyle', 'ISO, MDY'],
    ['client_min_messages = error', 'client_min_messages', 'warning'],
    ["default_transaction_isolation = 'serializable'", 'transaction_isolation', 'read committed'],
    ['synchronous_commit = off', 'synchronous_commit', 'on'],
    ['synchronous_commit = remote_write', 'synchronous_commit', 'on'],
    ['extra_float_digits = -15', 'extra_float_digits', '1'],
    ["statement_timeout = '1h'", 'statement_timeout', '3s'],
    ['enable_seqscan = on', 'enable_seqscan', 'off'],
    ['jit = on', 'jit', 'off'],
    ["stampede.events = 'order.paid'", 'stampede.events', ''],
  ])('%s', async (setting, name, value) => {
    const url = await database('TEMPLATE stampede_template', setting);
    expect(await session(url, name)).toBe(value);
    expect(await refusal(url)).toBe('none');
  });

  it('a date style other than ISO reads instants as they are', async () => {
    await using postgres = disposable(await database('TEMPLATE stampede_template', "datestyle = 'German'"));
    const at = '2030-01-01T00:00:00.000Z';
    const sale = await saleTable(postgres, 'USD').create({ ...SALE, startsAt: at });
    expect(sale.startsAt).toBe(at);
  });

  it('options of the URL stay, and add to those of the service', async () => {
    const url = like(stores.ownerUrl, 'options=-c geqo=off -c synchronous_commit=remote_apply');
    expect(await session(url, 'geqo')).toBe('off');
    expect(await session(url, 'synchronous_commit')).toBe('remote_apply');
    expect(await session(url, 'enable_seqscan')).toBe('off');
    expect(await refusal(url)).toBe('none');
  });
});

it('two first starts at once migrate once under a default isolation of REPEATABLE READ', async () => {
  const url = await database('TEMPLATE template0', "default_transaction_isolation = 'repeatable read'");
  expect(await Promise.all([refusal(url), refusal(url), refusal(url)])).toEqual(['none', 'none', 'none']);
});

describe('a start is refused, and says what to do,', () => {
  it('on a database that is not UTF8', async () => {
    const said = await refusal(await database("ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"));
    expect(said).toContain('The database has the encoding LATIN1');
    expect(said).toContain("ENCODING 'UTF8'");
  });

  it.each([
    'options=-c synchronous_commit=local',
    'statement_timeout=0',
    'options=-c session_replication_role=replica',
  ])('with a URL that asks for less: %s', async (search) => {
    const name = /(\w+)=\w+$/.exec(search)![1]!;
    const said = await refusal(like(stores.ownerUrl, search));
    expect(said).toMatch(new RegExp(`DATABASE_URL or the role .*: ${name} = '`));
    expect(said).toContain(`SET ${name} = `);
  });

  it('where search_path leads to another schema than the URL', async () => {
    const url = await database('TEMPLATE template0', 'search_path = shop');
    expect(await refusal(url)).toContain('Add schema=public to DATABASE_URL');
    await withPostgres(url, (client) => client.query('CREATE SCHEMA shop'));
    expect(await refusal(url)).toContain('Add schema=shop to DATABASE_URL');
  });
});

it('a role that may not use the schema public yet is given that by the role that migrates', async () => {
  const url = await database('TEMPLATE template0');
  await withPostgres(url, (client) => client.query('REVOKE ALL ON SCHEMA public FROM PUBLIC'));
  expect(await refusal(asRole(url), url)).toBe('none');
});

it('?schema= has the tables, and every statement, in a schema of that name', async () => {
  const url = like(await database('TEMPLATE template0'), 'schema=shop');
  expect(await refusal(url)).toBe('none');
  expect(await refusal(url)).toBe('none');
  await using postgres = disposable(url);
  const sales = saleTable(postgres, 'USD');
  const { id } = await sales.create(SALE);
  expect(await sales.change(id, { name: 't' })).toMatchObject({ name: 't' }); // by Prisma
  const tables = `SELECT schemaname AS schema, count(*)::int > 10 AS many FROM pg_tables
    WHERE schemaname IN ('public', 'shop') GROUP BY 1`;
  expect((await postgres.pool.query(tables)).rows).toEqual([{ schema: 'shop', many: true }]);
});

const program = findPgBouncer();
describe.skipIf(program === null)(`behind PgBouncer${program ? '' : ' (missing: install pgbouncer)'}`, () => {
  /** That keep no prepared statements. */
  const settings = () => ({
    pool_mode: 'transaction',
    ...(keepsStatements(program!) && { max_prepared_statements: '0' }), // older ones do not know it
  });
  async function refusalBehind(
    own: Readonly<Record<string, string>>,
    url = stores.ownerUrl,
  ): Promise<string> {
    const folder = await temporaryFolder('stampede-test-pgbouncer-');
    await using server: PgBouncer = await openPgBouncer(program!, asRole(url), folder, own);
    return await refusal(server.url, url);
  }

  it('a start names the statements that give the role what the pooler drops', async () => {
    const said = await refusalBehind({ pool_mode: 'session' });
    expect(said).toContain('A pooler drops the settings that a connection sends');
    const statements = said.match(/ALTER ROLE \S+ SET .*(?=;)/g)!;
    expect(statements.map((one) => / SET (\S+)/.exec(one)![1])).toContain('enable_seqscan');
    await withPostgres(asRole(stores.ownerUrl), async (client) => {
      for (const statement of statements) await client.query(statement);
    });
    expect(await refusalBehind({ pool_mode: 'session' })).toBe('none');
  });

  it('the statement for the schema of a URL names that schema', async () => {
    const url = await database('TEMPLATE template0');
    const start = () => refusalBehind({ pool_mode: 'session' }, like(url, 'schema=shop'));
    const [statement] = /ALTER ROLE \S+ SET search_path = .*(?=;)/.exec(await start())!;
    await stores.sql.query(statement);
    expect(await start()).toBe('none');
    await stores.sql.query(`ALTER ROLE ${role} RESET search_path`);
  });

  it('a pooler that keeps no prepared statements is refused', async () => {
    expect(await refusalBehind(settings())).toContain('PgBouncer 1.21 or later with max_prepared_statements');
  });
});
