/**
 * Starts what all test files share: the build, one Postgres with a migrated template database that each file clones, one Redis in
 * which each file has its own logical database, and a Chromium for the files that need it. If one of these fails, the run ends here with its cause alone.
 */
import { type ExecFileException, execFile } from 'node:child_process';
import { existsSync, writeSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { TestProject } from 'vitest/node';
import { ODD_NAME } from '../../lab/kit/temporary-folder.ts';
import { reasonWithoutVariables } from '../../lab/kit/text.ts';
import { makePostgresFolder, startPostgres } from '../../lab/servers/postgres-folder.ts';
import { OperatorError, StartError } from '../../src/config/errors.ts';
import { ensureRedisServer, type RedisServer, startRedisServer } from '../../src/local/redis-server.ts';
import { openRunFolder, type RunFolder } from './run-folder.ts';
import { shareBrowser } from './shared-browser.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** The server's own database, as its superuser; files clone its database `stampede_template`. */
    postgresUrl: string;
    redisUrl: string;
    /** See shared-browser.ts. */
    browserUrl: string;
  }
}

/** One per file; some files take one per test. */
const REDIS_DATABASES = 4_096;
const root = fileURLToPath(new URL('../../', import.meta.url));
const dist = path.join(root, 'dist');
const say = (line: string) => void process.stdout.write(`${reasonWithoutVariables(line)}\n`);

/** @throws what the build printed */
async function build(): Promise<void> {
  await promisify(execFile)(process.execPath, ['scripts/build.js'], { cwd: root }).catch(
    ({ stdout, stderr }: ExecFileException) => {
      throw new StartError(`The build failed (npm run build):\n${stdout}${stderr}`);
    },
  );
}

async function startSharedPostgres(folder: string): Promise<string> {
  await makePostgresFolder(path.join(folder, 'template', 'postgres'));
  const server = await startPostgres({
    folder: path.join(folder, ODD_NAME, 'postgres'),
    say,
    // A test's data does not outlive it: no need to wait for the disk.
    // Several files at once have several services each, with 20 connections or more.
    args: ['fsync=off', 'synchronous_commit=off', 'full_page_writes=off', 'max_connections=1000'].flatMap(
      (setting) => ['-c', setting],
    ),
  });
  return server.url('postgres');
}

export const startSharedRedis = (folder: string, program: string): Promise<RedisServer> =>
  startRedisServer({
    folder: path.join(folder, ODD_NAME, 'redis'),
    program,
    // FLUSHALL would empty other files' databases and fail them at random; FLUSHDB empties a file's own.
    args: ['--appendonly', 'no', '--databases', String(REDIS_DATABASES), '--rename-command', 'FLUSHALL', ''],
  });

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const wasBuilt = existsSync(dist);
  let run: RunFolder | null = null;
  try {
    const { path: program } = await ensureRedisServer({ say });
    run = await openRunFolder();
    const [postgresUrl, redis] = await Promise.all([
      startSharedPostgres(run.path),
      startSharedRedis(run.path, program),
      build(),
    ]);
    project.provide('postgresUrl', postgresUrl);
    project.provide('redisUrl', redis.url);
    const browser = await shareBrowser();
    project.provide('browserUrl', browser.url);
    const { end } = run;
    return async () => {
      await browser.close();
      await end();
    };
  } catch (error) {
    await run?.end();
    if (!wasBuilt) await rm(dist, { recursive: true, force: true });
    const { stack } = error as Error;
    // Bypasses vitest: it would report "no test file found" and, at exit in a terminal, 0 tests passed.
    process.removeAllListeners('exit');
    const showCursor = process.stdout.isTTY ? '\u001b[?25h' : '';
    writeSync(2, `${error instanceof OperatorError ? reasonWithoutVariables(error) : stack}\n${showCursor}`);
    process.exit(1);
  }
}
