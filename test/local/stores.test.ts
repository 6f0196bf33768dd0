import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { withRedis } from '../../lab/servers/stores.ts';
import { type LocalStores, startLocalStores } from '../../src/local/stores.ts';
import { readStoreUrls } from '../../src/local/urls.ts';
import { bySize } from '../support/tier.ts';
import {
  expectNoProcessOn,
  processesOn,
  query,
  quiet,
  spawnService,
  temporaryFolder,
  untilUp,
} from './support.ts';

const start = (folder: string, say: (line: string) => void = quiet) =>
  startLocalStores({ folder, postgres: true, redis: true, say });

type Urls = { migrationDatabaseUrl: string | null; redisUrl: string | null };

async function write(stores: Urls, value: number): Promise<void> {
  await query(stores.migrationDatabaseUrl!, 'CREATE TABLE IF NOT EXISTS kept (value int)');
  await query(stores.migrationDatabaseUrl!, `INSERT INTO kept VALUES (${value})`);
  await withRedis(stores.redisUrl!, (redis) => redis.sadd('kept', value));
}

async function read(stores: Urls): Promise<{ postgres: unknown[]; redis: string[] }> {
  const rows = await query(stores.migrationDatabaseUrl!, 'SELECT value FROM kept ORDER BY value');
  const redis = await withRedis(stores.redisUrl!, (client) => client.smembers('kept'));
  return { postgres: rows.map((row) => row.value), redis: redis.sort() };
}

async function expectKept(folder: string, values: number[]): Promise<void> {
  const stores = await start(folder);
  try {
    expect(await read(stores)).toEqual({ postgres: values, redis: values.map(String) });
  } finally {
    await stores.stop();
  }
}

/** The pid of the shell that stops the servers of a killed service. */
function watcherOn(folder: string): number {
  const isShell = (pid: number) => readFileSync(`/proc/${pid}/cmdline`, 'utf8').startsWith('/bin/sh\0');
  return processesOn(folder).find(isShell)!;
}

describe('start and stop', () => {
  test('one of many has the folder, keeps the data over a restart, and publishes the addresses to its owner only', async () => {
    const folder = temporaryFolder();
    const said: string[] = [];
    const results = await Promise.allSettled([1, 2, 3].map(() => start(folder, (line) => said.push(line))));
    const winners = results.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
    expect(winners).toHaveLength(1);
    const [stores] = winners as [LocalStores];
    await expect(start(folder)).rejects.toMatchObject({
      code: 'folder-in-use',
      message: expect.stringMatching(new RegExp(`pid ${process.pid}\\).*DATABASE_URL and REDIS_URL`)),
    });
    await write(stores, 1);

    const { databaseUrl, migrationDatabaseUrl, redisUrl } = stores;
    const urls = [databaseUrl!, migrationDatabaseUrl!, redisUrl!];
    const passwords = urls.map((url) => new URL(url).password);
    expect(new Set(passwords).size).toBe(3);
    expect(statSync(join(folder, 'secret')).mode & 0o777).toBe(0o600);
    const guess = urls.map((url) => Object.assign(new URL(url), { password: 'guess' }).href);
    await expect(query(guess[0]!, 'SELECT 1')).rejects.toThrow(/password/);
    const guessing = withRedis(guess[2]!, (redis) => redis.get('x'));
    await expect(guessing).rejects.toThrow();

    expect(readStoreUrls(folder)).toEqual({ databaseUrl, migrationDatabaseUrl, redisUrl });
    const file = join(folder, 'stores.env');
    expect(statSync(file).mode & 0o777).toBe(0o600);
    const ask = `. '${file}' && redis-cli -u "$REDIS_URL" ping && echo $DATABASE_URL $REDIS_URL && env`;
    const echoed = execFileSync('sh', ['-c', ask], { encoding: 'utf8' }).split('\n');
    expect(echoed.slice(0, 2)).toEqual(['PONG', `${databaseUrl} ${redisUrl}`]);
    expect(echoed.filter((line) => /^(DATABASE|REDIS)_URL=/.test(line))).toEqual([]);

    const info = await withRedis(stores.redisUrl!, (redis) => redis.info('server'));
    process.kill(Number(/process_id:(\d+)/.exec(info)?.[1]), 'SIGKILL');
    await expect.poll(() => said.join('\n')).toMatch(/Redis exited unexpectedly \(signal SIGKILL\)/);
    const stopped = stores.stop();
    await expectKept(folder, [1]); // the next start waits for a service that is stopping
    await stopped;
    await stores.stop();
    expect(processesOn(folder)).toEqual([]);
    expect(readStoreUrls(folder)).toEqual({ databaseUrl: null, migrationDatabaseUrl: null, redisUrl: null });
  });

  test('starts only the requested stores, and touches nothing if none is', async () => {
    const folder = temporaryFolder();
    const stores = await startLocalStores({ folder, postgres: false, redis: true, say: quiet });
    expect(stores.databaseUrl).toBeNull();
    expect(await withRedis(stores.redisUrl!, (redis) => redis.ping())).toBe('PONG');
    expect(readdirSync(join(folder, 'postgres'))).toEqual([]);
    await stores.stop();
    const untouched = join(folder, 'untouched');
    const none = await startLocalStores({ folder: untouched, postgres: false, redis: false, say: quiet });
    expect(none).toMatchObject({ databaseUrl: null, redisUrl: null });
    await none.stop();
    expect(existsSync(untouched)).toBe(false);
  });

  test('a failing Postgres stops Redis too, and its own message is shown', async () => {
    const folder = temporaryFolder();
    const postgresArgs = ['-c', 'no_such_setting=1'];
    const failing = startLocalStores({ folder, postgres: true, redis: true, say: quiet, postgresArgs });
    await expect(failing).rejects.toMatchObject({
      code: 'postgres-failed',
      message: expect.stringContaining('unrecognized configuration parameter "no_such_setting"'),
    });
    expect(processesOn(folder)).toEqual([]);
  });
});

describe('crashes', () => {
  test('SIGKILL of the service: its servers, in other process groups, stop gracefully, and the next start waits', async () => {
    const folder = temporaryFolder();
    const service = spawnService(folder);
    await write(await untilUp(service), 1);
    const group = (pid: number) => {
      const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
      return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[2]);
    };
    const others = processesOn(folder).filter((pid) => pid !== service.pid);
    expect(others.length).toBeGreaterThanOrEqual(3); // watcher, Postgres, Redis
    expect(others.map(group)).not.toContain(service.pid); // a Ctrl-C does not reach them
    service.process.kill('SIGKILL');
    await service.exited;
    await expectKept(folder, [1]);
  });

  test('SIGKILL of the service and its watcher: the next start stops the orphans first', async () => {
    const folder = temporaryFolder();
    const service = spawnService(folder);
    const stores = await untilUp(service);
    await write(stores, 1);
    process.kill(watcherOn(folder), 'SIGKILL');
    service.process.kill('SIGKILL');
    await service.exited;
    await write(stores, 2); // the orphans still serve
    expect(processesOn(folder).length).toBeGreaterThanOrEqual(2);
    const lines: string[] = [];
    const next = await start(folder, (line) => lines.push(line));
    expect(lines.join('\n')).toMatch(/Stopping an orphaned Postgres.*\n?.*/);
    expect(lines.join('\n')).toMatch(/Stopping an orphaned Redis/);
    expect(await read(next)).toEqual({ postgres: [1, 2], redis: ['1', '2'] });
    await next.stop();
    expect(processesOn(folder)).toEqual([]);
  });

  test('after a SIGKILL of the watcher the servers go on and keep the folder, and stop() stops them', async () => {
    const folder = temporaryFolder();
    const stores = await start(folder);
    process.kill(watcherOn(folder), 'SIGKILL');
    await write(stores, 1);
    await expect(start(folder)).rejects.toMatchObject({ code: 'folder-in-use' });
    await stores.stop();
    expect(processesOn(folder)).toEqual([]);
  });

  test('SIGKILL of the service before its watcher knows of a server leaves none', async () => {
    const folder = temporaryFolder();
    await spawnService(folder, [], new URL('./killed-service.ts', import.meta.url)).exited;
    await expectNoProcessOn(folder);
  });

  // Spread over the whole start: before initdb, in initdb, while the servers start, when up.
  test.for(
    bySize({ core: [450], full: [30, 450, 1050], nightly: [30, 250, 450, 650, 850, 1050, 1300, 1700] }),
  )('Ctrl-C %d ms into the first start leaves nothing', async (base) => {
    const folder = temporaryFolder();
    const service = spawnService(folder);
    await new Promise((resolve) => setTimeout(resolve, base + Math.random() * 150));
    process.kill(-service.pid, 'SIGINT');
    await service.exited;
    await expectNoProcessOn(folder);
    const stores = await start(folder);
    await write(stores, 1);
    expect(await read(stores)).toEqual({ postgres: [1], redis: ['1'] });
    await stores.stop();
  });
});
