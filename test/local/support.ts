/** Temporary folders, services in separate processes, and the processes that still run. */
import { type ChildProcess, spawn } from 'node:child_process';
import { chmodSync, mkdtempSync, readdirSync, readFileSync, realpathSync, renameSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterEach, expect } from 'vitest';
import { removeFolder } from '../../lab/kit/temporary-folder.ts';
import { withPostgres } from '../../lab/servers/stores.ts';
import { sendSignal } from '../../src/local/processes.ts';

export const isRoot = process.getuid?.() === 0;
export const isLinux = process.platform === 'linux';
/** No flush to disk: these tests do not cut the machine's power. */
export const FAST = ['-c', 'fsync=off'];
export const quiet = () => {};

const folders: string[] = [];

/** A new folder that root's servers, run as other accounts, may enter. No process may remain on it; a failed test keeps it. */
export function temporaryFolder(): string {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'stampede-local-')));
  if (isRoot) chmodSync(folder, 0o755);
  folders.push(folder);
  return folder;
}

/** The kernel's record of a process: its four user ids, four group ids, and supplementary groups. */
export function idsOf(pid: number): {
  readonly uids: number[];
  readonly gids: number[];
  readonly groups: number[];
} {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const numbers = (name: string) =>
    (new RegExp(`^${name}:[ \\t]*(.*)$`, 'm').exec(status)?.[1] ?? '')
      .split(/\s+/)
      .filter(Boolean)
      .map(Number);
  return { uids: numbers('Uid'), gids: numbers('Gid'), groups: numbers('Groups') };
}

/** Pids of processes with the folder in their command line. Deliberately without the code under test. */
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

export const expectNoProcessOn = (folder: string) => expect.poll(() => processesOn(folder)).toEqual([]);

/** Moves a folder out of the run's, which the run removes. */
function keep(folder: string): void {
  const kept = join(dirname(tmpdir()), basename(folder));
  renameSync(folder, kept);
  console.error(`kept for a look: ${kept}`);
}

afterEach(async ({ task }) => {
  const left = folders.splice(0);
  const orphans = left.flatMap(processesOn);
  for (const pid of orphans) sendSignal(pid, 'SIGKILL');
  if (task.result?.state === 'fail') for (const folder of left) keep(folder);
  else for (const folder of left) await removeFolder(folder);
  expect(orphans, 'processes left by the test').toEqual([]);
});

export interface Service {
  readonly process: ChildProcess;
  readonly pid: number;
  readonly exited: Promise<void>;
}

/** A separate process (and process group) that calls startLocalStores. @param prefix runs it, such as `setpriv` */
export function spawnService(
  folder: string,
  prefix: readonly string[] = [],
  program = new URL('./service.ts', import.meta.url),
): Service {
  const [command, ...args] = [...prefix, process.execPath, '--import', 'tsx', fileURLToPath(program), folder];
  const child = spawn(command!, args, {
    detached: true,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  return { process: child, pid: child.pid as number, exited };
}

/** The URLs that the service prints once its stores are up. */
export async function untilUp(service: Service): Promise<{ migrationDatabaseUrl: string; redisUrl: string }> {
  for await (const line of createInterface({ input: service.process.stdout! })) {
    if (line.startsWith('{')) return JSON.parse(line);
  }
  throw new Error('the service ended before its stores were up');
}

/** Runs one statement on a new connection. */
export const query = (url: string, sql: string): Promise<Record<string, unknown>[]> =>
  withPostgres(url, async (client) => (await client.query(sql)).rows);
