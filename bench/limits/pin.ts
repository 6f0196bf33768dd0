/**
 * Which processors a process may use. What is measured gets the first processor for itself; the load has the last one,
 * the stores have all but the first. A bare server, an Express one and the service are held to theirs in the same way,
 * after they have started, so that what differs between them is not where they run.
 */
import { execFile, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { promisify } from 'node:util';
import { busyShare } from '../locks/rest.ts';

/** Lists of processors as the system writes them, such as "0" or "1-3"; null: wherever the system puts it. */
export interface Layout {
  readonly kind: 'split' | 'none';
  readonly server: string | null;
  readonly generator: string | null;
  readonly stores: string | null;
  /** Processors that the load may use. */
  readonly generatorCount: number;
  /** Why nothing is pinned; null: it is, or nobody asked for it. */
  readonly why: string | null;
}

/** What the machine has. */
export interface Means {
  /** The processors that this process may use, in order; empty: the system does not tell. */
  readonly processors: readonly number[];
  readonly taskset: boolean;
}

export function meansHere(): Means {
  const allowed = processorsOf(process.pid);
  const taskset = spawnSync('taskset', ['--version'], { stdio: 'ignore' }).status === 0;
  return { processors: allowed === null ? [] : expand(allowed), taskset };
}

/** "0,2-4" → 0, 2, 3, 4. */
export function expand(list: string): number[] {
  return list.split(',').flatMap((part) => {
    const [from = 0, to = from] = part.split('-').map(Number);
    return Array.from({ length: to - from + 1 }, (_, index) => from + index);
  });
}

/** Pure. With `split`, the caller must see whether it became `none`, and why. */
export function layoutOf(wanted: 'auto' | 'split' | 'none', { processors, taskset }: Means): Layout {
  const none = (why: string | null): Layout => {
    const generatorCount = Math.max(1, processors.length || cpus().length);
    return { kind: 'none', server: null, generator: null, stores: null, generatorCount, why };
  };
  if (wanted === 'none') return none(null);
  if (!taskset) return none('there is no taskset');
  const [first, ...others] = processors;
  const last = others.at(-1);
  if (first === undefined || last === undefined) return none('there are not two processors');
  return {
    kind: 'split',
    server: String(first),
    generator: String(last),
    stores: others.join(','),
    generatorCount: 1,
    why: null,
  };
}

/** Holds a running process, all its threads, and what it will start, to these processors; null: leaves it. */
export async function pin(pid: number, processors: string | null): Promise<void> {
  if (processors === null) return;
  await promisify(execFile)('taskset', ['-acp', processors, String(pid)]);
}

/** A command that runs on these processors from its first moment; null: anywhere. */
export function pinned(command: readonly string[], processors: string | null): readonly string[] {
  return processors === null ? command : ['taskset', '-c', processors, ...command];
}

/** The processors that a process may use, as a list in text; null: the system does not tell. */
export function processorsOf(pid: number): string | null {
  return /^Cpus_allowed_list:\s*(\S+)/m.exec(statusOf(pid) ?? '')?.[1] ?? null;
}

/** Resident memory of a process, in bytes; null: it is gone, or nobody tells. */
export function residentBytes(pid: number): number | null {
  const kept = /^VmRSS:\s*(\d+) kB/m.exec(statusOf(pid) ?? '')?.[1];
  if (kept !== undefined) return Number(kept) * 1_024;
  const told = spawnSync('ps', ['-o', 'rss=', '-p', String(pid)], { encoding: 'utf8' });
  const kilobytes = Number.parseInt(told.stdout ?? '', 10);
  return Number.isNaN(kilobytes) ? null : kilobytes * 1_024;
}

function statusOf(pid: number): string | null {
  try {
    return readFileSync(`/proc/${pid}/status`, 'utf8');
  } catch {
    return null;
  }
}

/** Begins to watch the processors. @returns a function that ends it and tells how busy each was, from 0 to 1 */
export function watchProcessors(): () => number[] {
  const before = ticks();
  return () => ticks().map((after, index) => busyShare(before[index] ?? after, after));
}

function ticks(): { idle: number; all: number }[] {
  return cpus().map(({ times: { idle, user, nice, sys, irq } }) => {
    return { idle, all: idle + user + nice + sys + irq };
  });
}
