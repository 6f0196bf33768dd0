/**
 * Postgres's data folder, before a server opens it.
 *
 *   (missing) ──initdb in data.new-*, then one rename──▶ data
 *
 * The rename is what makes a half-finished initdb harmless: `data` is complete or absent, whatever died.
 * Left-over data.new-* folders are swept. A stale postmaster.pid is Postgres's own business (it reads the
 * shared memory key in it to see whether old backends still run), except for the two cases in which
 * Postgres gives up: the pid is somebody else's by now, or the file is damaged.
 */
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chownSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync } from 'node:fs';
import { rm, rmdir, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { LocalStoreError, throwIfAborted } from './errors.ts';
import type { PostgresAccount } from './postgres-account.ts';
import type { PostgresBinaries } from './postgres-binaries.ts';
import { identify, sendSignal } from './processes.ts';
import { launch } from './server-process.ts';

export const POSTGRES_USER = 'stampede';

/** No pid reaches this: Linux stops at 2^22, macOS far below. */
const PID_OF_NOBODY = 2_147_483_646;

export interface DataFolderOptions {
  /** Holds `data` and the log. */
  readonly folder: string;
  readonly binaries: PostgresBinaries;
  readonly account: PostgresAccount;
  readonly password: string;
  /** False skips the flush at the end of initdb (a server without fsync has no use for it). */
  readonly sync: boolean;
  readonly say: (line: string) => void;
  readonly signal?: AbortSignal;
}

/** An earlier run may have used another account (sudo, or a kernel that allows namespaces). */
async function giveTo(path: string, account: PostgresAccount): Promise<void> {
  const { uid, gid } = account.owner;
  if ((await stat(path)).uid === uid) return;
  if (process.getuid?.() !== 0) {
    throw new LocalStoreError(
      'folder-unusable',
      `${path} belongs to another user: an earlier run was made as somebody else (root?). Take it over with: sudo chown -R ${uid}:${gid} ${path}`,
    );
  }
  await promisify(execFile)('chown', ['-R', `${uid}:${gid}`, path]);
}

async function initialise(options: DataFolderOptions, data: string): Promise<void> {
  const { account, binaries, folder } = options;
  const draft = join(folder, `data.new-${randomBytes(4).toString('hex')}`);
  mkdirSync(draft, { mode: 0o700 });
  const passwordFile = join(draft, 'password');
  await writeFile(passwordFile, options.password, { mode: 0o600 });
  for (const path of [draft, passwordFile]) chownSync(path, account.owner.uid, account.owner.gid);
  const args = ['-D', join(draft, 'data'), '-U', POSTGRES_USER, `--pwfile=${passwordFile}`];
  args.push('--auth=scram-sha-256', '--locale=C', '--encoding=UTF8', '--no-instructions');
  if (!options.sync) args.push('--no-sync');
  const [command, ...rest] = [...account.prefix, binaries.initdb, ...args];
  const initdb = await launch(
    {
      command: command as string,
      args: rest,
      cwd: folder,
      log: join(folder, 'initdb.log'),
      detached: true,
      ...account.ids,
    },
    'postgres-failed',
  );
  // initdb runs servers of its own: its whole group has to go.
  const abort = () => sendSignal(-initdb.pid, 'SIGKILL');
  options.signal?.addEventListener('abort', abort, { once: true });
  if (options.signal?.aborted) abort();
  const end = await initdb.ended;
  options.signal?.removeEventListener('abort', abort);
  if (end === 'exit code 0') renameSync(join(draft, 'data'), data);
  await rm(draft, { recursive: true, force: true, maxRetries: 5 });
  throwIfAborted(options.signal);
  if (end === 'exit code 0') return;
  throw new LocalStoreError(
    'postgres-failed',
    `Postgres's initdb failed (${end}). Its last lines, from ${join(folder, 'initdb.log')}:\n${initdb.tail()}`,
  );
}

/**
 * What a person can do whose data is damaged. A Redis beside it mirrors sales of the old database, and a new database gives
 * their numbers to others: the two folders go together.
 */
export function wayOut(folder: string): string {
  const redis = join(dirname(folder), 'redis');
  const folders = existsSync(redis) ? `${folder} and ${redis}` : folder;
  return `If the data is damaged, restore a copy of ${folder}; or move ${folders} away (or delete) and start again with an empty database: all sales, orders and points that were in it are then lost.`;
}

function checkVersion(data: string, major: number): void {
  const file = join(data, 'PG_VERSION');
  if (!existsSync(file)) {
    throw new LocalStoreError(
      'folder-unusable',
      `${data} is not a Postgres data folder (no PG_VERSION in it). ${wayOut(dirname(data))}`,
    );
  }
  const version = readFileSync(file, 'utf8').trim();
  if (version === String(major)) return;
  throw new LocalStoreError(
    'postgres-version',
    `${data} was made by Postgres ${version}, and this is Postgres ${major}. Move that folder away or delete it to start from an empty database, or run the earlier version of this project on it to export its data.`,
  );
}

/** See the header. The caller has made sure that no server runs on this folder. */
async function mendPidFile(data: string): Promise<void> {
  const file = join(data, 'postmaster.pid');
  if (!existsSync(file)) return;
  const lines = readFileSync(file, 'utf8').split('\n');
  const pid = Number(lines[0]);
  if (!Number.isSafeInteger(pid) || pid <= 0) await rm(file);
  else if (identify(pid) !== null) await writeFile(file, [PID_OF_NOBODY, ...lines.slice(1)].join('\n'));
}

/** Makes `folder/data` ready for a server, initialising it at the first time. Returns its path. */
export async function prepareDataFolder(options: DataFolderOptions): Promise<string> {
  const { folder, account } = options;
  const data = join(folder, 'data');
  await giveTo(folder, account);
  for (const name of readdirSync(folder)) {
    if (name.startsWith('data.new-'))
      await rm(join(folder, name), { recursive: true, force: true, maxRetries: 5 });
  }
  await rmdir(data).catch(() => {}); // an empty one, from a person's mkdir or a mount
  throwIfAborted(options.signal);
  if (!existsSync(data)) {
    options.say(`Preparing a local Postgres in ${folder} (the first start only)`);
    await initialise(options, data);
  }
  checkVersion(data, options.binaries.major);
  await giveTo(data, account);
  await mendPidFile(data);
  return data;
}
