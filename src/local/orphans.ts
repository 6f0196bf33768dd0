/**
 * Servers that run on a folder before this start: left over from a service that died, or those of one that lives. The
 * folder's lock keeps living services apart (folder-lock.ts), but not when the folder was deleted meanwhile, with the lock in
 * it. So a server counts as an orphan only when its parent is no guardian of the folder any more.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { LocalStoreError } from './errors.ts';
import type { GuardianOrder } from './guardian-protocol.ts';
import { findServers, isAlive, type ProcessIdentity, parentCommand, stopProcesses } from './processes.ts';

/** A guardian whose service is dead stops its servers within this time. */
const GUARDIAN_MS = 20_000;
const STOP_MS = 15_000;

export interface Orphans {
  readonly name: 'Postgres' | 'Redis';
  readonly programs: readonly string[];
  /** In the server's command line. */
  readonly argument: string;
  readonly signal: NodeJS.Signals;
  readonly say: (line: string) => void;
}

/**
 * Stops servers that lost their guardian, and waits for those whose guardian is about to stop them.
 * @throws LocalStoreError when they belong to a service that lives
 */
export async function stopOrphans({ name, programs, argument, signal, say }: Orphans): Promise<void> {
  const deadline = performance.now() + GUARDIAN_MS;
  for (;;) {
    const servers = findServers(programs, argument);
    if (servers.length === 0) return;
    const services = servers.map(serviceOf).filter((service) => service !== null);
    if (services.length === 0) {
      say(
        `Stopping a ${name} left over from an earlier run (pid ${servers.map(({ pid }) => pid).join(', ')})`,
      );
      return stopProcesses(servers, signal, STOP_MS);
    }
    const living = services.find(isAlive);
    if (living !== undefined || performance.now() > deadline) {
      const { pid } = living ?? services[0]!;
      throw new LocalStoreError(
        'folder-in-use',
        `The ${name} that runs on ${argument} belongs to another service (pid ${pid}), although the folder was deleted. Stop that service (kill ${pid}): what its stores hold is lost with it, so copy what you need before.`,
      );
    }
    await sleep(100);
  }
}

/** The service whose guardian is the server's parent; null: the guardian is dead, and another process has adopted the server. */
function serviceOf(server: ProcessIdentity): ProcessIdentity | null {
  const order = /guardian\.[jt]s (\{.*\})$/.exec(parentCommand(server.pid).trim())?.[1];
  if (order === undefined) return null;
  try {
    return (JSON.parse(order) as GuardianOrder).service;
  } catch {
    return null;
  }
}
