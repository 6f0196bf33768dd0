/**
 * The real servers under the schedules of one process: a Postgres and a Redis whose clocks are the virtual one. Between two schedules they
 * are emptied, and count from one again.
 */
import { createHash } from 'node:crypto';
import { chmodSync, existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import pg from 'pg';
import { serviceUrlOf } from '../../src/local/postgres-roles.ts';
import { startRedisServer } from '../../src/local/redis-server.ts';
import { scriptText } from '../../src/locks/adapters/scripts.ts';
import { temporaryFolder } from '../kit/temporary-folder.ts';
import { buildClock } from '../servers/open.ts';
import { MIGRATED, startPostgres } from '../servers/postgres-folder.ts';
import { PostgresBackends } from './postgres-backends.ts';
import { RedisBackends, redisCommand, withIdentity } from './redis-backends.ts';
import { real, START_MS, virtual } from './virtual.ts';

export interface ExploreServers extends AsyncDisposable {
  readonly postgres: PostgresBackends;
  readonly redis: RedisBackends;
  /** One connection of the owner: what it reads is not part of a schedule. */
  readonly sql: pg.Pool;
  /** The URL of the service, but for its port. */
  readonly databaseUrl: URL;
  /** What breaks a promise in what Postgres has committed; null: nothing. */
  wrong(): Promise<string | null>;
  /** Empties both. */
  reset(): Promise<void>;
  /** Copies what one logical Redis has into another. */
  copyRedis(from: number, to: number): Promise<void>;
  emptyRedis(server: number): Promise<void>;
  /** A client of a logical Redis; what it reads is not part of a schedule. */
  readRedis(server: number): Promise<Redis>;
}

const MEMORY = '/dev/shm';

/** Redis allows sixteen logical databases: the servers of a schedule. */
export const REDIS_SERVERS = 16;

/** Nothing in the background, no wait for a disk, and no timeout but those of the virtual clock. */
const POSTGRES_ARGS = Object.entries({
  fsync: 'off',
  full_page_writes: 'off',
  autovacuum: 'off',
  jit: 'off',
  deadlock_timeout: '1h',
  max_wal_size: '4GB',
}).flatMap(([name, value]) => ['-c', `${name}=${value}`]);

/** A thread that sleeps until an instant of the virtual clock would never sleep. */
const REDIS_ARGS = ['--appendonly', 'no', '--jemalloc-bg-thread', 'no'];

export async function openServers(): Promise<ExploreServers> {
  const folder = await temporaryFolder('stampede-explore-');
  const clock = await buildClock(folder);
  if (clock === null)
    throw new Error(
      'The explorer needs a C compiler named cc, for the clocks of the servers: apt-get install gcc',
    );
  // In memory, where there is such a folder: it is written with every event.
  const clockFile = join(existsSync(MEMORY) ? MEMORY : folder, `stampede-clock-${process.pid}`);
  writeFileSync(clockFile, Buffer.alloc(8));
  virtual.openClock(clockFile);
  const sockets = join(folder, 'sockets');
  mkdirSync(sockets, { mode: 0o777 });
  chmodSync(sockets, 0o777); // the servers have accounts of their own
  const redisSocket = join(sockets, 'redis');
  const environment = { LD_PRELOAD: clock, STAMPEDE_VIRTUAL_CLOCK: clockFile };
  const [postgres, redis] = await Promise.all([
    startPostgres({
      folder: join(folder, 'postgres'),
      args: [...POSTGRES_ARGS, '-c', `unix_socket_directories=${sockets}`],
      environment,
    }),
    startRedisServer({
      folder: join(folder, 'redis'),
      args: [...REDIS_ARGS, '--unixsocket', redisSocket, '--unixsocketperm', '777'],
      environment,
    }),
  ]);
  const admin = await connected(postgres.url('postgres'));
  await admin.query(`CREATE DATABASE explore TEMPLATE ${MIGRATED}`);
  await admin.query('ALTER DATABASE explore SET plan_cache_mode = force_generic_plan');
  await admin.end();
  await trustEverybody(folder, postgres.url('explore'));
  const sql = new pg.Pool({
    connectionString: postgres.url('explore'),
    ...{ max: 1, idleTimeoutMillis: 0, stream: () => new real.Socket() },
  });
  const reader = new Redis(redis.port);
  await sql.query(SCHEMA);
  const scripts = allScripts();
  for (const { text } of scripts) await reader.script('LOAD', text);
  const redisBackends = new RedisBackends(
    redisSocket,
    new Map(scripts.map(({ hash, name }) => [hash, name])),
  );
  return {
    postgres: new PostgresBackends({ sql, path: join(sockets, `.s.PGSQL.${postgres.port}`) }),
    redis: redisBackends,
    sql,
    databaseUrl: new URL(serviceUrlOf(postgres.url('explore'))),
    async wrong() {
      const { rows } = await sql.query<{ wrong: string | null }>({ name: 'wrong', text: WRONG });
      return rows[0]!.wrong;
    },
    async reset() {
      virtual.setNow(START_MS);
      await Promise.all([
        sql.query('SELECT explore.reset()'),
        redisBackends.control.ask(redisCommand('FLUSHALL', 'ASYNC')),
      ]);
    },
    async copyRedis(from, to) {
      const script = `redis.call('SELECT', ARGV[1]) for _, key in ipairs(redis.call('KEYS', '*')) do redis.call('COPY', key, key, 'DB', ARGV[2], 'REPLACE') end`;
      await redisBackends.control.ask(redisCommand('EVAL', script, 0, from, to));
    },
    async emptyRedis(server) {
      const script = `redis.call('SELECT', ARGV[1]) redis.call('FLUSHDB', 'ASYNC')`;
      await redisBackends.control.ask(redisCommand('EVAL', script, 0, server));
    },
    async readRedis(server) {
      await reader.select(server);
      return Object.assign(Object.create(reader), {
        info: async () => withIdentity(await reader.info(), server),
      });
    },
    async [Symbol.asyncDispose]() {
      reader.disconnect();
      await sql.end();
      await Promise.all([postgres.kill(), redis.kill()]);
      rmSync(clockFile, { force: true });
      await rm(folder, { recursive: true, force: true, maxRetries: 10 });
    },
  };
}

async function connected(connectionString: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString, stream: () => new real.Socket() });
  client.on('error', () => {});
  await client.connect();
  return client;
}

/** The connections of links say no password: the greeting of the server is the same for each. */
async function trustEverybody(folder: string, url: string): Promise<void> {
  writeFileSync(
    join(folder, 'postgres', 'data', 'pg_hba.conf'),
    'host all all 127.0.0.1/32 trust\nlocal all all trust\n',
  );
  const client = await connected(url);
  await client.query('SELECT pg_reload_conf()');
  // The postmaster reads the file a moment later.
  for (;;) {
    const probe = new pg.Client({
      connectionString: Object.assign(new URL(url), { password: '' }).href,
      stream: () => new real.Socket(),
    });
    probe.on('error', () => {});
    const isReady = await probe.connect().then(
      () => true,
      () => false,
    );
    await probe.end().catch(() => {});
    if (isReady) break;
    await new Promise((resolve) => real.setTimeout(resolve, 5));
  }
  await client.end();
}

/** The scripts that Redis may be sent. It has them from the start, so that no schedule is the first to send one. */
function allScripts() {
  const folder = fileURLToPath(new URL('../../lua/', import.meta.url));
  const files = ['lock', 'sale'].flatMap((part) =>
    readdirSync(join(folder, part)).map((file) => `${part}/${file}`),
  );
  return files.map((file) => {
    const name = file.replace(/\.lua$/, '');
    const text = scriptText(name);
    return { name, text, hash: createHash('sha1').update(text).digest('hex') };
  });
}

const SCHEMA = `
  CREATE SCHEMA explore;
  CREATE SEQUENCE explore.epochs;
  ALTER TABLE redis_epochs ALTER COLUMN epoch SET DEFAULT (1 + nextval('explore.epochs') * 1103515245 % 2147483646)::int;
  CREATE TABLE explore.timeline (n int NOT NULL);
  INSERT INTO explore.timeline VALUES (1);
  GRANT USAGE ON SCHEMA explore TO PUBLIC;
  GRANT SELECT ON explore.timeline TO PUBLIC;
  GRANT USAGE ON SEQUENCE explore.epochs TO PUBLIC;
  ALTER FUNCTION pg_catalog.pg_walfile_name(pg_lsn) RENAME TO real_walfile_name; -- a built-in one cannot be replaced
  CREATE FUNCTION pg_catalog.pg_walfile_name(lsn pg_lsn) RETURNS text LANGUAGE sql STABLE AS
    $$ SELECT lpad(to_hex(n), 8, '0') || '0000000000000000' FROM explore.timeline $$;

  CREATE FUNCTION explore.tables() RETURNS SETOF text LANGUAGE sql AS $$
    SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public' AND tablename <> '_prisma_migrations' ORDER BY 1 $$;

  DO $$
  DECLARE statements text := ''; name text;
  BEGIN
    FOR name IN SELECT * FROM explore.tables() LOOP
      statements := statements || format('DELETE FROM public.%s; ', name);
      EXECUTE format('CREATE TABLE explore.copy_%1$s (LIKE public.%1$s)', name);
    END LOOP;
    FOR name IN SELECT quote_ident(sequencename) FROM pg_sequences WHERE schemaname = 'public' LOOP
      statements := statements || format('PERFORM setval(%L, 1, false); ', 'public.' || name);
    END LOOP;
    EXECUTE format($f$
      CREATE FUNCTION explore.reset() RETURNS void LANGUAGE plpgsql SET session_replication_role = 'replica' AS $body$
      BEGIN %s PERFORM setval('explore.epochs', 1, false); UPDATE explore.timeline SET n = 1 WHERE n <> 1; END $body$ $f$, statements);
    SELECT string_agg(format('DELETE FROM explore.copy_%1$s; INSERT INTO explore.copy_%1$s SELECT * FROM public.%1$s; ', t), '') INTO statements FROM explore.tables() AS t;
    EXECUTE format($f$ CREATE FUNCTION explore.save() RETURNS void LANGUAGE plpgsql AS $body$ BEGIN %s END $body$ $f$, statements);
    SELECT string_agg(format('DELETE FROM public.%1$s; INSERT INTO public.%1$s SELECT * FROM explore.copy_%1$s; ', t), '') INTO statements FROM explore.tables() AS t;
    EXECUTE format($f$
      CREATE FUNCTION explore.promote() RETURNS void LANGUAGE plpgsql SET session_replication_role = 'replica' AS $body$
      BEGIN %s UPDATE explore.timeline SET n = n + 1; END $body$ $f$, statements);
  END $$;
`;

/** What breaks a promise in what Postgres has committed, in words; null: nothing. A prepared statement, which is planned once. */
const WRONG = `
    SELECT string_agg(what, '; ') AS wrong FROM (
      SELECT format('sale %s: %s sold of %s', id, sold + oversold, stock) AS what FROM sales WHERE sold > stock OR oversold > 0
      UNION ALL
      SELECT format('sale %s: sold is %s, active orders have %s units', s.id, s.sold + s.oversold, coalesce(sum(o.quantity), 0))
      FROM sales AS s LEFT JOIN orders AS o ON o.sale_id = s.id AND o.status IN ('pending', 'paid')
      GROUP BY s.id HAVING s.sold + s.oversold <> coalesce(sum(o.quantity), 0)
      UNION ALL
      SELECT format('%s has %s active orders of sale %s', user_id, count(*), sale_id) FROM orders
      WHERE status IN ('pending', 'paid') GROUP BY user_id, sale_id HAVING count(*) > 1
      UNION ALL
      SELECT format('order %s has %s refunds of payment %s', payload->>'orderId', count(*), payload->>'paymentNotificationId') FROM tasks
      WHERE kind = 'refund' GROUP BY payload->>'orderId', payload->>'paymentNotificationId' HAVING count(*) > 1
      UNION ALL
      SELECT format('order %s has points %s', o.id, p.points) FROM orders AS o
      CROSS JOIN LATERAL (SELECT coalesce(sum(points), 0) AS points FROM points_entries WHERE source_id LIKE o.id || '%' AND user_id = o.user_id) AS p
      WHERE p.points <> CASE WHEN o.status IN ('pending', 'paid') THEN points_earned(o.price_cents * o.quantity) ELSE 0 END
    ) AS found`;
