import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { type PostgresServer, startPostgresServer } from '../../src/local/postgres-server.ts';
import { FAST, query, temporaryFolder } from './support.ts';

async function setting(server: PostgresServer, name: string): Promise<unknown> {
  return (await query(server.url(), `SHOW ${name}`))[0]?.[name];
}

const start = (folder: string) => startPostgresServer({ folder, args: FAST });

async function expectKept(folder: string): Promise<void> {
  const server = await start(folder);
  try {
    expect(await query(server.url(), 'SELECT value FROM kept')).toEqual([{ value: 1 }]);
  } finally {
    await server.stop();
  }
}

/** Starts that must fail. */
const failure = (folder: string) =>
  start(folder).then(
    (server) => server.stop().then(() => expect.unreachable()),
    (error: { code: string; message: string }) => error,
  );

test('serves Postgres 18 with the settings that the service relies on; SIGKILL of its pid loses nothing', async () => {
  const folder = temporaryFolder();
  const draft = join(folder, 'data.new-0badcafe', 'data'); // of a half-finished initdb
  mkdirSync(draft, { recursive: true });
  writeFileSync(join(draft, 'PG_VERSION'), '18\n');
  const server = await startPostgresServer({ folder });
  expect(readdirSync(folder).filter((name) => name.startsWith('data'))).toEqual(['data']);
  expect(await setting(server, 'server_version')).toMatch(/^18\./);
  expect(await setting(server, 'fsync')).toBe('on');
  expect(await setting(server, 'max_connections')).toBe('200');
  expect(await setting(server, 'server_encoding')).toBe('UTF8');
  expect(await setting(server, 'password_encryption')).toBe('scram-sha-256');
  expect(await setting(server, 'unix_socket_directories')).toBe('');
  expect(await query(server.url(), 'SELECT current_database() AS name')).toEqual([{ name: 'stampede' }]);
  const { code, message } = await failure(folder);
  expect([code, message]).toEqual(['folder-in-use', expect.stringContaining(`pid ${server.pid}`)]);
  await query(server.url(), 'CREATE TABLE kept AS SELECT 1 AS value');
  await server.kill();
  expect(await server.ended).toBe('signal SIGKILL');
  await expectKept(folder);
});

test('leftovers of earlier runs do not keep a start out; a lost secret, another version and damaged data do', async () => {
  const folder = temporaryFolder();
  const data = join(folder, 'data');
  const server = await start(folder);
  await query(server.url(), 'CREATE TABLE kept AS SELECT 1 AS value');
  await server.stop();
  // A dead process, another process (not our own: Postgres ignores its parent's pid), nothing, and garbage.
  const rest = `\n${data}\n1700000000\n5432\n\n127.0.0.1\n  1234567  7654321\nready   \n`;
  for (const left of [`4194000${rest}`, `${process.ppid}${rest}`, '', `not a pid${rest}`]) {
    writeFileSync(join(data, 'postmaster.pid'), left);
    await expectKept(folder);
  }
  writeFileSync(join(data, 'PG_VERSION'), '16\n');
  expect(await failure(folder)).toMatchObject({
    code: 'postgres-version',
    message: expect.stringContaining(`${data} was created by Postgres 16, but this is Postgres 18`),
  });
  rmSync(join(data, 'PG_VERSION'));
  const wayOut = expect.stringContaining(`delete ${folder}`);
  expect(await failure(folder)).toMatchObject({ code: 'folder-unusable', message: wayOut });
  writeFileSync(join(data, 'PG_VERSION'), '18\n');
  await expectKept(folder);
  rmSync(join(folder, 'secret'));
  const message = expect.stringContaining('secret');
  expect(await failure(folder)).toMatchObject({ code: 'folder-unusable', message });
});
