/**
 * The real servers under the schedules of one process: a Postgres and a Redis whose clocks are the virtual one. Between two schedules they
 * are emptied, and count from one again.
 */
import { createHash } from 'node:crypto';
import { chmodSync, existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import pg from 'pg';
import { serviceUrlOf } from '../../src/local/postgres-roles.ts';
import { startRedisServer } from '../../src/local/redis-server.ts';
import { scriptText } from '../../src/locks/adapters/scripts.ts';
import { removeFolder, temporaryFolder } from '../kit/temporary-folder.ts';
import { buildClock } from '../servers/open.ts';
import { MIGRATED, startPostgres } from '../servers/postgres-folder.ts';
import { PostgresBackends } from './postgres-backends.ts';
import { Connection, Prepared, startup } from './postgres-connection.ts';
import { RedisBackends, redisCommand, withIdentity } from './redis-backends.ts';
import { ADD_SALES, COPY, EMPTY, LOADED, RESERVATIONS, RESERVED, SCHEMA } from './server-texts.ts';
import { STANDBY, Standby } from './standby.ts';
import { real, virtual } from './virtual.ts';
import { PRICE_CENTS } from './workload.ts';

/** The synchronous standby. */
export interface StandbyControl {
  /** Whether a commit waits for it. */
  isAwaited(): boolean;
  /** It has everything that is committed, and says so. */
  confirm(): Promise<void>;
  /** From now on commits may be visible that it lacks: it has what is visible now, until it confirms again. */
  fallsBehind(): Promise<void>;
  /** It is the primary now, with what it has. Every connection was closed before. */
  promote(): Promise<void>;
}

interface NewSale {
  readonly id: number;
  readonly stock: number;
  readonly maxPerOrder: number;
}

export interface ExploreServers {
  readonly postgres: PostgresBackends;
  readonly redis: RedisBackends;
  /** One connection of the owner: what it reads is not part of a schedule. */
  readonly sql: pg.Pool;
  /** The URL of the service, but for its port. */
  readonly databaseUrl: URL;
  /** The ids of the orders that Postgres has. */
  committed(): Promise<readonly string[]>;
  /** Empties both. */
  reset(): Promise<void>;
  /** Adds sales. Their rows are committed, and nothing has loaded them. */
  addSales(sales: readonly NewSale[]): Promise<void>;
  /** When orders were closed, by their ids; µs since 1970. */
  closings(): Promise<ReadonlyMap<string, number>>;
  /**
   * Reservations in a logical Redis, of the sales that were loaded there last.
   * @param left others: a sale that one of them is about to be loaded in is left out
   */
  reservations(server: number, left?: readonly number[]): Promise<readonly Reserved[]>;
  /** The ids of the orders that are reserved in any of some logical Redises, in whatever copy of a sale. */
  reserved(servers: readonly number[]): Promise<ReadonlySet<string>>;
  /** Null: commits wait for no standby. */
  readonly standby: StandbyControl | null;
  /** Copies what one logical Redis has into another. */
  copyRedis(from: number, to: number): Promise<void>;
  emptyRedis(server: number): Promise<void>;
  /** A client of a logical Redis; what it reads is not part of a schedule. */
  readRedis(server: number): Promise<Redis>;
}

export interface Reserved {
  readonly orderId: string;
  readonly saleId: number;
  readonly units: number;
  /** Units of its sale that Postgres has not sold. */
  readonly free: number;
}

const sum = (counts: readonly number[]): number => counts.reduce((total, count) => total + count, 0);

/** In memory, where there is such a folder and no other is given: the clock is written with every event, and Postgres with every commit. */
const MEMORY = process.env.TMPDIR === undefined && existsSync('/dev/shm') ? '/dev/shm' : undefined;

/** Redis allows sixteen logical databases: the servers of a schedule. */
export const REDIS_SERVERS = 16;

/** Nothing in the background, no wait for a disk, and no timeout but those of the virtual clock. */
const POSTGRES_ARGS = Object.entries({
  fsync: 'off',
  full_page_writes: 'off',
  autovacuum: 'off',
  jit: 'off',
  track_counts: 'off',
  update_process_title: 'off',
  bgwriter_lru_maxpages: '0',
  wal_writer_delay: '10s',
  io_method: 'sync',
  max_parallel_workers_per_gather: '0',
  deadlock_timeout: '1h',
  wal_sender_timeout: '0',
  dynamic_shared_memory_type: 'mmap',
  max_wal_size: '256MB',
}).flatMap(([name, value]) => ['-c', `${name}=${value}`]);

/** A thread that sleeps until an instant of the virtual clock would never sleep. */
const REDIS_ARGS = ['--appendonly', 'no', '--jemalloc-bg-thread', 'no'];

/** Those of a process: the synchronous Postgres is another server, with the same Redis. */
export interface AllServers extends AsyncDisposable {
  of(plan: { readonly isSynchronous: boolean }): ExploreServers;
}

export async function openServers(): Promise<AllServers> {
  const folder = await temporaryFolder('stampede-explore-', MEMORY);
  const clock = await buildClock(folder);
  if (clock === null)
    throw new Error(
      'The explorer needs a C compiler named cc, for the clocks of the servers: apt-get install gcc',
    );
  const clockFile = join(folder, 'clock');
  writeFileSync(clockFile, Buffer.alloc(8));
  virtual.openClock(clockFile);
  const sockets = join(folder, 'sockets');
  mkdirSync(sockets, { mode: 0o777 });
  chmodSync(sockets, 0o777); // the servers have accounts of their own
  const environment = { LD_PRELOAD: clock, STAMPEDE_VIRTUAL_CLOCK: clockFile };
  const [plain, synchronous, redis] = await Promise.all([
    openPostgres({ folder: join(folder, 'plain'), sockets, environment, isSynchronous: false }),
    openPostgres({ folder: join(folder, 'synchronous'), sockets, environment, isSynchronous: true }),
    openRedis(join(folder, 'redis'), join(sockets, 'redis'), environment),
  ]);
  return {
    of: ({ isSynchronous }) => together(isSynchronous ? synchronous : plain, redis),
    async [Symbol.asyncDispose]() {
      await Promise.all([plain, synchronous, redis].map((server) => server.end()));
      await removeFolder(folder);
    },
  };
}

interface Opening {
  readonly folder: string;
  readonly sockets: string;
  readonly environment: Record<string, string>;
  readonly isSynchronous: boolean;
}

type OpenPostgres = Awaited<ReturnType<typeof openPostgres>>;
type OpenRedis = Awaited<ReturnType<typeof openRedis>>;

async function openPostgres({ folder, sockets, environment, isSynchronous }: Opening) {
  const args = [...POSTGRES_ARGS, '-c', `unix_socket_directories=${sockets}`];
  const server = await startPostgres({ folder, args, environment });
  const admin = await connected(server.url('postgres'));
  await admin.query(`CREATE DATABASE explore TEMPLATE ${MIGRATED}`);
  await admin.query('ALTER DATABASE explore SET plan_cache_mode = force_generic_plan');
  await admin.end();
  const url = server.url('explore');
  await trustEverybody(folder, url);
  const owner = await connected(url);
  await owner.query(SCHEMA);
  await owner.end();
  const user = new URL(url).username;
  const sql = new pg.Pool({
    ...{ host: sockets, port: server.port, user, database: 'explore' }, // a Unix-domain socket is faster than TCP
    ...{ max: 1, idleTimeoutMillis: 0, stream: () => new real.Socket(), Client: PreparingClient },
    // It copies tables, without their triggers, and waits for no standby.
    options: '-c session_replication_role=replica -c synchronous_commit=local',
  });
  const path = join(sockets, `.s.PGSQL.${server.port}`);
  const own = await Connection.open(path, startup({ user, database: 'explore' }));
  const backends = new PostgresBackends({ sql, own, path, isSynchronous });
  const standby = isSynchronous ? await openStandby({ sql, own, path, user }, backends) : null;
  return {
    ...{ sql, backends, standby, databaseUrl: new URL(serviceUrlOf(url)), played: { worlds: 0 } },
    async end() {
      backends.end();
      standby?.end();
      own.end();
      await sql.end();
      await server.kill();
    },
  };
}

async function openRedis(folder: string, socket: string, environment: Record<string, string>) {
  const args = [...REDIS_ARGS, '--unixsocket', socket, '--unixsocketperm', '777'];
  const server = await startRedisServer({ folder, args, environment });
  const reader = new Redis(server.port);
  const scripts = allScripts();
  for (const { text } of scripts) await reader.script('LOAD', text);
  const known = scripts.map(({ hash, name, text }) => {
    return [hash, { name: `script ${name}`, publishes: text.includes('PUBLISH') }] as const;
  });
  return {
    ...{ reader, backends: new RedisBackends(socket, new Map(known)) },
    async end() {
      reader.disconnect();
      await server.kill();
    },
  };
}

function together(
  { backends: postgres, sql, standby, databaseUrl, played }: OpenPostgres,
  { reader, backends: redis }: OpenRedis,
): ExploreServers {
  return {
    ...{ postgres, redis, sql, standby, databaseUrl },
    async committed() {
      return (await sql.query<{ id: string }>('SELECT id::text FROM orders')).rows.map(({ id }) => id);
    },
    async reset() {
      // Deleted rows stay, and are read: without vacuum, half of the time of 20,000 schedules went there. Every statement is planned again.
      if (++played.worlds % SHRINK_EVERY === 0) await sql.query('SELECT explore.shrink()');
      await Promise.all([
        sql.query('SELECT explore.reset()'),
        redis.control.ask(redisCommand('FLUSHALL', 'ASYNC')),
      ]);
      await standby?.confirm();
    },
    async addSales(sales) {
      const columns = [
        sales.map(({ id }) => id),
        sales.map(({ stock }) => stock),
        sales.map((one) => one.maxPerOrder),
      ];
      await sql.query(ADD_SALES, [...columns, PRICE_CENTS]);
    },
    async closings() {
      const closings =
        'SELECT id::text, extract(epoch FROM closed_at)::float8 * 1000000 AS us FROM orders WHERE closed_at IS NOT NULL';
      return new Map(
        (await sql.query<{ id: string; us: number }>(closings)).rows.map(({ id, us }) => [id, us]),
      );
    },
    async reserved(servers) {
      const all = (await reader.eval(RESERVED, 0, ...servers)) as string[];
      return new Set(all.map((text) => text.split(' ')[1]!));
    },
    async reservations(server, left = []) {
      const { rows } = await sql.query<{ id: number; epoch: number; free: number }>(LOADED);
      const sales = rows.flatMap(({ id, epoch }) => [id, epoch]);
      const all = (await reader.eval(RESERVATIONS, 0, server, left.join(' '), ...sales)) as string[];
      const free = new Map(rows.map((sale) => [sale.id, sale.free]));
      return all.map((text) => {
        const [sale, , orderId, reservedAt] = text.split(' ') as [string, string, string, string];
        const saleId = Number(sale);
        const counts = reservedAt.split(',').map((part) => Number(part.split('x')[1] ?? 1)); // see lua/sale/reserve.lua
        return { orderId, saleId, units: sum(counts), free: free.get(saleId)! };
      });
    },
    async copyRedis(from, to) {
      await redis.control.ask(redisCommand('EVAL', COPY, 0, from, to));
    },
    async emptyRedis(server) {
      await redis.control.ask(redisCommand('EVAL', EMPTY, 0, server));
    },
    async readRedis(server) {
      await reader.select(server);
      return Object.assign(Object.create(reader), {
        info: async () => withIdentity(Buffer.from(await reader.info()), server).toString(),
      });
    },
  };
}

/** Worlds after which the files of the tables are emptied. */
const SHRINK_EVERY = 50;

interface Primary {
  readonly sql: pg.Pool;
  readonly own: Connection;
  readonly path: string;
  readonly user: string;
}

async function openStandby(
  { sql, own, path, user }: Primary,
  backends: PostgresBackends,
): Promise<StandbyControl & { end(): void }> {
  const lsn = new Prepared(own, 'lsn', 'SELECT pg_current_wal_lsn()');
  const lsnOf = async () => (await lsn.rows())[0]![0]!.split('/');
  const [high, low] = await lsnOf();
  // From the beginning of a page.
  const from = `${high}/${(Number.parseInt(low!, 16) & ~0x1fff).toString(16)}`;
  const connection = await Standby.connect(path, user, from, () => backends.logged());
  let isEnding = false;
  void connection.ended.then(() => {
    if (!isEnding) throw new Error('Postgres has ended the connection of the standby');
  });
  await sql.query(`ALTER SYSTEM SET synchronous_standby_names = '${STANDBY}'`);
  await sql.query('SELECT pg_reload_conf()');
  /** Whether `explore.save()` has what it has; else it has all that is visible. */
  let isBehind = false;
  const confirm = async () => {
    isBehind = false;
    const [before, after] = (await lsnOf()).map((part) => BigInt(`0x${part}`));
    await backends.replicated(() => connection.confirm((before! << 32n) | after!));
  };
  const isKnown = `SELECT FROM pg_stat_replication WHERE sync_state = 'sync'`;
  do await confirm();
  while ((await sql.query(isKnown)).rowCount === 0);
  const fallsBehind = async () => {
    if (!isBehind) await sql.query('SELECT explore.save()');
    isBehind = true;
  };
  return {
    isAwaited: () => backends.replicating.size > 0,
    confirm,
    fallsBehind,
    async promote() {
      await fallsBehind();
      await sql.query('SELECT explore.promote()');
      isBehind = false;
    },
    end() {
      isEnding = true;
      connection.end();
    },
  };
}

/** The name of each statement. */
const STATEMENTS = new Map<string, string>();

/** Prepares every statement: each is planned once, and not in each schedule again. */
class PreparingClient extends pg.Client {
  // biome-ignore lint/suspicious/noExplicitAny: one of its ten overloads
  override query(statement: any, ...rest: any[]): any {
    virtual.showNow();
    if (typeof statement !== 'string') return super.query(statement, ...rest);
    const [values, ...others] = Array.isArray(rest[0]) ? rest : [[], ...rest];
    const name = STATEMENTS.get(statement) ?? `explorer-${STATEMENTS.size}`;
    STATEMENTS.set(statement, name);
    return super.query({ name, text: statement, values }, ...others);
  }
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
    join(folder, 'data', 'pg_hba.conf'),
    'host all all 127.0.0.1/32 trust\nlocal all all trust\nlocal replication all trust\n',
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
