import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { withRedis } from '../../lab/servers/stores.ts';
import { findMarked } from '../../src/local/processes.ts';
import { findRedisServer, startRedisServer } from '../../src/local/redis-server.ts';
import { temporaryFolder } from './support.ts';

test('serves with the settings that the service relies on, whoever has the password, which no command line shows', async () => {
  const folder = temporaryFolder();
  const server = await startRedisServer({ folder, password: 'pa"ss\\word' });
  const config = (name: string) =>
    withRedis(server.url, async (redis) => ((await redis.config('GET', name)) as string[])[1]);
  expect(await config('appendonly')).toBe('yes');
  expect(await config('appendfsync')).toBe('everysec');
  expect(await config('maxmemory-policy')).toBe('noeviction');
  expect(await config('save')).toBe('');
  expect(await config('bind')).toBe('127.0.0.1');
  expect(readFileSync(`/proc/${server.pid}/cmdline`, 'utf8')).not.toContain('word');
  const stranger = execFileSync('sh', ['-c', `redis-cli -p ${server.port} ping`], { encoding: 'utf8' });
  expect(stranger).toContain('NOAUTH');
  const message = expect.stringContaining(`pid ${server.pid}`);
  await expect(startRedisServer({ folder })).rejects.toMatchObject({ code: 'folder-in-use', message });
  await server.stop();
});

test('a server that version 1.0.0 started keeps its folder', async () => {
  const folder = temporaryFolder();
  const { path } = (await findRedisServer())!;
  // Without a socket it would listen nowhere, and end at once.
  const args = [
    '--port',
    '0',
    '--unixsocket',
    'socket',
    '--set-proc-title',
    'no',
    '--syslog-ident',
    join(folder, 'redis.conf'),
  ];
  const old = spawn(path, args, { cwd: folder, stdio: 'ignore' });
  const ended = once(old, 'exit');
  await expect.poll(() => findMarked(folder)).toHaveLength(1); // a new process has no command line for a moment
  const message = expect.stringContaining(`pid ${old.pid}`);
  const starting = startRedisServer({ folder });
  await expect(starting)
    .rejects.toMatchObject({ code: 'folder-in-use', message })
    .finally(() => old.kill('SIGKILL'));
  await ended;
});

test('stop and SIGKILL both keep the data; the port can be kept too', async () => {
  const folder = temporaryFolder();
  const first = await startRedisServer({ folder });
  await withRedis(first.url, (redis) => redis.set('a', '1'));
  await first.stop();
  expect(await first.ended).toBe('exit code 0');
  const second = await startRedisServer({ folder, port: first.port });
  expect(second.port).toBe(first.port);
  await withRedis(second.url, (redis) => redis.set('b', '2'));
  await second.kill();
  expect(await second.ended).toBe('signal SIGKILL');
  const third = await startRedisServer({ folder, port: first.port });
  expect(await withRedis(third.url, (redis) => redis.mget('a', 'b'))).toEqual(['1', '2']);
  await third.stop();
});

test('a taken port that the caller asked for is an error; without one, others are tried; who took it is sent nothing', async () => {
  const folder = temporaryFolder();
  let sent = '';
  const stranger = createServer((socket) => {
    socket
      .on('error', () => {})
      .on('data', (bytes) => {
        sent += bytes;
      });
  });
  await new Promise<void>((resolve) => stranger.listen(0, '127.0.0.1', resolve));
  const { port } = stranger.address() as { port: number };
  const starts = () =>
    readFileSync(join(folder, 'redis.log'), 'utf8').split('Configuration loaded').length - 1;
  await expect(startRedisServer({ folder, port, password: 'secret' })).rejects.toMatchObject({
    code: 'port-taken',
  });
  expect(starts()).toBe(1);
  const always = startRedisServer({ folder, args: ['--port', String(port)] });
  await expect(always).rejects.toMatchObject({ code: 'port-taken' });
  expect(starts()).toBe(1 + 5);
  expect(sent).toBe('');
  await new Promise((resolve) => stranger.close(resolve));
});
