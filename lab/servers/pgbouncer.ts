/** A PgBouncer on loopback in front of a Postgres: the first `pgbouncer` on the PATH. It serves its databases to any user. */
import { execFileSync } from 'node:child_process';
import { chmod, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { findProgram } from '../../src/local/redis-binary.ts';
import { freePort, launch } from '../../src/local/server-process.ts';
import { untilServes } from './until-serves.ts';

const START_MS = 30_000;
/** What a connection of the service sends, and PgBouncer does not forward. */
const IGNORED =
  'statement_timeout,lock_timeout,idle_in_transaction_session_timeout,options,extra_float_digits';

/** @returns its path; null: it is not installed */
export const findPgBouncer = (): string | null =>
  findProgram('pgbouncer', { folders: ['/usr/sbin', '/usr/bin'] });

/** Whether it keeps prepared statements, which it does since 1.21 unless `max_prepared_statements` is 0. */
export function keepsStatements(program: string): boolean {
  const version = execFileSync(program, ['--version'], { encoding: 'utf8' });
  return Number(/^PgBouncer 1\.(\d+)/.exec(version)?.[1]) >= 21;
}

export type PgBouncer = Awaited<ReturnType<typeof openPgBouncer>>;

/** @param folder an empty one @param settings of its section [pgbouncer] */
export async function openPgBouncer(
  program: string,
  postgresUrl: string,
  folder: string,
  settings: Readonly<Record<string, string>>,
) {
  const { hostname, port: serverPort, username, password } = new URL(postgresUrl);
  const port = await freePort();
  const own = {
    ...{ listen_addr: '127.0.0.1', listen_port: port, unix_socket_dir: '', auth_type: 'any' },
    ...{ ignore_startup_parameters: IGNORED, ...settings },
    ...(process.getuid?.() === 0 && { user: 'nobody' }), // it refuses to run as root
  };
  const database = `* = host=${hostname} port=${serverPort} user=${username} password=${decodeURIComponent(password)}`;
  const lines = Object.entries(own).map(([name, value]) => `${name} = ${value}`);
  const file = join(folder, 'pgbouncer.ini');
  await writeFile(file, ['[databases]', database, '[pgbouncer]', ...lines, ''].join('\n'));
  await chmod(file, 0o600);
  const server = await launch(
    { command: program, args: [file], cwd: folder, log: join(folder, 'log') },
    'postgres-failed',
  );
  await untilServes(server, 'PgBouncer', START_MS, () => accepts(port));
  return {
    /** Of the same database, through PgBouncer, whose connections have the user of the given URL. */
    url: Object.assign(new URL(postgresUrl), { port: String(port) }).href,
    [Symbol.asyncDispose]: () => server.kill(),
  };
}

const accepts = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
