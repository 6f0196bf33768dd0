/** `npm run check-server`: what it says about servers, roles, settings and poolers, and that it leaves nothing behind. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { temporaryFolder } from '../../lab/kit/temporary-folder.ts';
import { findPgBouncer, keepsStatements, openPgBouncer } from '../../lab/servers/pgbouncer.ts';
import { withPostgres } from '../../lab/servers/stores.ts';
import { choices } from '../../src/service/core.ts';
import { opened } from '../support/opened.ts';
import { entryOf, runCommand } from '../support/service.ts';
import { openDatabase } from '../support/stores.ts';

const database = opened(() => openDatabase(''));
const name = `check_server_${process.pid}`;
const query = (text: string) => withPostgres(database.url, (client) => client.query(text));
beforeAll(() =>
  query(
    `CREATE ROLE ${name} LOGIN PASSWORD 'secret'; ALTER DATABASE ${database.name} SET datestyle = 'German'`,
  ),
);
afterAll(() => query(`DROP ROLE ${name}`));
const asRole = () => Object.assign(new URL(database.url), { username: name, password: 'secret' }).href;

/** Its lines by check: the result, and what it found. */
async function check(url: string, env: Readonly<Record<string, string>> = {}) {
  const run = await runCommand('check-server', env, [url]);
  if (process.env.SHOW === '1')
    console.log(`${url.replace(/:[^:@]*@/, ':…@')}\n${run.out}${run.err}exit code ${run.code}`);
  const rows = [...run.out.matchAll(/^(\S.{29})(ok|problem)\b *(.*)$/gm)].map(
    ([, label, result, found]) => [label!.trim(), `${result} ${found}`.trim()] as const,
  );
  return { ...run, rows: Object.fromEntries(rows) };
}
const tables = async (): Promise<unknown> => {
  const { rows } = await query(
    `SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' UNION ALL SELECT tablename FROM pg_tables WHERE schemaname = 'public'`,
  );
  return rows.map(({ nspname }) => nspname).sort();
};

it('a server on which every strategy sells passes, whatever the date style of the database, and keeps nothing of it', async () => {
  const before = await tables();
  const { code, rows } = await check(database.url);
  expect(rows).toEqual({
    'server and settings': expect.stringMatching(
      /^ok Postgres \d+\.\d+.*, role stampede; off, .*: fsync, full_page_writes$/,
    ),
    'tables and rights': 'ok no tables yet; the role may create them',
    isolation: 'ok a statement that waited for a row sees its new version',
    timeouts: 'ok statement_timeout and lock_timeout end a statement',
    latency: expect.stringMatching(/^(ok|problem) round trip \d+\.\d\d ms, commit \d+\.\d\d ms/),
    ...Object.fromEntries(choices.withoutRedis.strategies.map((strategy) => [`a sale by ${strategy}`, 'ok'])),
  });
  expect(code).toBe(rows.latency!.startsWith('ok') ? 0 : 1); // a busy machine commits slowly
  expect(await tables()).toEqual(before);
});

it('a signal ends it after the check in progress, and its schema is dropped', async () => {
  const before = await tables();
  const command = spawn(process.execPath, [entryOf('check-server'), database.url], {
    env: { PATH: process.env.PATH },
  });
  const ended = once(command, 'exit');
  await expect.poll(tables).not.toEqual(before);
  command.kill('SIGTERM');
  expect(await ended).toEqual([143, null]);
  expect(await tables()).toEqual(before);
});

it('a role with too few rights is told what to run', async () => {
  const { code, rows, out } = await check(asRole());
  expect(code).toBe(1);
  expect(Object.values(rows).map((row) => row.split(' ')[0])).toEqual(['ok', 'problem', 'problem']);
  expect(out).toContain('the role may not create tables. Run npm run migrate with MIGRATION_DATABASE_URL');
  expect(out).toContain('The role may not create a schema. Run this with the URL of the owner, too');
});

it('a server that cannot be reached is an error', async () => {
  const { code, err } = await check('postgresql://u:hunter2@127.0.0.1:1/x');
  expect(code).toBe(2);
  expect(err).toContain('Cannot use Postgres at 127.0.0.1:1/x');
  expect(err).not.toContain('hunter2');
});

const program = findPgBouncer();
describe.skipIf(program === null)(`behind PgBouncer${program ? '' : ' (missing: install pgbouncer)'}`, () => {
  it('a pooler that keeps neither settings nor prepared statements is told apart', async () => {
    const folder = await temporaryFolder('stampede-test-pgbouncer-');
    await using pooler = await openPgBouncer(program!, database.url, folder, {
      pool_mode: 'transaction',
      ...(keepsStatements(program!) && { max_prepared_statements: '0' }),
    });
    const { code, out, rows } = await check(pooler.url, {
      EVENTS: 'order.paid,order.placed',
      EVENT_WEBHOOK_URL: 'http://127.0.0.1:1',
    });
    expect(code).toBe(1);
    expect(rows['server and settings']).toMatch(/^problem/);
    expect(out).toContain('A pooler drops the settings that a connection sends');
    expect(out).toMatch(/SET stampede\.events = '?order\.paid,order\.placed/);
    expect(out).toContain('The pooler does not keep prepared statements');
  });
});
