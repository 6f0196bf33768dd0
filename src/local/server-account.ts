/**
 * The account that a local server runs as. Root's servers run as another one, to which their data belongs: the first that can run the program of
 * the folder's owner (unless root), the account of the server's package, a user id without an account, and `nobody`.
 *
 * The account need not be able to enter the folders above the data: on Linux a server is started in its data folder, and finds it as
 * `/proc/self/cwd`. libuv changes the directory before it drops the user id. A program out of reach is copied: see program-copy.ts.
 */
import { execFile } from 'node:child_process';
import { existsSync, lchownSync, mkdirSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { LocalStoreError } from './errors.ts';
import { copyFolders, copyProgram, type Program } from './program-copy.ts';
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
  /** For initdb, which refuses a user id without an account; otherwise the same as `owner`. */
  readonly named: Ids;
}

interface Wanted {
  readonly server: 'Postgres' | 'Redis';
  /** The server's data is in a subfolder, which is given to the account. */
  readonly folder: string;
  readonly program: Program;
}

/** User ids that neither distributions nor systemd give to accounts (systemd's table calls them unused). */
const UNNAMED_IDS = { from: 65_520, to: 65_533 };

const entersByCwd = process.platform === 'linux';

/** The path by which a server of the account reaches the folder that it is started in. */
export const pathWithin = (folder: string, { ids }: ServerAccount): string =>
  ids !== null && entersByCwd ? '/proc/self/cwd' : folder;

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

/** The owner of the folder, or of the nearest ancestor that root does not own; null: root owns all of them. */
function folderOwner(folder: string): Ids | null {
  const owned = ancestors(folder)
    .map((path) => statSync(path))
    .findLast(({ uid }) => uid !== 0);
  return owned === undefined ? null : { uid: owned.uid, gid: owned.gid };
}

function candidates({ server, folder }: Wanted): ServerAccount[] {
  const found: ServerAccount[] = [];
  const add = (name: string, ids: Ids | null | undefined, named = ids) => {
    if (!ids || !named || ids.uid === 0) return;
    found.push({ name, ids, owner: ids, named });
  };
  const passwd = accountsInPasswd();
  const named = new Set([...passwd.values()].map(({ uid }) => uid));
  const own = server.toLowerCase();
  const owner = folderOwner(folder);
  if (owner !== null && named.has(owner.uid)) add('the owner of the folder', owner);
  add(own, passwd.get(own));
  const nobody = passwd.get('nobody');
  for (let uid = UNNAMED_IDS.from; entersByCwd && uid <= UNNAMED_IDS.to; uid++) {
    if (named.has(uid)) continue;
    add(`user id ${uid}`, { uid, gid: uid }, nobody);
    break;
  }
  add('nobody', nobody);
  return found;
}

/** Tests whether the account can run the program, and enter the folder where it has to. @returns null, or the error */
function probe({ ids }: ServerAccount, folder: string, program: string): Promise<string | null> {
  const args = ['-c', 'cd "$1" && exec "$2" --version', 'sh', entersByCwd ? '/' : folder, program];
  return new Promise((resolve) => {
    const options = { cwd: '/', env: SERVER_ENVIRONMENT, ...ids };
    try {
      execFile('/bin/sh', args, options, (error, _stdout, stderr) =>
        resolve(error === null ? null : stderr.trim() || error.message),
      );
    } catch (error) {
      resolve(String(error)); // a container may not know the user id
    }
  });
}

/**
 * Chooses the account, and the path by which it runs the program.
 * @throws LocalStoreError `server-account` when this is root and no other account can be used
 */
export async function chooseAccount(wanted: Wanted): Promise<{ account: ServerAccount; program: string }> {
  const { folder, program } = wanted;
  const uid = process.getuid?.() ?? -1;
  const self = { uid, gid: process.getgid?.() ?? -1 };
  if (uid !== 0)
    return {
      account: { name: 'the current user', ids: null, owner: self, named: self },
      program: program.path,
    };
  const errors: string[] = [];
  const places = [() => program.path, ...copyFolders().map((parent) => () => copyProgram(program, parent))];
  for (const place of places) {
    const path = place();
    for (const account of candidates(wanted)) {
      const error = await probe(account, folder, path);
      if (error === null) return { account, program: path };
      errors.push(`  as ${account.name}: ${error.replaceAll('\n', ' ')}`);
    }
  }
  throw new LocalStoreError('server-account', refusal(wanted, errors));
}

function refusal({ server, folder, program }: Wanted, errors: readonly string[]): string {
  const account = server.toLowerCase();
  const variable = server === 'Postgres' ? 'DATABASE_URL' : 'REDIS_URL';
  const remedies = [
    errors.length === 0 && `add an account (useradd --system ${account})`,
    'start as an unprivileged user',
    `move the project${server === 'Redis' ? ', and the server,' : ''} to a folder that others may enter (mode 755 on every level, for example below /srv)`,
    `set ${variable} to your own ${server}`,
  ].filter((remedy) => remedy !== false);
  const text = `One of these helps:\n${remedies.map((remedy) => `  - ${remedy}`).join('\n')}`;
  return `The local ${server} does not run as root, and no other account can run ${program.path} in ${folder}:\n${errors.join('\n')}\n${text}`;
}

/** Creates the folder of a server's data. Where a server cannot find its data by `pathWithin`, its account enters those above. */
export function createDataFolder(path: string): void {
  mkdirSync(dirname(path), { recursive: true, mode: 0o755 });
  mkdirSync(path, { recursive: true, mode: 0o700 });
}

/** Changes the owner of a folder and what it contains: an earlier run may have used another account (root, or another user). */
export async function changeOwner(path: string, { owner }: Pick<ServerAccount, 'owner'>): Promise<void> {
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

/**
 * Gives what root wrote in another user's project to that user, whose next start needs it; a server's data belongs to its account.
 * @param folder of the stores
 */
export function giveToProjectOwner(folder: string): void {
  const owner = process.getuid?.() === 0 ? folderOwner(dirname(folder)) : null;
  if (owner === null) return;
  const own = readdirSync(folder).filter((name) => !['postgres', 'redis'].includes(name));
  for (const name of ['', ...own]) lchownSync(join(folder, name), owner.uid, owner.gid);
}
