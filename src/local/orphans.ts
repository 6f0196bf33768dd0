/**
 * Servers that already run on a folder. The folder lock excludes live services (folder-lock.ts), unless the folder, and the lock in it, was
 * deleted. A server is therefore an orphan unless the process that started it, which its command line names, is alive.
 */
import { LocalStoreError } from './errors.ts';
import { findServers, isAlive, stopProcesses } from './processes.ts';
import type { ServerKind } from './server-start.ts';

const STOP_MS = 15_000;

/** Stops orphaned servers. @param path what their mark names @throws LocalStoreError when they belong to a live service */
export async function stopOrphans(
  kind: ServerKind,
  path: string,
  say: (line: string) => void,
): Promise<void> {
  const { name, programs, stopSignal } = kind;
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
  await stopProcesses(servers, stopSignal, STOP_MS);
}
