/**
 * The servers of the locks. Redis and ZooKeeper are started for every trial; Postgres once for the run, with a database for
 * every trial.
 */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import type { ServerKind } from '../../../lab/clients/lock-cells.ts';
import type { ServerUrls } from '../../../lab/clients/open-lock.ts';
import { temporaryFolder } from '../../../lab/kit/temporary-folder.ts';
import { eagerPrimary, plainRedis, untilReplicated } from '../../../lab/servers/redis.ts';
import { type BenchStores, openStores, versionIn } from '../../../lab/servers/stores.ts';
import { findValkey } from '../../../lab/servers/valkey.ts';
import { startZookeeper, whyNoZookeeper } from '../../../lab/servers/zookeeper-server.ts';
import { type RedisServer, startRedisServer } from '../../../src/local/redis-server.ts';
import { migrate } from '../../../src/store/postgres/migrate.ts';

/** The servers of one lock in one trial. */
export interface Servers extends AsyncDisposable {
  readonly urls: ServerUrls;
  /** Counts of the servers so far; null: they do not count it. */
  count(): Promise<{ readonly commands: number | null; readonly requests: number | null }>;
  empty(): Promise<void>;
}

export interface ServerRoom extends AsyncDisposable {
  /** Versions of the servers that were started. */
  readonly versions: Readonly<Record<string, string>>;
  /** @throws when the servers cannot be started; the message says what to do */
  open(kind: ServerKind): Promise<Servers>;
}

export async function openServerRoom(say: (line: string) => void): Promise<ServerRoom> {
  const folder = await temporaryFolder('stampede-bench-locks-');
  const versions: Record<string, string> = {};
  let postgres: Promise<BenchStores> | null = null;
  let trial = 0;
  return {
    versions,
    async open(kind) {
      const own = join(folder, String(++trial));
      if (kind === 'zookeeper') return await openZookeeper(own, versions);
      if (kind !== 'postgres') return await openRedis(kind, own, versions, say);
      // This also starts a Redis that no lock uses.
      postgres ??= openStores({
        databaseUrl: undefined,
        redisUrl: undefined,
        keep: false,
        mayDelete: false,
        say,
      });
      versions.postgres = (await postgres).versions.postgres;
      return await openPostgres(await postgres, trial);
    },
    async [Symbol.asyncDispose]() {
      await (await postgres?.catch(() => null))?.[Symbol.asyncDispose]();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

const redisCounts: Partial<Record<ServerKind, number>> = { 'redis-replica': 2, 'redis-five': 5 };

async function openRedis(
  kind: ServerKind,
  folder: string,
  versions: Record<string, string>,
  say: (line: string) => void,
): Promise<Servers> {
  const program = kind === 'valkey' ? { program: await findValkey() } : {};
  const isReplicated = kind === 'redis-replica';
  const servers: RedisServer[] = [];
  const clients: Redis[] = [];
  const stop = async (): Promise<void> => {
    for (const client of clients) client.disconnect();
    await Promise.all(servers.map((server) => server.kill()));
    await rm(folder, { recursive: true, force: true });
  };
  try {
    for (let n = 0; n < (redisCounts[kind] ?? 1); n++) {
      const copies = isReplicated && n > 0 ? ['--replicaof', '127.0.0.1', String(servers[0]!.port)] : [];
      const args = [...(isReplicated ? eagerPrimary : plainRedis), ...copies];
      servers.push(await startRedisServer({ folder: join(folder, String(n)), args, say, ...program }));
      clients.push(new Redis(servers[n]!.url));
      clients[n]!.on('error', () => {}); // the command in flight fails as well
    }
    if (isReplicated) await untilReplicated(clients[0]!);
    const version = versionIn(await clients[0]!.info('server'));
    if (kind === 'valkey') versions.valkey = version.replace('Valkey ', '');
    else versions.redis = version;
  } catch (error) {
    await stop();
    throw error;
  }
  const urls = servers.map(({ url }) => url);
  let own = 0;
  return {
    urls: kind === 'redis-five' ? { redlockUrls: urls } : { redisUrl: urls[0]! },
    /** Without the commands that ask for this number: a reply counts the earlier ones. */
    async count() {
      const texts = await Promise.all(clients.map((client) => client.info('stats')));
      const commands = texts.map((text) => Number(/^total_commands_processed:(\d+)/m.exec(text)?.[1]));
      const asked = own;
      own += clients.length;
      return { commands: commands.reduce((sum, count) => sum + count, -asked), requests: null };
    },
    async empty() {
      // A replica refuses; its primary empties it.
      await Promise.all(clients.map((client) => client.flushall().catch(() => {})));
    },
    [Symbol.asyncDispose]: stop,
  };
}

async function openZookeeper(folder: string, versions: Record<string, string>): Promise<Servers> {
  const why = whyNoZookeeper();
  if (why !== null) throw new Error(why);
  const server = await startZookeeper(folder);
  versions.zookeeper = /version: ([\d.]+)/.exec(await server.ask('srvr'))?.[1] ?? 'unknown';
  return {
    urls: { zookeeperUrl: server.url },
    async count() {
      const packets = /^zk_packets_received\s+(\d+)/m.exec(await server.ask('mntr'))?.[1];
      return { commands: null, requests: Number(packets) };
    },
    async empty() {},
    async [Symbol.asyncDispose]() {
      await server.kill();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

async function openPostgres(stores: BenchStores, trial: number): Promise<Servers> {
  const { databaseUrl, [Symbol.asyncDispose]: drop } = await stores.fresh(`${trial}_locks`);
  await migrate(databaseUrl);
  return {
    urls: { databaseUrl },
    count: async () => ({ commands: null, requests: null }),
    async empty() {},
    [Symbol.asyncDispose]: drop,
  };
}
