import { cpSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { expect, test } from 'vitest';
import { preparePostgresBinaries } from '../../src/local/postgres-binaries.ts';
import { prepareDataFolder } from '../../src/local/postgres-data.ts';
import { type PostgresServer, startPostgresServer } from '../../src/local/postgres-server.ts';
import { chooseAccount } from '../../src/local/server-account.ts';
import { FAST, query, quiet, temporaryFolder } from './support.ts';

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

test('leftovers of earlier runs do not keep a start out; a lost secret and another version do', async () => {
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
  writeFileSync(join(data, 'PG_VERSION'), '18\n');
  await expectKept(folder);
  rmSync(join(folder, 'secret'));
  const message = expect.stringContaining('secret');
  expect(await failure(folder)).toMatchObject({ code: 'folder-unusable', message });
});

test('damaged data: the error says the way out, and it is one', async () => {
  const parent = temporaryFolder();
  const [folder, redis] = [join(parent, 'postgres'), join(parent, 'redis')];
  await (await start(folder)).stop();
  mkdirSync(redis);
  for (const [damaged, garbage, code] of [
    ['global/pg_control', '', 'postgres-failed'],
    ['pg_wal', null, 'postgres-failed'],
    ['global/1260', 'x'.repeat(8_192), 'postgres-failed'], // the accounts
    ['PG_VERSION', null, 'folder-unusable'],
  ] as const) {
    const file = join(folder, 'data', damaged);
    renameSync(file, join(parent, 'kept'));
    if (garbage !== null) writeFileSync(file, garbage);
    const failed = await failure(folder);
    expect(failed.code, damaged).toBe(code);
    expect(failed.message).toContain(`delete ${folder} and ${redis} (or move them away)`);
    expect(failed.message).toContain('All sales, orders and points in it are then lost');
    if (code === 'postgres-failed') expect(failed.message).toContain(join(folder, 'postgres.log'));
    renameSync(join(parent, 'kept'), file);
  }
  for (const moved of [folder, redis]) renameSync(moved, `${moved}.damaged`);
  await (await start(folder)).stop();
});

test('a taken port is an error if requested; otherwise others are tried', async () => {
  const folder = temporaryFolder();
  const stranger = createServer((socket) => socket.destroy());
  await new Promise<void>((resolve) => stranger.listen(0, '127.0.0.1', resolve));
  const { port } = stranger.address() as { port: number };
  const log = join(folder, 'postgres.log');
  const bindFailures = () => readFileSync(log, 'utf8').split('could not bind IPv4').length - 1;

  await expect(startPostgresServer({ folder, port, args: FAST })).rejects.toMatchObject({
    code: 'port-taken',
    message: expect.stringContaining(String(port)),
  });
  expect(bindFailures()).toBe(1);
  // The argument overrides each port that is tried: all five are taken.
  const always = startPostgresServer({ folder, args: [...FAST, '-p', String(port)] });
  await expect(always).rejects.toMatchObject({ code: 'port-taken' });
  expect(bindFailures()).toBe(1 + 5);
  await new Promise((resolve) => stranger.close(resolve));
});

test('initdb runs below a folder with characters that its shell reads', async () => {
  const folder = join(temporaryFolder(), 'a "b" $HOME `c`');
  const { server, major } = await preparePostgresBinaries();
  const tree = join(folder, 'native');
  cpSync(server.tree, tree, { recursive: true, verbatimSymlinks: true });
  const path = join(tree, 'bin', 'postgres');
  const { account, program } = await chooseAccount({ server: 'Postgres', folder, program: { path, tree } });
  const data = await prepareDataFolder({
    folder,
    initdb: join(dirname(program), 'initdb'),
    major,
    account,
    password: 'p',
    sync: false,
    say: quiet,
  });
  expect(readFileSync(join(data, 'PG_VERSION'), 'utf8').trim()).toBe(String(major));
});
