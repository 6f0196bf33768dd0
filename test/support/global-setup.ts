/**
 * What all test files share: the build, one Postgres with a migrated template database that each file clones, and one Redis
 * of whose logical databases each file takes its own.
 */
import { execFile } from 'node:child_process';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import pg from 'pg';
import type { TestProject } from 'vitest/node';
import { ODD_PREFIX, temporaryFolder } from '../../bench/kit/temporary-folder.ts';
import { SERVICE_ROLE } from '../../src/local/postgres-roles.ts';
import { ensureRedisServer, startRedisServer } from '../../src/local/redis-server.ts';
import { startLocalStores } from '../../src/local/stores.ts';
import { migrate } from '../../src/store/postgres/migrate.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** The server's own database, as its superuser; files clone `stampede_template` on it. */
    postgresUrl: string;
    redisUrl: string;
  }
}

/** For each file one; some take one for each test. */
const REDIS_DATABASES = 4_096;

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const say = (line: string) => process.stdout.write(`${line}\n`);
  const root = fileURLToPath(new URL('../../', import.meta.url));
  const built = promisify(execFile)('npm', ['run', '--silent', 'build'], { cwd: root });
  await ensureRedisServer({ say });
  const folder = await temporaryFolder(ODD_PREFIX);
  const stores = await startLocalStores({
    folder,
    postgres: true,
    redis: false,
    say,
    // A test's data does not outlive it: no need to wait for the disk.
    // Several files at once have several services each, with 20 connections or more.
    postgresArgs: [
      'fsync=off',
      'synchronous_commit=off',
      'full_page_writes=off',
      'max_connections=1000',
    ].flatMap((setting) => ['-c', setting]),
  });
  const postgresUrl = stores.migrationDatabaseUrl!;
  const client = new pg.Client({ connectionString: postgresUrl });
  await client.connect();
  await client.query('CREATE DATABASE stampede_template');
  await client.end();
  const template = new URL(postgresUrl);
  template.pathname = '/stampede_template';
  await migrate(template.href, SERVICE_ROLE);
  const redis = await startRedisServer({
    folder: path.join(folder, 'redis'),
    // A file that emptied the others' databases would fail at random: FLUSHDB is there for its own.
    args: ['--appendonly', 'no', '--databases', String(REDIS_DATABASES), '--rename-command', 'FLUSHALL', ''],
  });
  project.provide('postgresUrl', postgresUrl);
  project.provide('redisUrl', redis.url);
  await built;
  return async () => {
    await Promise.all([stores.stop(), redis.kill()]);
    await rm(folder, { recursive: true, force: true });
  };
}
