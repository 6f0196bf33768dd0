/** The settings that a connection lacks when its pooler drops those that it sent. */
import pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { missingSettings } from '../../src/store/postgres/settings.ts';
import { opened } from '../support/opened.ts';
import { openTestStores } from '../support/stores.ts';

const stores = opened(openTestStores);
const role = `stampede_settings_${process.pid}`;
beforeAll(async () => {
  await stores.sql.query(`CREATE ROLE ${role} LOGIN PASSWORD 'secret'`);
});
afterAll(() => stores.sql.query(`DROP ROLE ${role}`));

it("finds nothing missing on the service's own connections", async () => {
  const postgres = openPostgres(stores.databaseUrl, () => {});
  expect(await missingSettings(postgres.pool)).toEqual([]);
  await postgres.close();
});

it('names the statements that give the role what a pooler drops', async () => {
  const url = new URL(stores.databaseUrl);
  url.username = role;
  url.password = 'secret';
  const before = await connect(url.href);
  const statements = await missingSettings(before);
  expect(statements).toHaveLength(4);
  expect(statements.every((one) => one.startsWith(`ALTER ROLE ${role} SET `))).toBe(true); // a superuser may run them
  for (const statement of statements) await before.query(statement);
  await before.end();
  const after = await connect(url.href);
  expect(await missingSettings(after)).toEqual([]);
  await after.end();
});

/** A client, not a pool: a pool's end does not wait for its connections, and the database is dropped next. */
async function connect(connectionString: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString });
  await client.connect();
  return client;
}
