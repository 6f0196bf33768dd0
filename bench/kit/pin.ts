/**
 * Assigns processors. The measured server has the first processor for itself, the load the last one, the stores all but
 * the first. All servers of a suite are pinned in the same way, after they started.
 */
import { execFile, spawnSync } from 'node:child_process';
import { cpus } from 'node:os';
import { promisify } from 'node:util';
import { procFile } from './cpu.ts';

/** Lists of processors as the system writes them, such as "0" or "1-3"; null: not pinned. */
export interface Layout {
  readonly server: string | null;
  readonly generator: string | null;
  readonly stores: string | null;
  /** Processors the load may use. */
  readonly generatorCount: number;
  /** For the report. */
  readonly text: string;
}

export interface Processors {
  /** Processors this process may use, in order; empty: the system reports none. */
  readonly allowed: readonly number[];
  readonly taskset: boolean;
}

export function processorsHere(): Processors {
  const list = /^Cpus_allowed_list:\s*(\S+)/m.exec(procFile(process.pid, 'status') ?? '')?.[1];
  const taskset = spawnSync('taskset', ['--version'], { stdio: 'ignore' }).status === 0;
  return { allowed: list === undefined ? [] : expand(list), taskset };
}

/** "0,2-4" → 0, 2, 3, 4. */
export function expand(list: string): number[] {
  return list.split(',').flatMap((part) => {
    const [from = 0, to = from] = part.split('-').map(Number);
    return Array.from({ length: to - from + 1 }, (_, index) => from + index);
  });
}

/** Nothing is pinned. */
export const sharedLayout = ({ allowed }: Pick<Processors, 'allowed'>): Layout => ({
  ...{ server: null, generator: null, stores: null },
  ...{ generatorCount: allowed.length || cpus().length, text: 'processors shared by all' },
});

/** @returns the layout, or why processors cannot be split */
export function splitLayout({ allowed, taskset }: Processors): Layout | string {
  const [first, ...others] = allowed.map(String);
  const last = others.at(-1);
  if (!taskset) return 'there is no taskset';
  if (first === undefined || last === undefined) return 'there are not two processors';
  const layout = { server: first, generator: last, stores: others.join(','), generatorCount: 1 };
  return { ...layout, text: `server on processor ${first}, load on ${last}, stores on ${layout.stores}` };
}

/** Pins a running process, its threads and its later children to these processors; null: does nothing. */
export async function pin(pid: number, processors: string | null): Promise<void> {
  if (processors !== null) await promisify(execFile)('taskset', ['-acp', processors, String(pid)]);
}

/** The command, pinned to these processors from its start; null: unchanged. */
export function pinned(command: readonly string[], processors: string | null): readonly string[] {
  return processors === null ? command : ['taskset', '-c', processors, ...command];
}
