/**
 * Finds the Redis server program, on PATH and in the folders of package managers, which the PATH of a service manager or an
 * editor often lacks. Valkey, the fork of Redis, works as well.
 */
import { execFile, spawnSync } from 'node:child_process';
import { accessSync, constants, statSync } from 'node:fs';
import { delimiter, isAbsolute, join } from 'node:path';
import { LocalStoreError } from './errors.ts';
import { SERVER_ENVIRONMENT } from './server-process.ts';

/** `set-proc-title` and the AOF settings used here need 6.2. */
const MIN_VERSION = [6, 2] as const;

const NAMES = ['redis-server', 'valkey-server'];

const USUAL_FOLDERS = [
  '/usr/bin',
  '/usr/local/bin',
  '/opt/homebrew/bin',
  '/opt/homebrew/opt/redis/bin',
  '/usr/local/opt/redis/bin',
];

export interface RedisLookup {
  /** Replaces this process's PATH. */
  readonly path?: string;
  /** Replaces the usual folders, which are searched after PATH. */
  readonly folders?: readonly string[];
}

/** An installed Redis server. */
export interface RedisProgram {
  readonly path: string;
  readonly version: string;
}

/** PATH, read through a child process that inherits it: only the commands read the environment. */
function inheritedPath(): string {
  return spawnSync('/bin/sh', ['-c', 'printf %s "$PATH"'], { encoding: 'utf8' }).stdout ?? '';
}

function searchFolders(lookup: RedisLookup): string[] {
  const onPath = (lookup.path ?? inheritedPath()).split(delimiter).filter(isAbsolute);
  return [...new Set([...onPath, ...(lookup.folders ?? USUAL_FOLDERS)])];
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

/** The first program called `name` on the search path, or null. */
export function findProgram(name: string, lookup: RedisLookup = {}): string | null {
  const paths = searchFolders(lookup).map((folder) => join(folder, name));
  return paths.find(isExecutable) ?? null;
}

/** The version, such as `6.2.14`, from `--version` of Redis or Valkey; null when the program does not run. */
function versionOf(path: string): Promise<string | null> {
  return new Promise((resolve) => {
    execFile(path, ['--version'], { env: SERVER_ENVIRONMENT }, (error, stdout) =>
      resolve(error === null ? (/v=(\d+\.\d+\.\d+)/.exec(stdout)?.[1] ?? null) : null),
    );
  });
}

function isRecent(version: string): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  return major > MIN_VERSION[0] || (major === MIN_VERSION[0] && minor >= MIN_VERSION[1]);
}

/**
 * The first sufficiently recent Redis or Valkey; null when none is installed. Having only outdated ones is an error: the
 * operator must decide which one to replace.
 */
export async function findRedisServer(lookup: RedisLookup = {}): Promise<RedisProgram | null> {
  const unusable: string[] = [];
  for (const folder of searchFolders(lookup)) {
    for (const name of NAMES) {
      const path = join(folder, name);
      if (!isExecutable(path)) continue;
      const version = await versionOf(path);
      if (version !== null && isRecent(version)) return { path, version };
      unusable.push(`${path} ${version === null ? 'does not run' : `is version ${version}`}`);
    }
  }
  if (unusable.length === 0) return null;
  throw new LocalStoreError(
    'redis-too-old',
    `Redis ${MIN_VERSION.join('.')} or later is required, but ${unusable.join(', ')}. Install a newer one, or set REDIS_URL to your own Redis.`,
  );
}
