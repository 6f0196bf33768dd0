/**
 * Servers that already run on a folder. The folder lock excludes live services (folder-lock.ts), unless the folder, and the lock in it, was
 * deleted. A server is therefore an orphan unless the process that started it, which its command line names, is alive.
 */
import { LocalStoreError } from './errors.ts';
import { findServers, isAlive, stopProcesses } from './processes.ts';

const STOP_MS = 15_000;

export interface Orphans {
  readonly name: 'Postgres' | 'Redis';
  readonly programs: readonly string[];
  /** What the server's mark names: see processes.ts. */
  readonly path: string;
  readonly signal: NodeJS.Signals;
  readonly say: (line: string) => void;
}

/** Stops orphaned servers. @throws LocalStoreError when they belong to a live service */
export async function stopOrphans({ name, programs, path, signal, say }: Orphans): Promise<void> {
  const servers = findServers(programs, path);
  if (servers.length === 0) return;
  const live = servers.find(({ owner }) => owner !== null && isAlive(owner))?.owner;
  if (live) {
    throw new LocalStoreError(
      'folder-in-use',
      `The ${name} that runs on ${path} belongs to another service (pid ${live.pid}), although the folder was deleted. Stop that service (kill ${live.pid}). Its stores lose their data then, so copy what you need first.`,
    );
  }
  say(`Stopping an orphaned ${name} of an earlier run (pid ${servers.map(({ pid }) => pid).join(', ')})`);
  await stopProcesses(servers, signal, STOP_MS);
}
