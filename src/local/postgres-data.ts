/**
 * Prepares the Postgres data folder before a server opens it.
 *
 *   (missing) ──initdb in data.new-*, then one rename──▶ data
 *
 * The rename makes an interrupted initdb harmless: `data` is complete or absent. Old data.new-* folders are removed. Postgres
 * handles a stale postmaster.pid itself (its shared memory key shows whether old backends still run), except in two cases:
 * another process has that pid now, or the file is damaged.
 */
import { randomBytes } from 'node:crypto';
import { chownSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync } from 'node:fs';
import { rm, rmdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { LocalStoreError } from './errors.ts';
import { identify } from './processes.ts';
import { copyFolders, copyProgram } from './program-copy.ts';
import { changeOwner, pathWithin, type ServerAccount } from './server-account.ts';
import { launch } from './server-process.ts';
import type { Watcher } from './watcher.ts';

export const POSTGRES_USER = 'stampede';

/** Larger than any pid: Linux stops at 2^22, macOS far below. */
const UNUSED_PID = 2_147_483_646;

export interface DataFolderOptions {
  /** Contains `data` and the log. */
  readonly folder: string;
  readonly initdb: string;
  /** Such as 18. */
  readonly major: number;
  readonly account: ServerAccount;
  readonly password: string;
  /** False skips the flush at the end of initdb, useless for a server without fsync. */
  readonly sync: boolean;
  readonly say: (line: string) => void;
  readonly watcher?: Watcher | undefined;
}

/** initdb runs `"<its folder>/postgres" -V` in a shell, which these characters end or change. */
const SHELL_CHARACTERS = /["$`\\]/;

async function initialize(options: DataFolderOptions, data: string): Promise<void> {
  const { account, folder } = options;
  const draft = join(folder, `data.new-${randomBytes(4).toString('hex')}`);
  const draftData = join(draft, 'data');
  mkdirSync(draftData, { recursive: true, mode: 0o700 });
  await writeFile(join(draft, 'password'), options.password, { mode: 0o600 });
  const { uid, gid } = account.named;
  for (const path of [draft, draftData, join(draft, 'password')]) chownSync(path, uid, gid);
  const within = pathWithin(draftData, account);
  const args = ['-D', within, '-U', POSTGRES_USER, `--pwfile=${within}/../password`];
  args.push('--auth=scram-sha-256', '--locale=C', '--encoding=UTF8', '--no-instructions');
  if (!options.sync) args.push('--no-sync');
  const { initdb: path } = options;
  const program = { path, tree: dirname(dirname(path)) };
  const isRead = (folder: string) => !SHELL_CHARACTERS.test(folder);
  const command = isRead(path) ? path : copyProgram(program, copyFolders().find(isRead)!);
  const initdb = await launch(
    {
      command,
      args,
      cwd: draftData,
      log: join(folder, 'initdb.log'),
      watcher: options.watcher,
      ...(account.ids === null ? {} : account.named),
    },
    'postgres-failed',
  );
  const end = await initdb.ended;
  if (end === 'exit code 0') renameSync(draftData, data);
  await rm(draft, { recursive: true, force: true, maxRetries: 5 });
  if (end === 'exit code 0') return;
  throw new LocalStoreError(
    'postgres-failed',
    `Postgres's initdb failed (${end}). Last lines of ${join(folder, 'initdb.log')}:\n${initdb.tail()}`,
  );
}

/**
 * How to recover from damaged data. A Redis beside the database mirrors the sales of the old database, whose ids a new database
 * reuses for others: both folders must be removed together.
 */
export function recoveryAdvice(folder: string): string {
  const redis = join(dirname(folder), 'redis');
  const folders = existsSync(redis) ? `${folder} and ${redis}` : folder;
  return `If the data is damaged, restore a copy of ${folder}, or delete ${folders} (or move them away) to start with an empty database. All sales, orders and points in it are then lost.`;
}

function checkVersion(data: string, major: number): void {
  const file = join(data, 'PG_VERSION');
  if (!existsSync(file)) {
    throw new LocalStoreError(
      'folder-unusable',
      `${data} is not a Postgres data folder (it has no PG_VERSION). ${recoveryAdvice(dirname(data))}`,
    );
  }
  const version = readFileSync(file, 'utf8').trim();
  if (version === String(major)) return;
  throw new LocalStoreError(
    'postgres-version',
    `${data} was created by Postgres ${version}, but this is Postgres ${major}. Delete or move that folder to start with an empty database, or export its data with the earlier version of this project.`,
  );
}

/** See the header. The caller has checked that no server runs on this folder. */
async function repairPidFile(data: string): Promise<void> {
  const file = join(data, 'postmaster.pid');
  if (!existsSync(file)) return;
  const lines = readFileSync(file, 'utf8').split('\n');
  const pid = Number(lines[0]);
  if (!Number.isSafeInteger(pid) || pid <= 0) await rm(file);
  else if (identify(pid) !== null) await writeFile(file, [UNUSED_PID, ...lines.slice(1)].join('\n'));
}

/** Prepares `folder/data` for a server, and runs initdb at the first start. @returns its path */
export async function prepareDataFolder(options: DataFolderOptions): Promise<string> {
  const { folder, account } = options;
  const data = join(folder, 'data');
  await changeOwner(folder, account);
  for (const name of readdirSync(folder)) {
    if (name.startsWith('data.new-'))
      await rm(join(folder, name), { recursive: true, force: true, maxRetries: 5 });
  }
  await rmdir(data).catch(() => {}); // removes an empty folder made by mkdir or a mount
  if (!existsSync(data)) {
    options.say(`Preparing a local Postgres in ${folder} (first start only)`);
    await initialize(options, data);
  }
  checkVersion(data, options.major);
  await changeOwner(data, account);
  await repairPidFile(data);
  return data;
}
