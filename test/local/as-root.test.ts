/** Started as root, the local stores run as other accounts. Elsewhere these tests are skipped: only root can change accounts. */
import { chownSync, existsSync, mkdirSync, mkdtempSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { describe, expect, test } from 'vitest';
import { startPostgresServer } from '../../src/local/postgres-server.ts';
import { startRedisServer } from '../../src/local/redis-server.ts';
import {
  expectNobodyOn,
  FAST,
  idsOf,
  isLinux,
  isRoot,
  processesOn,
  query,
  spawnService,
  temporaryFolder,
  untilUp,
} from './support.ts';

/** Of an account that every Linux has. */
const DAEMON = 1;
const programOf = (pid: number) => readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')[0]!;
const gives = (folder: string, uid: number) => chownSync(folder, uid, uid);

async function withRedis<T>(url: string, use: (redis: Redis) => Promise<T>): Promise<T> {
  const redis = new Redis(url, { retryStrategy: () => null });
  return use(redis).finally(() => redis.disconnect());
}

describe.runIf(isRoot && isLinux)('as root (skipped without root: only root can change accounts)', () => {
  test('neither store runs as root, and root keeps no group in them', async () => {
    const folder = temporaryFolder();
    const service = spawnService(folder, ['setpriv', '--groups', '4,20']);
    await untilUp(service);
    expect(idsOf(service.pid).groups).toEqual([4, 20]);
    const servers = processesOn(folder).filter((pid) =>
      /postgres$|redis-server$|valkey-server$/.test(programOf(pid)),
    );
    expect(servers).toHaveLength(2);
    for (const pid of servers) {
      const { uids, gids, groups } = idsOf(pid);
      for (const id of [...uids, ...gids]) expect(id, programOf(pid)).toBeGreaterThan(0);
      expect(groups).toEqual([]);
    }
    for (const name of ['postgres', 'redis']) {
      const { uid, mode } = statSync(join(folder, name));
      expect(servers.map((pid) => idsOf(pid).uids[0])).toContain(uid);
      expect(mode & 0o077).toBe(0);
    }
    service.process.kill('SIGKILL');
    await expectNobodyOn(folder, 20_000);
  });

  test('Redis takes over the data of an earlier run as root', async () => {
    const folder = join(temporaryFolder(), 'redis');
    const first = await startRedisServer({ folder });
    await withRedis(first.url, (redis) => redis.set('kept', 'yes'));
    const { uids } = idsOf(first.pid);
    await first.stop();
    const aof = join(folder, 'appendonlydir');
    for (const path of [folder, aof, join(aof, 'appendonly.aof.1.incr.aof')]) gives(path, 0);
    const second = await startRedisServer({ folder });
    expect(await withRedis(second.url, (redis) => redis.get('kept'))).toBe('yes');
    expect(await withRedis(second.url, (redis) => redis.bgrewriteaof())).toContain('started');
    expect(idsOf(second.pid).uids).toEqual(uids);
    expect(statSync(aof).uid).toBe(uids[0]);
    await second.stop();
  });

  test("Postgres takes over root's data; where the folder has an owner, as that one", async () => {
    const parent = temporaryFolder();
    const folder = join(parent, 'postgres');
    const first = await startPostgresServer({ folder, args: FAST });
    await query(first.url(), 'CREATE TABLE kept AS SELECT 1 AS value');
    await first.stop();
    gives(parent, DAEMON);
    for (const path of [folder, join(folder, 'data')]) gives(path, 0);
    const second = await startPostgresServer({ folder, args: FAST });
    expect(new Set(idsOf(second.pid).uids)).toEqual(new Set([DAEMON]));
    expect(await query(second.url(), 'SELECT value FROM kept')).toEqual([{ value: 1 }]);
    expect(statSync(join(folder, 'data', 'PG_VERSION')).uid).toBe(DAEMON);
    await second.stop();
  });

  test.each([
    ['Postgres', 'DATABASE_URL', (folder: string) => startPostgresServer({ folder })],
    ['Redis', 'REDIS_URL', (folder: string) => startRedisServer({ folder })],
  ] as const)(
    '%s, in a closed folder: names the accounts, what keeps them out, and the remedies',
    async (_name, variable, start) => {
      const closed = mkdtempSync(join(temporaryFolder(), 'closed-'));
      const folder = join(closed, 'data');
      await expect(start(folder)).rejects.toMatchObject({
        code: 'server-account',
        message: expect.stringMatching(
          new RegExp(
            `as nobody: .*closed-[\\s\\S]*chmod o\\+x ${closed}\\)[\\s\\S]*mode 755[\\s\\S]*${variable}`,
            'i',
          ),
        ),
      });
      expect(processesOn(folder)).toEqual([]);
      expect(existsSync(join(folder, 'data'))).toBe(false);
      mkdirSync(folder, { recursive: true });
    },
  );
});
