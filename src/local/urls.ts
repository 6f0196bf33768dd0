/**
 * Where a folder's servers answer, for commands beside the service and for a person's shell (`. .local/stores.env`). The
 * guardian writes the file when its servers are ready and removes it before they stop: one that it left behind, killed, names
 * ports where nobody answers, until the next start. The addresses have the password in them: only the owner may read it.
 * Nothing is exported: a service that the same shell starts later must not take these for stores of its own.
 */
import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { systemCode } from './errors.ts';

/** Of the stores that `npm start` starts: beside package.json. */
export const LOCAL_FOLDER = fileURLToPath(new URL('../../.local/', import.meta.url));

/** Null: no such server was asked for. */
export interface StoreUrls {
  readonly databaseUrl: string | null;
  readonly redisUrl: string | null;
}

const fileOf = (folder: string) => join(folder, 'stores.env');

/** Whole or not at all. */
export function writeStoreUrls(folder: string, { databaseUrl, redisUrl }: StoreUrls): void {
  const lines: string[] = [];
  if (databaseUrl !== null) lines.push(`DATABASE_URL='${databaseUrl}'\n`);
  if (redisUrl !== null) lines.push(`REDIS_URL='${redisUrl}'\n`);
  const draft = `${fileOf(folder)}.new`;
  rmSync(draft, { force: true });
  writeFileSync(draft, lines.join(''), { mode: 0o600 });
  renameSync(draft, fileOf(folder));
}

/**
 * Watches over the folder of local servers, which go on when it is deleted, and lose their data when they stop.
 * @returns says what is wrong while the folder does not name these servers any more; null: nothing is
 */
export function folderCheck(folder: string, urls: StoreUrls): () => string | null {
  const names = ({ databaseUrl, redisUrl }: StoreUrls) =>
    (databaseUrl !== null && databaseUrl === urls.databaseUrl) ||
    (redisUrl !== null && redisUrl === urls.redisUrl);
  if (!names(readStoreUrls(folder))) return () => null; // they are not local
  return () =>
    names(readStoreUrls(folder))
      ? null
      : `${folder} was deleted: the stores answer as long as they need none of its files, and their data is lost when they stop. Restart the service.`;
}

export function removeStoreUrls(folder: string): void {
  rmSync(fileOf(folder), { force: true });
}

/** Of the servers that run for this folder; null for those that do not. */
export function readStoreUrls(folder: string): StoreUrls {
  let text: string;
  try {
    text = readFileSync(fileOf(folder), 'utf8');
  } catch (error) {
    if (systemCode(error) !== 'ENOENT') throw error;
    return { databaseUrl: null, redisUrl: null };
  }
  const find = (name: string) => new RegExp(`^${name}='(.+)'$`, 'm').exec(text)?.[1] ?? null;
  return { databaseUrl: find('DATABASE_URL'), redisUrl: find('REDIS_URL') };
}
