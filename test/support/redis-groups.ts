/** Groups of real Redis servers, and processes that lock on them through one proxy per server. */
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { Redis } from 'ioredis';
import { temporaryFolder } from '../../lab/kit/temporary-folder.ts';
import { TcpProxy } from '../../lab/proxy.ts';
import { eagerPrimary, plainRedis, untilReplicated } from '../../lab/servers/servers.ts';
import { type RedisServer, startRedisServer } from '../../src/local/redis-server.ts';
import type { Lock } from '../../src/locks/lock.ts';
import { openRedis, type RedisStore } from '../../src/store/redis/connection.ts';
import type { LockFixture, LockProcess, LockServers } from './lock-process.ts';
import { openStoresWithRedis } from './stores.ts';

/** A process whose `close` is orderly: it releases its leases. */
export interface GroupProcess extends LockProcess {
  /** One per server. */
  readonly links: readonly TcpProxy[];
}

export interface Group {
  readonly servers: LockServers;
  /** Ports of the servers that hold the lock's keys. */
  readonly ports: readonly number[];
  process(): Promise<GroupProcess>;
  close(): Promise<void>;
}

type OnOneRedis = (context: { readonly redis: RedisStore; readonly onError: () => void }) => Promise<Lock>;

async function groupProcess(
  ports: readonly number[],
  open: (urls: string[]) => Promise<{ lock: Lock; end?: () => Promise<void> }>,
): Promise<GroupProcess> {
  const links = await Promise.all(ports.map((port) => TcpProxy.open({ port })));
  const closeLinks = () => Promise.all(links.map((link) => link.close()));
  const { lock, end } = await open(links.map(({ port }) => `redis://127.0.0.1:${port}`)).catch(
    async (error) => {
      await closeLinks();
      throw error;
    },
  );
  let closed: Promise<void> | undefined;
  const close = async () => {
    await lock.close();
    await end?.();
    await closeLinks();
  };
  return {
    lock,
    links,
    link: {
      set(mode) {
        for (const link of links) link.set(mode);
      },
      get requests() {
        return links.reduce((sum, link) => sum + link.requests, 0);
      },
    },
    close() {
      closed ??= close();
      return closed;
    },
  };
}

export function processOnOne(port: number, create: OnOneRedis): Promise<GroupProcess> {
  return groupProcess([port], async ([url]) => {
    const redis = await openRedis(url!, () => {});
    const lock = await create({ redis, onError: () => {} });
    return { lock, end: () => redis.close() };
  });
}

/** A Redis beside the shared Postgres. */
export async function openOne(create: OnOneRedis): Promise<Group> {
  const stores = await openStoresWithRedis();
  const { port } = stores.redisServer;
  return {
    servers: { redisUrl: stores.redisUrl },
    ports: [port],
    process: () => processOnOne(port, create),
    close: async () => stores[Symbol.asyncDispose](),
  };
}

const newFolder = () => temporaryFolder('stampede-test-group-');

/** A primary with replicas; the lock connects to the primary. */
export interface Replicated extends Group {
  readonly primary: RedisServer;
  readonly replicas: readonly RedisServer[];
  /** One replication link per replica. */
  readonly replication: readonly TcpProxy[];
}

export async function openReplicated(create: OnOneRedis, count = 1): Promise<Replicated> {
  const folder = await newFolder();
  const args = [...eagerPrimary, '--repl-ping-replica-period', '1'];
  const primary = await startRedisServer({ folder: path.join(folder, 'primary'), args });
  const replication: TcpProxy[] = [];
  const replicas: RedisServer[] = [];
  for (let i = 0; i < count; i++) {
    const link = await TcpProxy.open({ port: primary.port });
    const args = [...plainRedis, '--replicaof', '127.0.0.1', String(link.port)];
    replication.push(link);
    replicas.push(await startRedisServer({ folder: path.join(folder, `replica-${i}`), args }));
  }
  const client = new Redis(primary.port);
  await untilReplicated(client, count).finally(() => client.disconnect());
  return {
    servers: { redisUrl: primary.url },
    ports: [primary.port],
    primary,
    replicas,
    replication,
    process: () => processOnOne(primary.port, create),
    async close() {
      for (const link of replication) await link.close();
      // SIGKILL also ends a stopped process.
      for (const server of [...replicas, primary]) await server.kill();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Servers without replication. */
export interface Independent extends Group {
  readonly redis: readonly RedisServer[];
  /** Restarts a server on its port, empty. */
  restart(i: number): Promise<void>;
}

export async function openIndependent(
  create: (context: { redlockUrls: readonly string[]; onError: () => void }) => Promise<Lock>,
  count = 5,
): Promise<Independent> {
  const folder = await newFolder();
  const start = (i: number, port?: number) =>
    startRedisServer({
      folder: path.join(folder, String(i)),
      args: plainRedis,
      ...(port === undefined ? {} : { port }),
    });
  const redis: RedisServer[] = [];
  for (let i = 0; i < count; i++) redis.push(await start(i));
  const ports = redis.map(({ port }) => port);
  return {
    servers: { redisUrl: redis[0]!.url, redlockUrls: redis.map(({ url }) => url) },
    ports,
    redis,
    process: () =>
      groupProcess(ports, async (redlockUrls) => ({
        lock: await create({ redlockUrls, onError: () => {} }),
      })),
    async restart(i) {
      redis[i] = await start(i, ports[i]);
    },
    async close() {
      for (const server of redis) await server.kill();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Adapts a group to the contract, in which `close` is a crash: nothing is released. */
export function crashing(group: Group): LockFixture {
  return {
    servers: group.servers,
    async process() {
      const process = await group.process();
      const crash = () => {
        process.link.set('refuse');
        return process.close();
      };
      return { ...process, close: crash };
    },
    close: () => group.close(),
  };
}
