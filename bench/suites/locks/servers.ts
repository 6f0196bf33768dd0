/**
 * The servers of the locks. Redis and ZooKeeper are started for every trial; Postgres once for the run, with a database for
 * every trial.
 */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { ServerKind } from '../../../lab/clients/lock-cells.ts';
import type { ServerUrls } from '../../../lab/clients/open-lock.ts';
import { temporaryFolder } from '../../../lab/kit/temporary-folder.ts';
import { openRedis as openServers } from '../../../lab/servers/redis.ts';
import { type BenchStores, openStores, redisClient, versionIn } from '../../../lab/servers/stores.ts';
import { findValkey } from '../../../lab/servers/valkey.ts';
import { startZookeeper, whyNoZookeeper } from '../../../lab/servers/zookeeper-server.ts';
import { ensureRedisServer } from '../../../src/local/redis-server.ts';
import { migrate } from '../../../src/store/postgres/migrate.ts';

/** The servers of one lock in one trial. */
export interface Servers extends AsyncDisposable {
  readonly urls: ServerUrls;
  /** Counts of the servers so far; null: they do not count it. */
  count(): Promise<{ readonly commands: number | null; readonly requests: number | null }>;
  empty(): Promise<void>;
}

export async function openServerRoom(say: (line: string) => void) {
  const folder = await temporaryFolder('stampede-bench-locks-');
  const versions: Record<string, string> = {};
  let postgres: Promise<BenchStores> | null = null;
  let trial = 0;
  return {
    /** Versions of the servers that were started. */
    versions: versions as Readonly<Record<string, string>>,
    /** @throws when the servers cannot be started; the message says what to do */
    async open(kind: ServerKind): Promise<Servers> {
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

async function openRedis(
  kind: ServerKind,
  folder: string,
  versions: Record<string, string>,
  say: (line: string) => void,
): Promise<Servers> {
  const program = kind === 'valkey' ? await findValkey() : (await ensureRedisServer({ say })).path;
  const options = { folder, clock: null, group: null, program, replicas: kind === 'redis-replica' ? 1 : 0 };
  const redis = await openServers(kind === 'redis-five' ? 5 : 1, options);
  const clients = redis.allUrls.map(redisClient);
  const stop = async (): Promise<void> => {
    for (const client of clients) client.disconnect();
    await redis[Symbol.asyncDispose]();
    await rm(folder, { recursive: true, force: true });
  };
  try {
    await Promise.all(clients.map((client) => client.connect()));
    const version = versionIn(await clients[0]!.info('server'));
    if (kind === 'valkey') versions.valkey = version.replace('Valkey ', '');
    else versions.redis = version;
  } catch (error) {
    await stop();
    throw error;
  }
  let own = 0;
  return {
    urls: redis.urls(redis.nodes.map(({ port }) => port)),
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
