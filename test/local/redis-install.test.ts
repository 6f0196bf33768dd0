import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ensureRedisServer, findRedisServer } from '../../src/local/redis-server.ts';
import { temporaryFolder } from './support.ts';

const NOWHERE = { path: '/nonexistent', folders: [] };

function program(path: string, script: string): void {
  writeFileSync(path, `#!/bin/sh\n${script}\n`);
  chmodSync(path, 0o755);
}

test("finds this machine's Redis, and none where there is none", async () => {
  expect(await findRedisServer()).toMatchObject({ version: expect.stringMatching(/^\d+\.\d+\.\d+$/) });
  expect(await findRedisServer(NOWHERE)).toBeNull();
});

test.for([
  ['Debian without root', 'linux', 1000, 'ID=debian', 'sudo apt-get install redis-server'],
  ['Fedora', 'linux', 0, 'ID=fedora', 'sudo dnf install redis || sudo dnf install valkey'],
  ['macOS without Homebrew', 'darwin', 501, '', 'brew install redis'],
  ['an unknown system', 'freebsd', 0, '', null],
] as const)('%s: the error has the exact command', async ([, platform, uid, osRelease, command]) => {
  await expect(ensureRedisServer({ ...NOWHERE, platform, uid, osRelease })).rejects.toMatchObject({
    code: 'redis-missing',
    message: expect.stringMatching(
      command === null ? 'REDIS_URL' : `Install it with: ${command.replaceAll('|', '\\|')}\n.*REDIS_URL`,
    ),
  });
});

test('an outdated server is named with its version; a newer one beside it is used', async () => {
  const folder = temporaryFolder();
  program(join(folder, 'redis-server'), 'echo "Redis server v=5.0.7 sha=00000000:0 malloc=libc bits=64"');
  await expect(findRedisServer({ path: folder, folders: [] })).rejects.toMatchObject({
    code: 'redis-too-old',
    message: expect.stringContaining(`${folder}/redis-server is version 5.0.7`),
  });
  program(join(folder, 'valkey-server'), 'echo "Valkey server v=8.0.1 sha=00000000:0 malloc=libc bits=64"');
  const path = join(folder, 'valkey-server');
  expect(await findRedisServer({ path: folder, folders: [] })).toEqual({ path, version: '8.0.1' });
});

test('one of several services installs Redis; the others wait for it', async () => {
  const folder = temporaryFolder();
  const real = await findRedisServer();
  const count = join(folder, 'count');
  program(
    join(folder, 'brew'),
    `echo "$@" >> ${count}; /bin/sleep 0.5; /bin/ln -s ${real?.path} ${folder}/redis-server`,
  );
  const said: string[] = [];
  const options = {
    path: folder,
    folders: [],
    platform: 'darwin' as const,
    say: (line: string) => said.push(line),
  };
  const found = await Promise.all([1, 2, 3].map(() => ensureRedisServer(options)));
  for (const { path } of found) expect(path).toBe(join(folder, 'redis-server'));
  expect(readFileSync(count, 'utf8')).toBe('install redis\n');
  expect(said).toEqual([
    'Redis is not installed: running brew install redis (once). To refuse, set LOCAL_REDIS=never, or name your own Redis in REDIS_URL',
    `Installed Redis ${real?.version} (${folder}/redis-server)`,
  ]);
});

test('LOCAL_REDIS=never installs nothing, and names the command', async () => {
  const folder = temporaryFolder();
  program(join(folder, 'brew'), `echo "$@" > ${folder}/ran`);
  const said: string[] = [];
  const say = (line: string) => said.push(line);
  const options = { path: folder, folders: [], platform: 'darwin' as const, say };
  await expect(ensureRedisServer({ ...options, install: 'never' })).rejects.toMatchObject({
    code: 'redis-missing',
    message: expect.stringMatching(/Install it with: brew install redis\n.*REDIS_URL/),
  });
  expect(said).toEqual([]);
  expect(existsSync(join(folder, 'ran'))).toBe(false);
});
