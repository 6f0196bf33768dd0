/**
 * Who is alive on this machine. Nothing here trusts a bare pid: numbers are reused, so a process is its pid
 * *and* the moment that it started, and a server is recognised by the data folder in its command line.
 * That is also why no pid file is read to find an orphan: a pid file can be stale, truncated or missing,
 * the process table cannot. A zombie counts as dead: it holds no file, port or lock.
 */
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

/** One life of one pid. `started` is comparable only with another value from the same machine. */
export interface ProcessIdentity {
  readonly pid: number;
  readonly started: string;
}

const POLL_MS = 25;

function ps(args: string[]): string {
  try {
    return execFileSync('ps', args, { encoding: 'utf8', env: { LC_ALL: 'C', PATH: '/usr/bin:/bin' } });
  } catch {
    return ''; // ps ends with 1 when no process matches
  }
}

function startedOnLinux(pid: number): string | null {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  } catch {
    return null;
  }
  // The second field is the program's name in brackets and may hold anything: count from the last bracket.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return fields[0] === 'Z' || fields[0] === 'X' ? null : (fields[19] ?? null);
}

function startedElsewhere(pid: number): string | null {
  const line = ps(['-o', 'stat=,lstart=', '-p', String(pid)]).trim();
  const at = Date.parse(line.replace(/^\S+\s+/, ''));
  return line === '' || line.startsWith('Z') || Number.isNaN(at) ? null : String(at);
}

/** The identity of a living process, or null when no such process lives. */
export function identify(pid: number): ProcessIdentity | null {
  const started = process.platform === 'linux' ? startedOnLinux(pid) : startedElsewhere(pid);
  return started === null ? null : { pid, started };
}

/** Whether exactly this life of the pid still goes on. */
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
      // it ended between the listing and the read
    }
  }
  return found;
}

/**
 * Living processes that run one of `programs` with `argument` (a data folder or a configuration file) in
 * their command line. The program may stand behind a prefix such as `unshare`.
 */
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

/** The command line of a process's parent, its arguments separated by blanks; empty when there is none any more. */
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

/** Sends a signal; a process that is already gone is no error. */
export function sendSignal(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** Polls until the condition holds; false when the time is over first. */
async function waitUntil(holds: () => boolean, timeoutMs: number): Promise<boolean> {
  const deadline = performance.now() + timeoutMs;
  while (!holds()) {
    if (performance.now() > deadline) return false;
    await sleep(POLL_MS);
  }
  return true;
}

/** Stops processes that are not our children: `signal` first, SIGKILL after `timeoutMs`. */
export async function stopProcesses(
  processes: readonly ProcessIdentity[],
  signal: NodeJS.Signals,
  timeoutMs: number,
): Promise<void> {
  const someAlive = () => processes.filter(isAlive);
  for (const { pid } of someAlive()) sendSignal(pid, signal);
  if (await waitUntil(() => someAlive().length === 0, timeoutMs)) return;
  for (const { pid } of someAlive()) sendSignal(pid, 'SIGKILL');
  await waitUntil(() => someAlive().length === 0, 5_000);
}
