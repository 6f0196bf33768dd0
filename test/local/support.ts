/** Temporary folders, services in separate processes, and what still runs. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { chmodSync, mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { afterEach, expect } from 'vitest';

export const isRoot = process.getuid?.() === 0;
export const isLinux = process.platform === 'linux';
/** Tests that do not pull a plug on the machine need no flush. */
export const FAST = ['-c', 'fsync=off'];
export const quiet = () => {};

const folders: string[] = [];

/** Where user namespaces are refused, Postgres runs as another account, which must be able to enter. */
export const hasNamespaces =
  !isRoot || spawnSync('unshare', ['--user', '--map-user=65534', '--map-group=65534', 'true']).status === 0;

/** A new folder, mode 700 where that works. After the test it must hold no process; it is kept when the test failed. */
export function temporaryFolder(): string {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'stampede-local-')));
  if (!hasNamespaces) chmodSync(folder, 0o755);
  folders.push(folder);
  return folder;
}

/** Pids of processes with the folder in their command line. Deliberately not the code under test. */
export function processesOn(folder: string): number[] {
  if (!isLinux) return [];
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .filter((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(folder);
      } catch {
        return false;
      }
    })
    .map(Number);
}

export async function expectNobodyOn(folder: string, withinMs: number): Promise<void> {
  await expect.poll(() => processesOn(folder), { timeout: withinMs, interval: 50 }).toEqual([]);
}

afterEach(async ({ task }) => {
  const left = folders.splice(0);
  const orphans = left.flatMap(processesOn);
  for (const pid of orphans) process.kill(pid, 'SIGKILL');
  if (task.result?.state === 'fail') console.error(`kept for a look: ${left.join(' ')}`);
  else for (const folder of left) rmSync(folder, { recursive: true, force: true, maxRetries: 10 });
  expect(orphans, 'processes left by the test').toEqual([]);
});

export interface Service {
  readonly process: ChildProcess;
  readonly pid: number;
  readonly exited: Promise<void>;
}

/** A separate process (and process group) that calls startLocalStores. */
export function spawnService(folder: string): Service {
  const program = fileURLToPath(new URL('./service.ts', import.meta.url));
  const child = spawn(process.execPath, ['--import', 'tsx', program, folder], {
    detached: true,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  return { process: child, pid: child.pid as number, exited };
}

/** What the service printed once its stores were up. */
export async function untilUp(service: Service): Promise<{ databaseUrl: string; redisUrl: string }> {
  for await (const line of createInterface({ input: service.process.stdout! })) {
    if (line.startsWith('{')) return JSON.parse(line);
  }
  throw new Error('the service ended before its stores were up');
}

/** One statement on a new connection. */
export async function query(url: string, sql: string): Promise<Record<string, unknown>[]> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => {});
  await client.connect();
  try {
    return (await client.query(sql)).rows;
  } finally {
    await client.end();
  }
}
