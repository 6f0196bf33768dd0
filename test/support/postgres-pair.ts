/**
 * A Postgres primary with a standby that replicates from it, and a database that both have:
 *
 *   services ──▶ [link] primary ──replication──▶ [link] ──▶ standby ◀── [link] ◀── services
 */
import { execFile } from 'node:child_process';
import { appendFile, chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { TcpProxy } from '../../bench/kit/proxy.ts';
import { type PostgresServer, startPostgresServer } from '../../src/local/postgres-server.ts';
import { migrate } from '../../src/store/postgres/migrate.ts';
import { eventually } from './client.ts';

const DATABASE = 'pair';
const ARGS = ['-c', 'wal_sender_timeout=2s', '-c', 'wal_receiver_timeout=2s'];

export interface PostgresPair extends AsyncDisposable {
  /** postgresql://…@h1:p1,h2:p2/…?target_session_attrs=read-write */
  readonly url: string;
  /** Connections to the server that is the primary now; each test asks anew. */
  sql(): pg.Pool;
  /** Waits until the standby has everything; from then on it gets nothing, and no server notices. */
  cutReplication(): Promise<void>;
  /** The primary ends as `how` says; then the standby is promoted. */
  failOver(how: Ending): Promise<void>;
}

/** `cut`: it runs on, and neither services nor the standby reach it. */
export type Ending = 'kill' | 'cut' | 'stop';

/** @param synchronous a commit waits until the standby has it */
export async function openPostgresPair(synchronous: boolean): Promise<PostgresPair> {
  const folder = await mkdtemp(path.join(tmpdir(), 'stampede-test-pair-'));
  await chmod(folder, 0o755); // as root, Postgres may have to run as an account that must be able to enter
  const [one, two] = [path.join(folder, 'one'), path.join(folder, 'two')];
  let primary = await startPostgresServer({ folder: one, args: ARGS });
  const { port } = primary;
  await administer(primary, `CREATE DATABASE ${DATABASE}`);
  await migrate(primary.url(DATABASE));
  await primary.stop();
  await mkdir(two);
  await promisify(execFile)('cp', ['-a', `${one}/.`, two]);
  primary = await startPostgresServer({ folder: one, port, args: ARGS });
  const { username, password } = new URL(primary.url());
  const link = await TcpProxy.open({ port });
  const conninfo = `host=127.0.0.1 port=${link.port} user=${username} password=${decodeURIComponent(password)} application_name=standby`;
  const settings = path.join(two, 'data', 'postgresql.auto.conf');
  await appendFile(settings, `primary_conninfo = '${conninfo}'\n`);
  await writeFile(path.join(two, 'data', 'standby.signal'), '');
  const standby = await startPostgresServer({ folder: two, args: ARGS });
  if (synchronous) {
    await administer(
      primary,
      `ALTER SYSTEM SET synchronous_standby_names = 'standby'`,
      'SELECT pg_reload_conf()',
    );
  }
  const state = synchronous ? 'sync' : 'async';
  await eventually(
    () => administer(primary, 'SELECT sync_state FROM pg_stat_replication'),
    ({ rows }) => rows[0]?.sync_state === state,
  );
  const pools: pg.Pool[] = [];
  const poolOf = (server: PostgresServer): pg.Pool => {
    const pool = new pg.Pool({ connectionString: server.url(DATABASE), max: 4 });
    pool.on('error', () => {}); // the server was killed
    pools.push(pool);
    return pool;
  };
  let sql = poolOf(primary);
  const url = new URL(primary.url(DATABASE));
  const [toPrimary, toStandby] = [await TcpProxy.open({ port }), await TcpProxy.open({ port: standby.port })];
  const hosts = `127.0.0.1:${toPrimary.port},127.0.0.1:${toStandby.port}`;
  return {
    url: `${url.href.replace(url.host, hosts)}?target_session_attrs=read-write`,
    sql: () => sql,
    async cutReplication() {
      await eventually(
        () => administer(primary, 'SELECT replay_lsn = pg_current_wal_lsn() AS all FROM pg_stat_replication'),
        ({ rows }) => rows[0]?.all === true,
      );
      link.set('lose-replies');
    },
    async failOver(how) {
      if (how === 'cut') for (const one of [toPrimary, link]) one.set('black-hole');
      else await primary[how]();
      await administer(standby, `ALTER SYSTEM SET synchronous_standby_names = ''`).catch(() => {});
      await administer(standby, 'SELECT pg_promote()');
      sql = poolOf(standby);
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(pools.map((pool) => pool.end()));
      await Promise.all([link, toPrimary, toStandby].map((one) => one.close()));
      await Promise.all([primary.kill(), standby.kill()]);
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** @returns the result of the last statement */
async function administer(server: PostgresServer, ...statements: readonly string[]): Promise<pg.QueryResult> {
  const client = new pg.Client({ connectionString: server.url('postgres') });
  await client.connect();
  try {
    let result: pg.QueryResult | undefined;
    for (const statement of statements) result = await client.query(statement);
    return result!;
  } finally {
    await client.end();
  }
}
