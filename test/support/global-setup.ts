/**
 * One Postgres for the whole run, on a temporary folder, with a migrated template database that every test file
 * clones; and a redis-server on the machine, of which every file starts its own.
 */
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import pg from 'pg';
import type { TestProject } from 'vitest/node';
import { ensureRedisServer } from '../../src/local/redis-server.ts';
import { startLocalStores } from '../../src/local/stores.ts';
import { migrate } from '../../src/store/postgres/migrate.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** The server's own database; files clone `stampede_template` on it. */
    postgresUrl: string;
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const say = (line: string) => process.stdout.write(`${line}\n`);
  await ensureRedisServer({ say });
  const folder = await mkdtemp(path.join(tmpdir(), 'stampede-test-'));
  await chmod(folder, 0o755); // as root, Postgres may have to run as an account that must be able to enter
  const stores = await startLocalStores({
    folder,
    postgres: true,
    redis: false,
    say,
    // A test's data does not outlive it: no need to wait for the disk.
    postgresArgs: ['-c', 'fsync=off', '-c', 'synchronous_commit=off', '-c', 'full_page_writes=off'],
  });
  const postgresUrl = stores.databaseUrl!;
  const client = new pg.Client({ connectionString: postgresUrl });
  await client.connect();
  await client.query('CREATE DATABASE stampede_template');
  await client.end();
  const template = new URL(postgresUrl);
  template.pathname = '/stampede_template';
  await migrate(template.href);
  project.provide('postgresUrl', postgresUrl);
  return async () => {
    await stores.stop();
    await rm(folder, { recursive: true, force: true });
  };
}
