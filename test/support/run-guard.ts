/**
 * The guard of a test run: a process that stops what the run left when vitest ends, even by `kill -9`, and removes its folder.
 *
 * The folder is `TMPDIR` of every process that the run starts. A process belongs to the run if the folder is in its command line,
 * its environment or its working directory. Standard input is a pipe whose other end only vitest holds: the kernel closes it.
 */
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { removeFolder } from '../../lab/kit/temporary-folder.ts';
import { identify, stopProcesses } from '../../src/local/processes.ts';

const folder = process.argv[2]!;
const STOP_MS = 5_000;
/** A test that is still alive may start further servers while others are stopped. */
const ROUNDS = 5;

function textOf(read: () => string): string {
  try {
    return read();
  } catch {
    return ''; // it has ended, or belongs to another user
  }
}

function pidsOfRun(): number[] {
  if (process.platform !== 'linux') {
    const lines = execFileSync('ps', ['-axEww', '-o', 'pid=,command='], { encoding: 'utf8' }).split('\n');
    return lines.filter((line) => line.includes(folder)).map((line) => Number.parseInt(line, 10));
  }
  const isOfRun = (pid: string) =>
    textOf(() => readFileSync(`/proc/${pid}/cmdline`, 'utf8')).includes(folder) ||
    textOf(() => readFileSync(`/proc/${pid}/environ`, 'utf8')).includes(folder) ||
    textOf(() => readlinkSync(`/proc/${pid}/cwd`)).includes(folder);
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && isOfRun(name))
    .map(Number);
}

const left = () =>
  pidsOfRun()
    .filter((pid) => pid !== process.pid)
    .map(identify)
    .filter((process) => process !== null);

for await (const _ of process.stdin);
for (let round = 0; round < ROUNDS; round++) await stopProcesses(left(), 'SIGTERM', STOP_MS);
await removeFolder(folder);
