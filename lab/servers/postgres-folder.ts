/** One initdb for a run: the folder of every server but the first is a copy. */
import { execFile } from 'node:child_process';
import { existsSync, rmSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { SERVICE_ROLE } from '../../src/local/postgres-roles.ts';
import {
  type PostgresOptions,
  type PostgresServer,
  startPostgresServer,
} from '../../src/local/postgres-server.ts';
import { migrate } from '../../src/service/startup.ts';
import { temporaryFolder } from '../kit/temporary-folder.ts';
import { withPostgres } from './stores.ts';

/** A database with all migrations, on each server that `startPostgres` starts with the programs of the npm package. */
export const MIGRATED = 'stampede_template';

/** Names the folder that is copied, also for child processes. */
const VARIABLE = 'STAMPEDE_LAB_POSTGRES';
let made: Promise<string> | null = null;

/** Starts a Postgres as `startPostgresServer` does; a new folder is a copy of the run's. */
export async function startPostgres(options: PostgresOptions): Promise<PostgresServer> {
  const { folder, binaries, password } = options;
  const isNew = !existsSync(join(folder, 'data')) && binaries === undefined && password === undefined;
  if (isNew) await copyTo(folder);
  return startPostgresServer(options);
}

async function copyTo(folder: string): Promise<void> {
  made ??= process.env[VARIABLE] === undefined ? makeForProcess() : Promise.resolve(process.env[VARIABLE]);
  await mkdir(folder, { recursive: true });
  await promisify(execFile)('cp', ['-a', `${await made}/.`, folder]);
}

async function makeForProcess(): Promise<string> {
  const folder = await temporaryFolder('stampede-postgres-');
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  await makePostgresFolder(join(folder, 'postgres'));
  return join(folder, 'postgres');
}

/** Makes the folder that `startPostgres` copies in this process, and in those that it starts from now on. */
export async function makePostgresFolder(folder: string): Promise<void> {
  const server = await startPostgresServer({ folder, args: ['-c', 'fsync=off'] });
  try {
    await withPostgres(server.url('postgres'), (client) => client.query(`CREATE DATABASE ${MIGRATED}`));
    await migrate(server.url(MIGRATED), SERVICE_ROLE);
  } finally {
    await server.stop();
  }
  process.env[VARIABLE] = folder;
}
