/**
 * The account that a local server runs as. Started as root, the usual user in containers and on cloud machines, Postgres and
 * Redis run as another account, to which their data then belongs: the owner of the folder unless that is root, the account that
 * the server's package creates (`postgres`, `redis`), or `nobody`. The first one that can run the program from the folder is used.
 * A spawn with uid and gid also drops the supplementary groups.
 *
 * A user namespace (`unshare --user`) would also work below folders that only root may enter, but its processes remain root's to
 * every other process and to the file system.
 */
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, statSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { promisify } from 'node:util';
import { LocalStoreError } from './errors.ts';
import { SERVER_ENVIRONMENT } from './server-process.ts';

interface Ids {
  readonly uid: number;
  readonly gid: number;
}

export interface ServerAccount {
  readonly name: string;
  /** Passed to spawn; null: the current user. */
  readonly ids: Ids | null;
  /** Owner of the data folder on disk. */
  readonly owner: Ids;
}

interface Wanted {
  readonly server: 'Postgres' | 'Redis';
  /** The server's data is in a subfolder, which is given to the account. */
  readonly folder: string;
  readonly binary: string;
}

function accountsInPasswd(): Map<string, Ids> {
  const accounts = new Map<string, Ids>();
  if (!existsSync('/etc/passwd')) return accounts;
  for (const line of readFileSync('/etc/passwd', 'utf8').split('\n')) {
    const [name, , uid, gid] = line.split(':');
    if (name && uid && gid) accounts.set(name, { uid: Number(uid), gid: Number(gid) });
  }
  return accounts;
}

function ancestors(path: string): string[] {
  return path === dirname(path) ? [path] : [...ancestors(dirname(path)), path];
}

/** The owner of the folder, or of the nearest ancestor that root does not own. */
function folderOwner(folder: string): Ids | undefined {
  return ancestors(folder)
    .map((path) => statSync(path))
    .findLast(({ uid }) => uid !== 0);
}

function candidates({ server, folder }: Wanted): ServerAccount[] {
  const found: ServerAccount[] = [];
  const add = (name: string, ids: Ids | undefined) => {
    if (ids === undefined || ids.uid === 0) return;
    const { uid, gid } = ids;
    found.push({ name, ids: { uid, gid }, owner: { uid, gid } });
  };
  const passwd = accountsInPasswd();
  const own = server.toLowerCase();
  const owner = folderOwner(folder);
  // initdb fails under a user id without an account.
  if ([...passwd.values()].some(({ uid }) => uid === owner?.uid)) add('the owner of the folder', owner);
  add(own, passwd.get(own));
  add('nobody', passwd.get('nobody'));
  return found;
}

/** Tests whether the account can enter the folder and run the binary. @returns null, or the error */
function probe({ ids }: ServerAccount, { folder, binary }: Wanted): Promise<string | null> {
  const args = ['-c', 'cd "$1" && exec "$2" --version', 'sh', folder, binary];
  return new Promise((resolve) => {
    const options = { cwd: '/', env: SERVER_ENVIRONMENT, ...ids };
    try {
      execFile('/bin/sh', args, options, (error, _stdout, stderr) =>
        resolve(error === null ? null : stderr.trim() || error.message),
      );
    } catch (error) {
      resolve(String(error));
    }
  });
}

/** Chooses the account. @throws LocalStoreError `server-account` when this is root and no other account can be used */
export async function chooseAccount(wanted: Wanted): Promise<ServerAccount> {
  const uid = process.getuid?.() ?? -1;
  const gid = process.getgid?.() ?? -1;
  if (uid !== 0) return { name: 'the current user', ids: null, owner: { uid, gid } };
  const errors: string[] = [];
  for (const account of candidates(wanted)) {
    const error = await probe(account, wanted);
    if (error === null) return account;
    errors.push(`  as ${account.name}: ${error.replaceAll('\n', ' ')}`);
  }
  throw new LocalStoreError('server-account', refusal(wanted, errors));
}

function refusal({ server, folder, binary }: Wanted, errors: readonly string[]): string {
  const closed = [...new Set([...ancestors(folder), ...ancestors(dirname(binary))])].filter(
    (path) => (statSync(path).mode & 0o001) === 0,
  );
  const account = server.toLowerCase();
  const variable = server === 'Postgres' ? 'DATABASE_URL' : 'REDIS_URL';
  const remedies = [
    errors.length === 0 && `add an account (useradd --system ${account})`,
    closed.length > 0 && `let other accounts pass through (chmod o+x ${closed.join(' ')})`,
    'start as an unprivileged user',
    'move the project to a folder that others may enter (mode 755 on every level, for example below /srv)',
    `set ${variable} to your own ${server}`,
  ].filter((remedy) => remedy !== false);
  const text = `One of these helps:\n${remedies.map((remedy) => `  - ${remedy}`).join('\n')}`;
  return `The local ${server} does not run as root, and no other account can access both ${binary} and ${folder}:\n${errors.join('\n')}\n${text}`;
}

/** Creates the folder of a server's data. The account must be able to enter those above it. */
export function createDataFolder(path: string): void {
  mkdirSync(dirname(path), { recursive: true, mode: 0o755 });
  mkdirSync(path, { recursive: true, mode: 0o700 });
}

/** Changes the owner of a folder and what it contains: an earlier run may have used another account (root, or another user). */
export async function changeOwner(path: string, { owner }: ServerAccount): Promise<void> {
  const { uid, gid } = owner;
  if ((await stat(path)).uid === uid) return;
  if (process.getuid?.() !== 0) {
    throw new LocalStoreError(
      'folder-unusable',
      `${path} belongs to another user, probably because an earlier run used another account (root?). Change its owner with: sudo chown -R ${uid}:${gid} ${path}`,
    );
  }
  await promisify(execFile)('chown', ['-R', `${uid}:${gid}`, path]);
}
