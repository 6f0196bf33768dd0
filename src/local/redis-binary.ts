/**
 * Where the Redis program is. Looked up by hand on PATH and in the places that package managers use, since
 * a PATH from a service manager or an editor often lacks them. Valkey is the same server under its free name.
 */
import { execFile, spawnSync } from 'node:child_process';
import { accessSync, constants, statSync } from 'node:fs';
import { delimiter, isAbsolute, join } from 'node:path';
import { LocalStoreError } from './errors.ts';
import { SERVER_ENVIRONMENT } from './server-process.ts';

/** `set-proc-title` and the AOF settings used here came with 6.2. */
const OLDEST = [6, 2] as const;

const NAMES = ['redis-server', 'valkey-server'];

const USUAL_FOLDERS = [
  '/usr/bin',
  '/usr/local/bin',
  '/opt/homebrew/bin',
  '/opt/homebrew/opt/redis/bin',
  '/usr/local/opt/redis/bin',
];

export interface RedisLookup {
  /** Instead of this process's PATH. */
  readonly path?: string;
  /** Instead of the usual folders, searched after PATH. */
  readonly folders?: readonly string[];
}

/** A Redis program on this machine. */
export interface RedisProgram {
  readonly path: string;
  readonly version: string;
}

/** Our PATH, asked of a child that inherits it: only main.ts reads the environment itself. */
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

/** `6.2.14` from either server's `--version` line; null when it cannot be run. */
function versionOf(path: string): Promise<string | null> {
  return new Promise((resolve) => {
    execFile(path, ['--version'], { env: SERVER_ENVIRONMENT }, (error, stdout) =>
      resolve(error === null ? (/v=(\d+\.\d+\.\d+)/.exec(stdout)?.[1] ?? null) : null),
    );
  });
}

function isRecent(version: string): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  return major > OLDEST[0] || (major === OLDEST[0] && minor >= OLDEST[1]);
}

/**
 * The first Redis (or Valkey) that is recent enough, or null when there is none at all. When all that there
 * is are too old, that is an error: a person has to choose which one to replace.
 */
export async function findRedisServer(lookup: RedisLookup = {}): Promise<RedisProgram | null> {
  const old: string[] = [];
  for (const folder of searchFolders(lookup)) {
    for (const name of NAMES) {
      const path = join(folder, name);
      if (!isExecutable(path)) continue;
      const version = await versionOf(path);
      if (version !== null && isRecent(version)) return { path, version };
      old.push(`${path} ${version === null ? 'does not run' : `is version ${version}`}`);
    }
  }
  if (old.length === 0) return null;
  throw new LocalStoreError(
    'redis-too-old',
    `Redis ${OLDEST.join('.')} or later is needed, and ${old.join(', ')}. Install a newer one, or set REDIS_URL to a Redis of yours.`,
  );
}
