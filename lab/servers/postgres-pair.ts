/**
 * A Postgres primary with a standby that replicates from it. For the lab, and for tests:
 *
 *   services ──▶ [proxy] primary ──replication──▶ [proxy] ──▶ standby ◀── [proxy] ◀── services
 */
import { execFile } from 'node:child_process';
import { appendFile, mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import type { PostgresServer } from '../../src/local/postgres-server.ts';
import { migrate } from '../../src/service/startup.ts';
import { eventually } from '../kit/eventually.ts';
import { removeFolder, temporaryFolder } from '../kit/temporary-folder.ts';
import { TcpProxy } from '../proxy.ts';
import { startPostgres } from './postgres-folder.ts';
import { withPostgres } from './stores.ts';

/** Without fsync: a killed server loses no writes, because the machine keeps running. */
const ARGS = ['fsync=off', 'wal_sender_timeout=2s', 'wal_receiver_timeout=2s'].flatMap((one) => ['-c', one]);

export interface PairOptions {
  /** A commit waits until the standby has it. */
  readonly synchronous: boolean;
  /** An empty folder; by default a temporary one, removed with the pair. */
  readonly folder?: string;
  /** False: the service migrates the database. */
  readonly migrated?: boolean;
  /** Additions to the primary's environment. */
  readonly environment?: Readonly<Record<string, string>>;
}

/** `cut`: it runs on, and neither services nor the standby reach it. */
export type Ending = 'kill' | 'cut' | 'stop';

export type PostgresPair = Awaited<ReturnType<typeof openPostgresPair>>;

export async function openPostgresPair(options: PairOptions) {
  const folder = options.folder ?? (await temporaryFolder('stampede-pair-'));
  await mkdir(folder, { recursive: true });
  const servers = await startServers(folder, options);
  const { standby, link, start } = servers;
  let { primary } = servers;
  const { port } = primary;
  const pools = new Map<PostgresServer, pg.Pool>();
  const poolOf = (server: PostgresServer): pg.Pool => {
    const pool = pools.get(server) ?? new pg.Pool({ connectionString: server.url(), max: 4 });
    if (!pools.has(server)) pool.on('error', () => {}); // the server was killed
    pools.set(server, pool);
    return pool;
  };
  let promotion: Promise<unknown> | null = null;
  const current = (): PostgresServer => (promotion === null ? primary : standby);
  const [toPrimary, toStandby] = [await TcpProxy.open({ port }), await TcpProxy.open({ port: standby.port })];
  const url = new URL(primary.url());
  const hosts = `127.0.0.1:${toPrimary.port},127.0.0.1:${toStandby.port}`;
  /** Ends the first primary, or cuts it off. */
  const end = async (how: Ending): Promise<void> => {
    if (how === 'cut') for (const one of [toPrimary, link]) one.set('black-hole');
    else await primary[how]();
  };
  /** Promotes the standby, once. @returns its port, past the proxies */
  const promote = async (): Promise<number> => {
    promotion ??= administer(standby, 'SELECT pg_promote()');
    await promotion;
    return standby.port;
  };
  return {
    /** Where the first primary listens, past the proxies. */
    port,
    ...{ end, promote },
    /** postgresql://…@h1:p1,h2:p2/…?target_session_attrs=read-write */
    url: `${url.href.replace(url.host, hosts)}?target_session_attrs=read-write`,
    /** URL of the current primary, past the proxies. */
    currentUrl: () => current().url(),
    /** Past the proxies. */
    standbyUrl: standby.url(),
    /** Connections to the primary; each test asks anew. */
    sql: () => poolOf(current()),
    /** From now on the standby gets nothing, and no server notices. @param caughtUp waits until it has everything */
    async cutReplication(caughtUp = true) {
      if (caughtUp) await untilCaughtUp(primary);
      link.set('lose-replies');
    },
    /** Starts the first primary again. */
    async restart() {
      primary = await start();
    },
    /** Ends every cut. */
    rejoin() {
      for (const one of [toPrimary, link]) one.set('pass');
    },
    /** Ends the primary, and promotes the standby. */
    async failOver(how: Ending) {
      await end(how);
      await promote();
    },
    async [Symbol.asyncDispose]() {
      await Promise.all([...pools.values()].map((pool) => pool.end()));
      await Promise.all([link, toPrimary, toStandby].map((one) => one.close()));
      await Promise.all([primary.kill(), standby.kill()]);
      if (options.folder === undefined) await removeFolder(folder);
    },
  };
}

/** The standby begins as a copy of the primary's files. */
async function startServers(folder: string, { synchronous, migrated = true, environment = {} }: PairOptions) {
  const [one, two] = [path.join(folder, 'one'), path.join(folder, 'two')];
  const first = await startPostgres({ folder: one, args: ARGS });
  const { port } = first;
  if (migrated) await migrate(first.url());
  await first.stop();
  await mkdir(two);
  await promisify(execFile)('cp', ['-a', `${one}/.`, two]);
  /** Starts a primary that ended. */
  const start = () => startPostgres({ folder: one, port, args: ARGS, environment });
  const primary = await start();
  const { username, password } = new URL(primary.url());
  /** The proxy of the replication. */
  const link = await TcpProxy.open({ port });
  const conninfo = `host=127.0.0.1 port=${link.port} user=${username} password=${decodeURIComponent(password)} application_name=standby`;
  const settings = path.join(two, 'data', 'postgresql.auto.conf');
  await appendFile(settings, `primary_conninfo = '${conninfo}'\n`);
  await writeFile(path.join(two, 'data', 'standby.signal'), '');
  const standby = await startPostgres({ folder: two, args: ARGS });
  if (synchronous) {
    await administer(primary, `ALTER SYSTEM SET synchronous_standby_names = 'standby'`);
    await administer(primary, 'SELECT pg_reload_conf()');
  }
  const state = synchronous ? 'sync' : 'async';
  await eventually(
    () => administer(primary, 'SELECT sync_state FROM pg_stat_replication'),
    ({ rows }) => rows[0]?.sync_state === state,
  );
  return { primary, standby, link, start };
}

async function untilCaughtUp(primary: PostgresServer): Promise<void> {
  await eventually(
    () => administer(primary, 'SELECT replay_lsn = pg_current_wal_lsn() AS all FROM pg_stat_replication'),
    ({ rows }) => rows[0]?.all === true,
  );
}

const administer = (server: PostgresServer, statement: string): Promise<pg.QueryResult> =>
  withPostgres(server.url('postgres'), (client) => client.query(statement));
