/**
 * Processes of this machine. Pids are reused, so a process is identified by its pid *and* its start time, and a server by the
 * mark in its command line: the process table, unlike pid files and lock files, is never stale, truncated or deleted. A zombie
 * counts as dead: it holds no file, port or lock.
 */
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

/** Identifies one process. Values of `started` are comparable on the same machine only. */
export interface ProcessIdentity {
  readonly pid: number;
  readonly started: string;
}

const POLL_MS = 25;

function ps(args: string[]): string {
  try {
    return execFileSync('ps', args, { encoding: 'utf8', env: { LC_ALL: 'C', PATH: '/usr/bin:/bin' } });
  } catch {
    return ''; // ps exits with 1 when no process matches
  }
}

function startedOnLinux(pid: number): string | null {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  } catch {
    return null;
  }
  // The second field, the program's name in parentheses, may contain anything: parse after the last parenthesis.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return fields[0] === 'Z' || fields[0] === 'X' ? null : (fields[19] ?? null);
}

function startedElsewhere(pid: number): string | null {
  const line = ps(['-o', 'stat=,lstart=', '-p', String(pid)]).trim();
  const at = Date.parse(line.replace(/^\S+\s+/, ''));
  return line === '' || line.startsWith('Z') || Number.isNaN(at) ? null : String(at);
}

/** The identity of a live process; null when there is none. */
export function identify(pid: number): ProcessIdentity | null {
  const started = process.platform === 'linux' ? startedOnLinux(pid) : startedElsewhere(pid);
  return started === null ? null : { pid, started };
}

/** Whether this very process is still alive. */
export function isAlive(identity: ProcessIdentity): boolean {
  return identify(identity.pid)?.started === identity.started;
}

/** A process with a mark: what it uses, and the process that started it. */
export interface MarkedProcess extends ProcessIdentity {
  readonly path: string;
  readonly owner: ProcessIdentity;
}

/** An argument by which `findMarked` finds a process: it names this process and a path. */
export function markOf(path: string): string {
  const { pid, started } = identify(process.pid)!;
  return `${pid}-${started}=${path}`;
}

/** The command lines of all processes, arguments separated by spaces. */
function* commands(): Generator<{ readonly pid: number; readonly command: string }> {
  if (process.platform !== 'linux') {
    for (const line of ps(['-axww', '-o', 'pid=,command=']).split('\n')) {
      const [, pid, command] = /^\s*(\d+)\s+(.*)$/.exec(line) ?? [];
      if (pid !== undefined && command !== undefined) yield { pid: Number(pid), command };
    }
    return;
  }
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const command = readFileSync(`/proc/${name}/cmdline`, 'utf8').replaceAll('\0', ' ').trimEnd();
      yield { pid: Number(name), command };
    } catch {
      // it exited between the listing and the read
    }
  }
}

/**
 * Live processes with a mark of the path, or of a path below it. The marks of servers of version 1.0.0 name no service: these count as
 * started by themselves, so they are in use as long as they run.
 */
export function findMarked(path: string): MarkedProcess[] {
  const literal = path.replaceAll(/[^\w/]/g, '\\$&');
  const mark = new RegExp(`(?:(\\d+)-(\\d+)=|--syslog-ident |stampede\\.folder=)${literal}(/[^ ]*)?(?: |$)`);
  return [...commands()].flatMap(({ pid, command }) => {
    const [found, ownerPid, started = '', below = ''] = mark.exec(command) ?? [];
    const identity = found === undefined ? null : identify(pid);
    if (identity === null) return [];
    const owner = ownerPid === undefined ? identity : { pid: Number(ownerPid), started };
    return { ...identity, path: path + below, owner };
  });
}

/** Those of live services. */
export const findUsers = (path: string): MarkedProcess[] =>
  findMarked(path).filter(({ owner }) => isAlive(owner));

/** Sends a signal. A process that is already gone is not an error. */
export function sendSignal(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** Polls until the condition holds. @returns false on timeout */
async function waitUntil(holds: () => boolean, timeoutMs: number): Promise<boolean> {
  const deadline = performance.now() + timeoutMs;
  while (!holds()) {
    if (performance.now() > deadline) return false;
    await sleep(POLL_MS);
  }
  return true;
}

/** Stops processes that are not children of this one: `signal` first, SIGKILL after `timeoutMs`. */
export async function stopProcesses(
  processes: readonly ProcessIdentity[],
  signal: NodeJS.Signals,
  timeoutMs: number,
): Promise<void> {
  const stillAlive = () => processes.filter(isAlive);
  for (const { pid } of stillAlive()) sendSignal(pid, signal);
  if (await waitUntil(() => stillAlive().length === 0, timeoutMs)) return;
  for (const { pid } of stillAlive()) sendSignal(pid, 'SIGKILL');
  await waitUntil(() => stillAlive().length === 0, 5_000);
}
