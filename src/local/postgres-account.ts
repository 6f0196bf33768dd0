/**
 * The account that Postgres runs as. Postgres refuses to run as root, the usual account in containers and on cloud machines.
 *
 *   not root     as the current user
 *   root, Linux  1. in a user namespace that maps root to uid 65534. Files on disk still belong to root, so it works below
 *                   /root and in folders with mode 700. `unshare` executes the program in its own process, so pid and
 *                   signals are the server's.
 *                2. where namespaces are forbidden (Docker by default): as the folder's owner unless that is root, as
 *                   `postgres`, or as `nobody`; the data then belongs to that account
 *
 * The first account that can run the binary from the folder is used. (setpriv with dac_override does not work: Postgres calls
 * access(2), which checks the real uid.)
 */
import { execFile } from 'node:child_process';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { LocalStoreError } from './errors.ts';
import { SERVER_ENVIRONMENT } from './server-process.ts';

/** How to leave root; `auto` tries the ways in order. */
export type RootMode = 'auto' | 'namespace' | 'account';

export interface PostgresAccount {
  readonly name: string;
  /** Prepended to the command. */
  readonly prefix: readonly string[];
  /** Passed to spawn; null: the current user. */
  readonly ids: { readonly uid: number; readonly gid: number } | null;
  /** Owner of the data folder on disk. */
  readonly owner: { readonly uid: number; readonly gid: number };
}

const NAMESPACE = ['unshare', '--user', '--map-user=65534', '--map-group=65534'];

function accountsInPasswd(): Map<string, { uid: number; gid: number }> {
  const accounts = new Map<string, { uid: number; gid: number }>();
  if (!existsSync('/etc/passwd')) return accounts;
  for (const line of readFileSync('/etc/passwd', 'utf8').split('\n')) {
    const [name, , uid, gid] = line.split(':');
    if (name && uid && gid) accounts.set(name, { uid: Number(uid), gid: Number(gid) });
  }
  return accounts;
}

/** The owner of the folder, or of the nearest ancestor that root does not own. */
function folderOwner(folder: string): { uid: number; gid: number } | undefined {
  for (let path = folder; ; path = dirname(path)) {
    const { uid, gid } = statSync(path);
    if (uid !== 0) return { uid, gid };
    if (path === dirname(path)) return undefined;
  }
}

function rootCandidates(folder: string, mode: RootMode): PostgresAccount[] {
  const candidates: PostgresAccount[] = [];
  if (mode !== 'account' && process.platform === 'linux') {
    candidates.push({ name: 'unshare', prefix: NAMESPACE, ids: null, owner: { uid: 0, gid: 0 } });
  }
  if (mode === 'namespace') return candidates;
  const add = (name: string, ids: { uid: number; gid: number } | undefined) => {
    if (ids !== undefined && ids.uid > 0) candidates.push({ name, prefix: [], ids, owner: ids });
  };
  const passwd = accountsInPasswd();
  add('the owner of the folder', folderOwner(folder));
  add('postgres', passwd.get('postgres'));
  add('nobody', passwd.get('nobody'));
  return candidates;
}

/** Tests whether the account can enter the folder and run the binary. @returns null, or the error */
function probe(account: PostgresAccount, folder: string, binary: string): Promise<string | null> {
  const script = 'cd "$1" && exec "$2" --version';
  const [command, ...args] = [...account.prefix, '/bin/sh', '-c', script, 'sh', folder, binary];
  return new Promise((resolve) => {
    const options = { cwd: '/', env: SERVER_ENVIRONMENT, ...account.ids };
    try {
      execFile(command as string, args, options, (error, _stdout, stderr) =>
        resolve(error === null ? null : stderr.trim() || error.message),
      );
    } catch (error) {
      resolve(String(error));
    }
  });
}

/** Chooses the account for a server whose data folder lies in `folder`. */
export async function choosePostgresAccount(
  folder: string,
  binary: string,
  mode: RootMode = 'auto',
): Promise<PostgresAccount> {
  const uid = process.getuid?.() ?? -1;
  const gid = process.getgid?.() ?? -1;
  if (uid !== 0) return { name: 'the current user', prefix: [], ids: null, owner: { uid, gid } };
  const errors: string[] = [];
  for (const account of rootCandidates(folder, mode)) {
    const error = await probe(account, folder, binary);
    if (error === null) return account;
    errors.push(`  as ${account.name}: ${error.replaceAll('\n', ' ')}`);
  }
  throw new LocalStoreError(
    'postgres-account',
    `Postgres refuses to run as root, and no other account can access both ${binary} and ${folder}:\n${errors.join('\n')}\nStart as an unprivileged user, move the project to a folder that others may enter (mode 755 on every level, for example below /srv), or set DATABASE_URL to your own Postgres.`,
  );
}
