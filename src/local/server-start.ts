/**
 * The start of a Postgres or a Redis.
 *
 *   starting ──ready──▶ running ──stop/kill──▶ ended
 *      ├─ port in use: retry with another port, a few times (not for a fixed port)
 *      ├─ an earlier server still holds something: retry until it does not
 *      └─ exited, or not ready in time: error with the last lines of its log
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { LocalStoreError, type LocalStoreErrorCode } from './errors.ts';
import { findMarked, findUsers, stopProcesses } from './processes.ts';
import { freePort, type LaunchOptions, launch, type ServerProcess } from './server-process.ts';

const START_TIMEOUT_MS = 60_000; // crash recovery of a large WAL or AOF is slow, and kill -9 is common here
const STOP_TIMEOUT_MS = 15_000; // Redis waits up to 10 s for replicas
const PORT_TRIES = 5;
const HELD_TRIES = 40;

export interface ServerKind {
  readonly name: 'Postgres' | 'Redis';
  /** Shuts it down in order. */
  readonly stopSignal: NodeJS.Signals;
  readonly code: LocalStoreErrorCode;
  /** What it logs when it cannot listen. */
  readonly portTaken: RegExp;
}

export interface ServerStart {
  /** A fixed port; undefined: a free port, chosen for each try. */
  readonly port: number | undefined;
  launch(port: number): LaunchOptions;
  isReady(server: ServerProcess): boolean;
  /** What it logs while an earlier server holds something, and the message when that goes on. */
  readonly held?: { readonly logged: string; readonly message: string };
  /** Says why it did not start. */
  failure(what: string, tail: string): string;
}

/** A running server. */
export interface RunningServer extends Pick<ServerProcess, 'pid' | 'ended' | 'tail' | 'kill'> {
  readonly port: number;
  /** Shuts it down in order: committed data, or the AOF, is on disk. */
  stop(): Promise<void>;
}

/** Stops the servers that a killed process left. @param path of their mark @throws LocalStoreError when a live process has one */
export async function stopOrphans(
  { name, stopSignal }: ServerKind,
  path: string,
  say: (line: string) => void,
): Promise<void> {
  const [used] = findUsers(path);
  if (used !== undefined)
    throw new LocalStoreError('folder-in-use', `A ${name} (pid ${used.pid}) already runs on ${path}.`);
  const orphans = findMarked(path);
  if (orphans.length === 0) return;
  say(`Stopping an orphaned ${name} of an earlier run (pid ${orphans.map(({ pid }) => pid).join(', ')})`);
  await stopProcesses(orphans, stopSignal, STOP_TIMEOUT_MS);
}

/** Starts a server and waits until it is ready. @throws LocalStoreError */
export async function startServer(kind: ServerKind, start: ServerStart): Promise<RunningServer> {
  const { name, stopSignal, code, portTaken } = kind;
  for (let taken = 0, held = 0; ; ) {
    const port = start.port ?? (await freePort());
    const server = await launch(start.launch(port), code);
    const stop = () => server.stop(stopSignal, STOP_TIMEOUT_MS);
    const failure = (what: string) => new LocalStoreError(code, start.failure(what, server.tail()));
    const deadline = performance.now() + START_TIMEOUT_MS;
    while (server.end() === null && !start.isReady(server)) {
      if (performance.now() > deadline) {
        await stop();
        throw failure(`was not ready after ${START_TIMEOUT_MS / 1000} s`);
      }
      await sleep(20);
    }
    const { pid, ended, tail, kill } = server;
    if (server.end() === null) return { port, pid, ended, tail, stop, kill };
    const output = server.output();
    if (portTaken.test(output)) {
      if (start.port === undefined && ++taken < PORT_TRIES) continue;
      const message = `Port ${port} of 127.0.0.1, configured for ${name}, is in use.`;
      throw new LocalStoreError('port-taken', message);
    }
    if (start.held === undefined || !output.includes(start.held.logged))
      throw failure(`did not start (${server.end()})`);
    if (++held === HELD_TRIES) throw new LocalStoreError(code, start.held.message);
    await sleep(250);
  }
}
