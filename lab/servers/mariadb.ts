/**
 * A private MariaDB on loopback, or that of MARIADB_URL. For the suite `innodb`.
 *
 *   installed? ─no─▶ apt-get as root on Debian, else an error with the command ─▶ empty data folder ─▶ serves ─▶ killed
 *
 * Started by root, it runs as its package's account `mysql`: it refuses to run as root.
 */
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmod, chown, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type Connection, createConnection } from 'mysql2/promise';
import { findProgram } from '../../src/local/redis-binary.ts';
import { installPackage } from '../../src/local/redis-install.ts';
import { freePort, launch } from '../../src/local/server-process.ts';
import { reasonOf } from '../kit/text.ts';
import { untilServes } from './until-serves.ts';

const START_MS = 60_000;
const USER = 'stampede';
const ACCOUNT = 'mysql';
const run = promisify(execFile);
const isRoot = process.getuid?.() === 0;

/** Where Debian's package and Homebrew put the server, besides PATH. */
const FOLDERS = ['/usr/sbin', '/usr/bin', '/usr/local/bin', '/opt/homebrew/bin'];
const find = (name: string): string | null => findProgram(name, { folders: FOLDERS });

/** @returns null when it is there or could be installed, or why not and what to do */
export async function whyNoMariadb(): Promise<string | null> {
  if (process.env.MARIADB_URL || find('mariadbd') !== null) return null;
  const how =
    'apt-get install mariadb-server (Debian, Ubuntu), or set MARIADB_URL=mysql://user:password@host:port';
  if (!isRoot || find('apt-get') === null) return `no MariaDB on this machine: ${how}`;
  const failed = await installPackage('mariadb-server', 'mariadb').then(() => null, reasonOf);
  return failed === null ? null : `MariaDB could not be installed: ${how}\n${failed}`;
}

export type Mariadb = Awaited<ReturnType<typeof openMariadb>>;

/** The server of MARIADB_URL, whose user may create databases, or a new one. @param folder an empty one */
export async function openMariadb(folder: string) {
  const url = process.env.MARIADB_URL;
  const local = url ? null : await start(folder);
  const uri = url ?? local!.url;
  const connect = (name?: string) => {
    const database = name === undefined ? {} : { database: name };
    return createConnection({ uri, ...database });
  };
  const once = async <T>(work: (connection: Connection) => Promise<T>): Promise<T> => {
    const connection = await connect();
    return await work(connection).finally(() => connection.end());
  };
  const [rows] = await once((connection) => connection.query('SELECT version() AS version'));
  return {
    version: (rows as { readonly version: string }[])[0]!.version,
    /** A connection to a database, which the caller ends. */
    connect,
    /** Makes an empty database. Disposing drops it. */
    async database(name: string) {
      await once((connection) => connection.query(`CREATE DATABASE ${name}`));
      return {
        async [Symbol.asyncDispose]() {
          await once((connection) => connection.query(`DROP DATABASE ${name}`));
        },
      };
    },
    async [Symbol.asyncDispose]() {
      await local?.kill();
    },
  };
}

async function start(folder: string): Promise<{ readonly url: string; kill(): Promise<void> }> {
  const data = join(folder, 'data');
  const temporary = join(folder, 'tmp'); // the account may have no access to TMPDIR
  for (const path of [data, temporary]) await mkdir(path);
  const [installer, command] = [find('mariadb-install-db'), find('mariadbd')];
  if (installer === null || command === null) throw new Error((await whyNoMariadb()) ?? 'no mariadbd');
  if (isRoot) await giveTo(ACCOUNT, [folder, data, temporary]);
  const account = isRoot ? [`--user=${ACCOUNT}`] : [];
  const place = [`--datadir=${data}`, `--tmpdir=${temporary}`, ...account];
  await run(installer, [
    '--no-defaults',
    ...place,
    '--skip-test-db',
    '--auth-root-authentication-method=normal',
  ]);
  const password = randomBytes(12).toString('hex');
  const init = join(data, 'init.sql');
  const grants = [`CREATE USER ${USER} IDENTIFIED BY '${password}'`, `GRANT ALL ON *.* TO ${USER}`];
  await writeFile(init, grants.map((text) => `${text};\n`).join(''), { mode: 0o644 });
  const port = await freePort();
  const network = [`--port=${port}`, '--bind-address=127.0.0.1', `--socket=${join(data, 'socket')}`];
  const args = ['--no-defaults', ...place, ...network, `--init-file=${init}`, '--skip-name-resolve'];
  const server = await launch(
    { command, args, cwd: data, log: join(folder, 'mariadb.log') },
    'postgres-failed',
  );
  const url = `mysql://${USER}:${password}@127.0.0.1:${port}`;
  await untilServes(server, 'MariaDB', START_MS, async () => {
    const connection = await createConnection(url).catch(() => null);
    await connection?.end();
    return connection !== null;
  });
  return { url, kill: () => server.kill() };
}

/** Gives folders to the account, which must be able to enter those above. */
async function giveTo(account: string, folders: readonly string[]): Promise<void> {
  const idOf = async (option: string) => Number((await run('id', [option, account])).stdout);
  const [uid, gid] = [await idOf('-u'), await idOf('-g')];
  for (const folder of folders) {
    await chown(folder, uid, gid);
    await chmod(folder, 0o755);
  }
}
