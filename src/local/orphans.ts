/**
 * Servers already running on a folder: orphans of a dead service, or the servers of a live one. The folder lock excludes live
 * services (folder-lock.ts) unless the folder, and the lock in it, was deleted. A server is therefore an orphan only when its
 * parent is not a guardian of the folder.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { LocalStoreError } from './errors.ts';
import type { GuardianOrder } from './guardian-protocol.ts';
import { findServers, isAlive, type ProcessIdentity, parentCommand, stopProcesses } from './processes.ts';

/** Time in which a guardian stops its servers after its service died. */
const GUARDIAN_MS = 20_000;
const STOP_MS = 15_000;

export interface Orphans {
  readonly name: 'Postgres' | 'Redis';
  readonly programs: readonly string[];
  /** Identifies the server by its command line. */
  readonly argument: string;
  readonly signal: NodeJS.Signals;
  readonly say: (line: string) => void;
}

/**
 * Stops orphaned servers, and waits for servers whose guardian is stopping them.
 * @throws LocalStoreError when they belong to a live service
 */
export async function stopOrphans({ name, programs, argument, signal, say }: Orphans): Promise<void> {
  const deadline = performance.now() + GUARDIAN_MS;
  for (;;) {
    const servers = findServers(programs, argument);
    if (servers.length === 0) return;
    const services = servers.map(serviceOf).filter((service) => service !== null);
    if (services.length === 0) {
      say(`Stopping an orphaned ${name} of an earlier run (pid ${servers.map(({ pid }) => pid).join(', ')})`);
      return stopProcesses(servers, signal, STOP_MS);
    }
    const live = services.find(isAlive);
    if (live !== undefined || performance.now() > deadline) {
      const { pid } = live ?? services[0]!;
      throw new LocalStoreError(
        'folder-in-use',
        `The ${name} that runs on ${argument} belongs to another service (pid ${pid}), although the folder was deleted. Stop that service (kill ${pid}). Its stores lose their data then, so copy what you need first.`,
      );
    }
    await sleep(100);
  }
}

/** The service whose guardian is the server's parent; null when the guardian is dead and another process adopted the server. */
function serviceOf(server: ProcessIdentity): ProcessIdentity | null {
  const order = /guardian\.[jt]s (\{.*\})$/.exec(parentCommand(server.pid).trim())?.[1];
  if (order === undefined) return null;
  try {
    return (JSON.parse(order) as GuardianOrder).service;
  } catch {
    return null;
  }
}
