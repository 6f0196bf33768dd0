/**
 * The file with the URLs of a folder's servers, for other commands and for a shell (`. .local/stores.env`). The service
 * writes it when the servers are ready and removes it before they stop; after a `kill -9` the watcher does (watcher.ts).
 * The URLs contain the password, so only the owner may read the file. It does not export the variables: a service started
 * later from the same shell must not use these stores as its own.
 */
import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { systemCode } from './errors.ts';

/** The folder of the stores that `npm start` starts, beside package.json. */
export const LOCAL_FOLDER = fileURLToPath(new URL('../../.local/', import.meta.url));

/** Null: the server was not requested. */
export interface StoreUrls {
  /** The URL of the role of the service. */
  readonly databaseUrl: string | null;
  /** The URL of the superuser, who owns the tables. */
  readonly migrationDatabaseUrl: string | null;
  readonly redisUrl: string | null;
}

type ServiceUrls = Pick<StoreUrls, 'databaseUrl' | 'redisUrl'>;

/** The name of the file. */
export const STORE_URLS = 'stores.env';
const fileOf = (folder: string) => join(folder, STORE_URLS);

/** Whether the servers of a folder are ready, and not stopping, if they run at all. */
export const hasStoreUrls = (folder: string): boolean => existsSync(fileOf(folder));

/** Replaces the file atomically. */
export function writeStoreUrls(folder: string, urls: StoreUrls): void {
  const { databaseUrl, migrationDatabaseUrl, redisUrl } = urls;
  const lines: string[] = [];
  if (databaseUrl !== null) lines.push(`DATABASE_URL='${databaseUrl}'\n`);
  if (migrationDatabaseUrl !== null) lines.push(`MIGRATION_DATABASE_URL='${migrationDatabaseUrl}'\n`);
  if (redisUrl !== null) lines.push(`REDIS_URL='${redisUrl}'\n`);
  const draft = `${fileOf(folder)}.new`;
  rmSync(draft, { force: true });
  writeFileSync(draft, lines.join(''), { mode: 0o600 });
  renameSync(draft, fileOf(folder));
}

/**
 * Detects that the folder of local servers was deleted: they keep running, but lose their data when they stop.
 * @returns a function that returns the problem, or null while the folder still names these servers
 */
export function folderCheck(folder: string, urls: ServiceUrls): () => string | null {
  const names = ({ databaseUrl, redisUrl }: ServiceUrls) =>
    (databaseUrl !== null && databaseUrl === urls.databaseUrl) ||
    (redisUrl !== null && redisUrl === urls.redisUrl);
  if (!names(readStoreUrls(folder))) return () => null; // the stores are not local
  return () =>
    names(readStoreUrls(folder))
      ? null
      : `${folder} was deleted. The stores answer until they need one of its files, and lose their data when they stop. Restart the service.`;
}

export function removeStoreUrls(folder: string): void {
  rmSync(fileOf(folder), { force: true });
}

/** The URLs of the servers that run on this folder; null for those that do not. */
export function readStoreUrls(folder: string): StoreUrls {
  let text: string;
  try {
    text = readFileSync(fileOf(folder), 'utf8');
  } catch (error) {
    if (systemCode(error) !== 'ENOENT') throw error;
    return { databaseUrl: null, migrationDatabaseUrl: null, redisUrl: null };
  }
  const find = (name: string) => new RegExp(`^${name}='(.+)'$`, 'm').exec(text)?.[1] ?? null;
  return {
    databaseUrl: find('DATABASE_URL'),
    migrationDatabaseUrl: find('MIGRATION_DATABASE_URL'),
    redisUrl: find('REDIS_URL'),
  };
}
