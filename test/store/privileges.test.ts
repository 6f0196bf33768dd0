/** The role of the service reads and writes rows, and may do nothing else. */

import { readFileSync } from 'node:fs';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { withPostgres } from '../../lab/servers/stores.ts';
import { SERVICE_ROLE, serviceUrlOf } from '../../src/local/postgres-roles.ts';
import { migrateStores } from '../../src/service/startup.ts';
import { missingGrants } from '../../src/store/postgres/privileges.ts';
import { childrenOf } from '../support/nemesis.ts';
import { opened } from '../support/opened.ts';
import { spawnService } from '../support/service.ts';
import { openDatabase, openTestStores } from '../support/stores.ts';

const stores = opened(openTestStores);
const at = withPostgres;
/** The owner of a database, who is no superuser. */
const name = `privileges_${process.pid}`;
const urls = { owner: '', service: '' };

beforeAll(() => stores.sql.query(`CREATE ROLE ${name} LOGIN PASSWORD 'secret'`));
afterAll(() => stores.sql.query(`DROP ROLE IF EXISTS ${name}`));
/** It is not migrated yet. */
const database = opened(() => openDatabase(`OWNER ${name}`));
beforeAll(() => {
  urls.service = serviceUrlOf(database.url);
  urls.owner = Object.assign(new URL(database.url), { username: name, password: 'secret' }).href;
});

/** Each table with what the role may do. */
const PRIVILEGES = `
  SELECT c.relname AS name, string_agg(p, ' ' ORDER BY p) FILTER (WHERE has_table_privilege($1, c.oid, p)) AS privileges
  FROM pg_class c, unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER,MAINTAIN}'::text[]) p
  WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace GROUP BY c.relname`;
const privilegesAt = (url: string) =>
  at(url, async (client) => {
    const { rows } = await client.query<{ name: string; privileges: string | null }>(PRIVILEGES, [
      SERVICE_ROLE,
    ]);
    return Object.fromEntries(rows.map((row) => [row.name, row.privileges]));
  });

describe('the role of the service', () => {
  it('may read and write the rows of every table, and nothing else', async () => {
    const { _prisma_migrations, audit_log, audit_pending, ...tables } = await privilegesAt(stores.ownerUrl);
    expect(_prisma_migrations).toBe('SELECT');
    expect(audit_log).toBe('INSERT SELECT');
    expect(audit_pending).toBe('DELETE INSERT SELECT');
    expect(Object.keys(tables).length).toBeGreaterThan(8);
    expect(new Set(Object.values(tables))).toEqual(new Set(['DELETE INSERT SELECT UPDATE']));
  });

  it('is no superuser, and may not change what exists', async () => {
    const query = (text: string) => at(stores.databaseUrl, (client) => client.query(text));
    const { rows } = await query(
      'SELECT rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls FROM pg_roles WHERE rolname = current_user',
    );
    expect(new Set(Object.values(rows[0]!))).toEqual(new Set([false]));
    for (const statement of [
      'ALTER TABLE sales DROP CONSTRAINT sales_sold_within_stock',
      'CREATE TABLE mine (a int)',
      'CREATE OR REPLACE FUNCTION before_deadline(deadline timestamptz) RETURNS integer LANGUAGE sql AS $$ SELECT 1 $$',
      "COPY sales TO PROGRAM 'cat'",
      "SELECT pg_read_file('/etc/passwd')",
    ])
      await expect(query(statement), statement).rejects.toMatchObject({ code: '42501' });
  });
});

describe('a start with two roles', () => {
  const lines: string[] = [];
  const log = pino({ level: 'info' }, { write: (line: string) => lines.push(line) });
  /** What a start does before it serves. */
  const prepare = (databaseUrl: string, migrationDatabaseUrl: string | null = null) =>
    migrateStores(
      { databaseUrl, migrationDatabaseUrl, redisUrl: stores.redisUrl },
      { events: [], migrate: 'auto', cellDatabaseUrls: [] },
      log,
    );
  const refusal = (databaseUrl: string, migrationDatabaseUrl: string | null = null): Promise<string> =>
    prepare(databaseUrl, migrationDatabaseUrl).then(
      () => 'none',
      (error: Error) => (error.name === 'StartError' ? error.message : String(error)),
    );

  it('is refused as long as nothing has migrated the database', async () => {
    const said = await refusal(urls.service);
    expect(said).toMatch(/lacks the migrations \S+_init.*, and its user may not create tables/);
    expect(said).toContain('Set MIGRATION_DATABASE_URL to the role that owns the tables.');
  });

  it('migrates as the owner and grants the rest, once', async () => {
    await prepare(urls.service, urls.owner);
    expect(lines.join('')).toContain('Applied database migrations');
    expect(lines.join('')).not.toContain('superuser');
    expect(await privilegesAt(urls.owner)).toEqual(await privilegesAt(stores.ownerUrl));
    await at(urls.owner, async (owner) => expect(await missingGrants(owner, SERVICE_ROLE)).toEqual([]));
  });

  it('needs the role of the service alone from then on; with MIGRATION_DATABASE_URL, its workers do', async () => {
    await prepare(urls.service);
    const env = { REDIS_URL: stores.redisUrl, DATABASE_URL: urls.service, WORKERS: '2' };
    await using service = await spawnService({ ...env, MIGRATION_DATABASE_URL: urls.owner });
    expect((await fetch(`${service.url}/readyz`)).status).toBe(200);
    const workers = childrenOf(service.process.pid!).map((pid) =>
      readFileSync(`/proc/${pid}/environ`, 'utf8'),
    );
    expect(workers.filter((environment) => environment.includes(urls.service))).toHaveLength(2);
    expect(workers.filter((environment) => environment.includes(urls.owner))).toEqual([]);
  });

  it('says what the role of the service lacks, and what to run', async () => {
    await at(urls.owner, async (owner) => {
      await owner.query(`REVOKE UPDATE, DELETE ON orders FROM ${SERVICE_ROLE}`);
      await owner.query(`REVOKE USAGE ON SEQUENCE tasks_id_seq FROM ${SERVICE_ROLE}`);
    });
    const statements = (await refusal(urls.service)).split('\n').filter((line) => line.startsWith('  GRANT'));
    expect(statements).toEqual([
      `  GRANT UPDATE, DELETE ON orders TO ${SERVICE_ROLE};`,
      `  GRANT USAGE ON SEQUENCE tasks_id_seq TO ${SERVICE_ROLE};`,
    ]);
    await at(urls.owner, (owner) => owner.query(statements.join('')));
    expect(await refusal(urls.service)).toBe('none');
  });
});
