import { cpSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { preparePostgresBinaries } from '../../src/local/postgres-binaries.ts';
import { prepareDataFolder } from '../../src/local/postgres-data.ts';
import { type PostgresServer, startPostgresServer } from '../../src/local/postgres-server.ts';
import { chooseAccount } from '../../src/local/server-account.ts';
import { FAST, query, quiet, temporaryFolder } from './support.ts';

async function setting(server: PostgresServer, name: string): Promise<unknown> {
  return (await query(server.url(), `SHOW ${name}`))[0]?.[name];
}

/** A folder with one committed row in it, its server stopped. */
async function usedFolder(): Promise<string> {
  const folder = temporaryFolder();
  const server = await startPostgresServer({ folder, args: FAST });
  await query(server.url(), 'CREATE TABLE kept AS SELECT 1 AS value');
  await server.stop();
  return folder;
}

async function expectKept(folder: string): Promise<void> {
  const server = await startPostgresServer({ folder, args: FAST });
  try {
    expect(await query(server.url(), 'SELECT value FROM kept')).toEqual([{ value: 1 }]);
  } finally {
    await server.stop();
  }
}

test('serves Postgres 18 with the settings that the service relies on', async () => {
  const folder = temporaryFolder();
  const server = await startPostgresServer({ folder });
  expect(await setting(server, 'server_version')).toMatch(/^18\./);
  expect(await setting(server, 'fsync')).toBe('on');
  expect(await setting(server, 'max_connections')).toBe('200');
  expect(await setting(server, 'server_encoding')).toBe('UTF8');
  expect(await setting(server, 'password_encryption')).toBe('scram-sha-256');
  expect(await setting(server, 'unix_socket_directories')).toBe('');
  expect(await query(server.url(), 'SELECT current_database() AS name')).toEqual([{ name: 'stampede' }]);
  await server.stop();
});

test("the pid is the server's: SIGKILL ends it, and committed data survives", async () => {
  const folder = temporaryFolder();
  const server = await startPostgresServer({ folder });
  expect(readFileSync(join(folder, 'data', 'postmaster.pid'), 'utf8')).toMatch(
    new RegExp(`^${server.pid}\n`),
  );
  await query(server.url(), 'CREATE TABLE kept AS SELECT 1 AS value');
  await server.kill();
  expect(await server.ended).toBe('signal SIGKILL');
  await expectKept(folder);
});

test('a folder in use by a server is an error that names its pid', async () => {
  const folder = temporaryFolder();
  const server = await startPostgresServer({ folder, args: FAST });
  await expect(startPostgresServer({ folder, args: FAST })).rejects.toMatchObject({
    code: 'folder-in-use',
    message: expect.stringContaining(`pid ${server.pid}`),
  });
  await server.stop();
});

describe('leftovers of earlier runs', () => {
  test('a half-finished initdb is removed', async () => {
    const folder = temporaryFolder();
    const draft = join(folder, 'data.new-0badcafe', 'data');
    mkdirSync(draft, { recursive: true });
    writeFileSync(join(draft, 'PG_VERSION'), '18\n');
    const server = await startPostgresServer({ folder, args: FAST });
    await server.stop();
    expect(readdirSync(folder).filter((name) => name.startsWith('data'))).toEqual(['data']);
  });

  test.for([
    ['of a dead process', '4194000'],
    // Not our own pid: Postgres ignores its parent's.
    ['whose pid is another process by now', String(process.ppid)],
    ['that is empty', null],
    ['that is garbage', 'not a pid'],
  ] as const)('a postmaster.pid %s', async ([, pid]) => {
    const folder = await usedFolder();
    const data = join(folder, 'data');
    const rest = `${data}\n1700000000\n5432\n\n127.0.0.1\n  1234567  7654321\nready   \n`;
    writeFileSync(join(data, 'postmaster.pid'), pid === null ? '' : `${pid}\n${rest}`);
    await expectKept(folder);
  });

  test('data of another major version: the error names the folder, the data stays', async () => {
    const folder = await usedFolder();
    const data = join(folder, 'data');
    writeFileSync(join(data, 'PG_VERSION'), '16\n');
    await expect(startPostgresServer({ folder })).rejects.toMatchObject({
      code: 'postgres-version',
      message: expect.stringContaining(`${data} was created by Postgres 16, but this is Postgres 18`),
    });
    writeFileSync(join(data, 'PG_VERSION'), '18\n');
    await expectKept(folder);
  });

  test.for([
    ['pg_control is empty', 'global/pg_control', 'postgres-failed'],
    ['the log of changes is gone', 'pg_wal', 'postgres-failed'],
    ['the accounts are garbage', 'global/1260', 'postgres-failed'],
    ['PG_VERSION is gone', 'PG_VERSION', 'folder-unusable'],
  ] as const)('damaged data, %s: the error says the way out, and it is one', async ([, damaged, code]) => {
    const parent = temporaryFolder();
    const folder = join(parent, 'postgres');
    await (await startPostgresServer({ folder, args: FAST })).stop();
    mkdirSync(join(parent, 'redis'));
    const file = join(folder, 'data', damaged);
    if (damaged.startsWith('global')) writeFileSync(file, damaged.endsWith('1260') ? 'x'.repeat(8_192) : '');
    else rmSync(file, { recursive: true });
    const failure = await startPostgresServer({ folder, args: FAST }).then(
      (server) => server.stop().then(() => null),
      (error: { code: string; message: string }) => error,
    );
    expect(failure?.code).toBe(code);
    const message = failure?.message ?? '';
    const redis = join(parent, 'redis');
    expect(message).toContain(`delete ${folder} and ${redis} (or move them away)`);
    expect(message).toContain('All sales, orders and points in it are then lost');
    if (code === 'postgres-failed') expect(message).toContain(join(folder, 'postgres.log'));
    for (const moved of [folder, redis]) renameSync(moved, `${moved}.damaged`);
    await (await startPostgresServer({ folder, args: FAST })).stop();
  });

  test('a lost secret: the error says which file', async () => {
    const folder = await usedFolder();
    rmSync(join(folder, 'secret'));
    await expect(startPostgresServer({ folder, args: FAST })).rejects.toMatchObject({
      code: 'folder-unusable',
      message: expect.stringContaining('secret'),
    });
  });
});

describe('a taken port', () => {
  test('is an error if requested; otherwise others are tried', async () => {
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
