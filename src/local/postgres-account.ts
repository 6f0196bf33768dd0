/**
 * As whom Postgres runs. It refuses root, and root is what containers and rented machines give us.
 *
 *   not root     as ourselves.
 *   root, Linux  1. in a user namespace where our root is shown as uid 65534. Nothing changes on disk, files
 *                   stay root's, so it works below /root and in mode-700 folders. `unshare` executes the
 *                   program in its own process: the pid and its signals are the server's.
 *                2. plain Docker forbids namespaces: as the owner of the folder if that is a person (sudo in
 *                   one's own project), as `postgres`, as `nobody`; the data then belongs to that account.
 * The first account that can really run the binary from the folder is taken. (setpriv with dac_override is
 * no way: Postgres asks access(2), which looks at the real uid.)
 */
import { execFile } from 'node:child_process';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { LocalStoreError } from './errors.ts';
import { SERVER_ENVIRONMENT } from './server-process.ts';

/** Which of the ways to take as root; `auto` tries them in order. */
export type RootMode = 'auto' | 'namespace' | 'account';

export interface PostgresAccount {
  readonly name: string;
  /** Put before the command. */
  readonly prefix: readonly string[];
  /** Given to spawn; null: our own. */
  readonly ids: { readonly uid: number; readonly gid: number } | null;
  /** Who owns the data folder on disk. */
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

/** The person whose folder this is: the nearest owner on the way up who is not root. */
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

/** Null when the account can enter the folder and run the binary, else why not. */
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
  if (uid !== 0) return { name: 'ourselves', prefix: [], ids: null, owner: { uid, gid } };
  const refusals: string[] = [];
  for (const account of rootCandidates(folder, mode)) {
    const refusal = await probe(account, folder, binary);
    if (refusal === null) return account;
    refusals.push(`  as ${account.name}: ${refusal.replaceAll('\n', ' ')}`);
  }
  throw new LocalStoreError(
    'postgres-account',
    `Postgres refuses to run as root, and nobody else can reach both ${binary} and ${folder}:\n${refusals.join('\n')}\nStart as an ordinary user, or move the project to a folder that others may enter (mode 755 all the way up, for example below /srv), or set DATABASE_URL to a Postgres of yours.`,
  );
}
