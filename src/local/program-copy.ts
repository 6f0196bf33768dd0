/**
 * Copies of server programs that root can reach and other accounts cannot, such as those in node_modules below `/root`, and of those
 * whose path a shell would not read as it is.
 *
 * A copy belongs to this process's user, in a new folder with a random name, which other accounts may enter and not change. It ends with this
 * process. A killed process leaves its copy: the folder's name contains its identity, and the next copy removes it.
 */
import { execFileSync } from 'node:child_process';
import { chmodSync, lstatSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join, relative } from 'node:path';
import { identify, isAlive } from './processes.ts';

export interface Program {
  readonly path: string;
  /** What is copied with it: the folder of its libraries, or the program alone. */
  readonly tree: string;
}

/** Where copies are made, in this order: TMPDIR may forbid execution, or be closed to other accounts. */
export const copyFolders = (): string[] => [...new Set([tmpdir(), '/tmp', '/var/tmp'])];

const PREFIX = 'stampede-program-';
const NAME = new RegExp(`^${PREFIX}(\\d+)-(\\d+)-`);
/** Root's umask may have closed the files to others, or opened them. A program may itself be a link. */
const COPY_SCRIPT = 'cp -RH "$1" "$2" && chmod -R a+rX,go-w "$2"';

const copies = new Map<string, string>();

/** Removes the copies of dead processes. A folder of another account with such a name is left alone. */
function removeAbandoned(parent: string): void {
  for (const name of readdirSync(parent)) {
    const [, pid, started] = NAME.exec(name) ?? [];
    if (pid === undefined || started === undefined || isAlive({ pid: Number(pid), started })) continue;
    const path = join(parent, name);
    const isOwn = lstatSync(path, { throwIfNoEntry: false })?.uid === process.getuid?.();
    if (isOwn) rmSync(path, { recursive: true, force: true });
  }
}

function copyTree(tree: string, parent: string): string {
  const { pid, started } = identify(process.pid)!;
  removeAbandoned(parent);
  const folder = mkdtempSync(join(parent, `${PREFIX}${pid}-${started}-`));
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  chmodSync(folder, 0o755);
  const copy = join(folder, basename(tree));
  execFileSync('/bin/sh', ['-c', COPY_SCRIPT, 'sh', tree, copy]);
  return copy;
}

/** Copies a program, once for this process. @returns the path of the copied program */
export function copyProgram({ path, tree }: Program, parent: string): string {
  const key = `${parent}:${tree}`;
  const copy = copies.get(key) ?? copyTree(tree, parent);
  copies.set(key, copy);
  return join(copy, relative(tree, path));
}
