/** The machine and software of a run. */
import { execFile } from 'node:child_process';
import { cpus, release, totalmem, type } from 'node:os';
import { promisify } from 'node:util';

export interface Machine {
  readonly cpu: string;
  readonly cores: number;
  readonly memoryBytes: number;
  readonly os: string;
  readonly node: string;
  /** "not used" where a suite uses none. */
  readonly postgres: string;
  readonly redis: string;
  /** Other servers that a suite started, such as `zookeeper`. */
  readonly [server: string]: string | number;
}

export function describeMachine(versions: Readonly<Record<string, string>>): Machine {
  const cores = cpus();
  return {
    cpu: cores[0]?.model.trim() || 'unknown',
    cores: cores.length,
    memoryBytes: totalmem(),
    os: `${type()} ${release()} ${process.arch}`,
    node: process.version,
    ...{ postgres: 'not used', redis: 'not used' },
    ...versions,
  };
}

/** The result of `describeCommit` for people: only the first digits. */
export const shortCommit = (commit: string): string => commit.replace(/^([0-9a-f]{7})[0-9a-f]{33}/, '$1');

/** The measured commit, with `-dirty` when files other than results differ from it; `unknown` outside a repository. */
export async function describeCommit(): Promise<string> {
  const git = async (...args: string[]): Promise<string> =>
    (await promisify(execFile)('git', args, { cwd: import.meta.dirname })).stdout.trim();
  try {
    const head = await git('rev-parse', '--verify', 'HEAD');
    const changes = await git('status', '--porcelain', '--', ':/', ':(exclude,top)bench/results');
    return changes === '' ? head : `${head}-dirty`;
  } catch {
    return 'unknown';
  }
}
