/**
 * Processes of this machine. Pids are reused, so a process is identified by its pid *and* its start time, and a server by the
 * data folder in its command line. Orphans are found in the process table rather than by pid files, which can be stale,
 * truncated or missing. A zombie counts as dead: it holds no file, port or lock.
 */
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { basename } from 'node:path';
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

function commandsOnLinux(): { pid: number; args: string[] }[] {
  const found: { pid: number; args: string[] }[] = [];
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    try {
      found.push({ pid: Number(name), args: readFileSync(`/proc/${name}/cmdline`, 'utf8').split('\0') });
    } catch {
      // it exited between the listing and the read
    }
  }
  return found;
}

/** Live processes that run one of `programs` with `argument` (a data folder or a configuration file). */
export function findServers(programs: readonly string[], argument: string): ProcessIdentity[] {
  const pids: number[] = [];
  if (process.platform === 'linux') {
    for (const { pid, args } of commandsOnLinux()) {
      if (args.includes(argument) && args.some((arg) => programs.includes(basename(arg)))) pids.push(pid);
    }
  } else {
    for (const line of ps(['-axww', '-o', 'pid=,command=']).split('\n')) {
      const [, pid, command] = /^\s*(\d+)\s+(.*)$/.exec(line) ?? [];
      if (pid === undefined || command === undefined || !`${command} `.includes(` ${argument} `)) continue;
      if (programs.some((program) => `/${command} `.includes(`/${program} `))) pids.push(Number(pid));
    }
  }
  return pids.map(identify).filter((identity) => identity !== null);
}

/** The command line of a process's parent, separated by spaces; empty when it is gone. */
export function parentCommand(pid: number): string {
  if (process.platform !== 'linux') {
    const parent = ps(['-o', 'ppid=', '-p', String(pid)]).trim();
    return parent === '' ? '' : ps(['-ww', '-o', 'command=', '-p', parent]);
  }
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const parent = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1];
    return readFileSync(`/proc/${parent}/cmdline`, 'utf8').replaceAll('\0', ' ');
  } catch {
    return '';
  }
}

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
