/** Started as root, the local stores run as other accounts. Without root these tests are skipped: only root can change accounts. */
import { chownSync, cpSync, mkdtempSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { withRedis } from '../../lab/servers/stores.ts';
import { startPostgresServer } from '../../src/local/postgres-server.ts';
import { sendSignal } from '../../src/local/processes.ts';
import { findRedisServer, startRedisServer } from '../../src/local/redis-server.ts';
import {
  expectNoProcessOn,
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

/** The uid of an account that every Linux has. */
const DAEMON = 1;
const programOf = (pid: number) => readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')[0]!;
/** The program, and the folders of its copy. */
const programFolders = (program: string) =>
  [program, dirname(program), dirname(dirname(program))].filter((path) => path.includes('stampede-program-'));
const gives = (folder: string, uid: number) => chownSync(folder, uid, uid);

describe.runIf(isRoot && isLinux)('as root (skipped without root: only root can change accounts)', () => {
  test("in another user's project neither store runs as root, root keeps no group, and nothing is left to root, also after a SIGKILL", async () => {
    const project = temporaryFolder();
    gives(project, DAEMON);
    const folder = join(project, '.local');
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
    const pids = [service.pid, ...processesOn(folder)];
    // Frozen, none of them writes a file when it notices the end of another one.
    for (const signal of ['SIGSTOP', 'SIGKILL'] as const) for (const pid of pids) sendSignal(pid, signal);
    await expectNoProcessOn(folder);
    const files = ['', ...readdirSync(folder, { recursive: true, encoding: 'utf8' })];
    expect(files.filter((file) => statSync(join(folder, file)).uid !== DAEMON)).toEqual([]);
    expect(files.length).toBeGreaterThan(100);
  });

  test('both stores run and restart in a folder that only root may enter, where an earlier run as root left data', async () => {
    const closed = mkdtempSync(join(temporaryFolder(), 'closed-'));
    const program = join(closed, 'redis-server');
    cpSync((await findRedisServer())!.path, program);
    const folders = { postgres: join(closed, 'local', 'postgres'), redis: join(closed, 'local', 'redis') };
    const aof = 'redis/appendonlydir';
    const ofRoot = ['postgres/data', 'redis', aof, `${aof}/appendonly.aof.1.incr.aof`];
    for (const round of [1, 2]) {
      const postgres = await startPostgresServer({ folder: folders.postgres, args: FAST });
      const redis = await startRedisServer({ folder: folders.redis, program });
      if (round === 1) {
        await query(postgres.url(), 'CREATE TABLE kept AS SELECT 1 AS value');
        await withRedis(redis.url, (client) => client.set('kept', 'yes'));
      }
      expect(await query(postgres.url(), 'SELECT value FROM kept')).toEqual([{ value: 1 }]);
      expect(await withRedis(redis.url, (client) => client.get('kept'))).toBe('yes');
      for (const { pid } of [postgres, redis]) {
        const { uids, gids, groups } = idsOf(pid);
        expect([...uids, ...gids]).not.toContain(0);
        expect(groups).toEqual([]);
        expect(processesOn(closed)).toContain(pid);
        for (const path of programFolders(programOf(pid))) {
          const { uid, mode } = statSync(path);
          expect({ path, uid, isWritable: (mode & 0o022) !== 0 }).toEqual({
            path,
            uid: 0,
            isWritable: false,
          });
        }
      }
      await Promise.all([postgres.stop(), redis.stop()]);
      if (round === 1) for (const path of ofRoot) gives(join(closed, 'local', path), 0);
    }
    for (const path of [closed, folders.postgres, folders.redis]) expect(statSync(path).mode & 0o077).toBe(0);
  });
});
