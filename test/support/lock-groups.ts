/** Locks without the service: servers, and simulated processes that reach them with separate connections through proxies. */
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { Redis } from 'ioredis';
import type { ServerUrls } from '../../lab/clients/open-lock.ts';
import { temporaryFolder } from '../../lab/kit/temporary-folder.ts';
import { type Link, TcpProxy } from '../../lab/proxy.ts';
import { eagerPrimary, plainRedis, untilReplicated } from '../../lab/servers/redis.ts';
import { NEVER_MS, openSentinels } from '../../lab/servers/sentinels.ts';
import { type RedisServer, startRedisServer } from '../../src/local/redis-server.ts';
import type { RedisClient, RedlockServer } from '../../src/locks/clients.ts';
import type { Lock } from '../../src/locks/lock.ts';
import * as redisWait from '../../src/locks/redis-wait.ts';
import { openPostgres, type PostgresStore } from '../../src/store/postgres/pool.ts';
import { openRedlockServers } from '../../src/store/redis/redlock-servers.ts';
import { asTheService, type Ways } from './caller-clients.ts';
import { openCluster } from './servers.ts';
import { openTestStores } from './stores.ts';
import { startZookeeper } from './zookeeper.ts';

/** The servers of a lock in a child process. */
export interface LockServers extends ServerUrls {
  readonly redisUrl: string;
  /** Holds the counter; by default the Redis of `redisUrl`. */
  readonly counterUrl?: string;
}

/** From the server's view, a process. */
export interface LockProcess {
  readonly lock: Lock;
  /** Its connections to the lock's servers. */
  readonly link: Link;
  /** One per server. */
  readonly links: readonly TcpProxy[];
  /** Ends its connections and its timers, and releases its leases. A second call has no effect. */
  close(): Promise<void>;
}

interface Group {
  readonly servers: LockServers;
  process(): Promise<LockProcess>;
  close(): Promise<void>;
}

/** What the contract of locks runs on: `close` of a process is a crash, which releases nothing. */
export interface LockFixture extends Group {
  /** Deletes a lock at the server, as an operator would. For a lock without `expires-after-holder-death`. */
  evict?(resource: string): Promise<void>;
}

/** With a client of its server, which passes no link. */
export interface RedisLockFixture extends LockFixture {
  readonly redis: Redis;
}

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

interface Opened {
  readonly lock: Lock;
  /** What to close after the lock. */
  end?(): Promise<unknown>;
}

/** @param open makes the lock, from the ports of its links */
async function processOn(
  ports: readonly number[],
  open: (ports: number[]) => Promise<Opened>,
): Promise<LockProcess> {
  const links = await Promise.all(ports.map((port) => TcpProxy.open({ port })));
  const closeLinks = () => Promise.all(links.map((link) => link.close()));
  const { lock, end } = await open(links.map(({ port }) => port)).catch(async (error) => {
    await closeLinks();
    throw error;
  });
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

type OnOneRedis = (context: { readonly redis: RedisClient; readonly onError: () => void }) => Promise<Lock>;

/** Makes `redis-wait` with leases that so many replicas must have. */
export const waitingFor =
  (replicas: number): OnOneRedis =>
  (context) =>
    redisWait.create({ ...context, redisWait: replicas });

const at = (url: string, port: number): string => Object.assign(new URL(url), { port: String(port) }).href;

type OpenOn = (url: string) => Promise<Opened>;

const asOfTheService =
  (create: OnOneRedis): OpenOn =>
  async (url) => {
    const { redis, close } = await asTheService(url);
    return { lock: await create({ redis, onError: () => {} }), end: close };
  };

/** @param url of the server, with the processes' credentials */
const processOnRedis = (url: string, open: OpenOn): Promise<LockProcess> =>
  processOn([Number(new URL(url).port)], ([port]) => open(at(url, port!)));

export const processOnOne = (port: number, create: OnOneRedis): Promise<LockProcess> =>
  processOnRedis(`redis://127.0.0.1:${port}`, asOfTheService(create));

const newFolder = () => temporaryFolder('stampede-test-group-');

/** A dedicated redis-server, and locks on a client of the service. See `redisLocksBy`. */
export const redisLocks = (
  create: OnOneRedis,
  program?: string,
  loggedIn?: (url: string) => Promise<string>,
): Promise<RedisLockFixture> => redisLocksBy(asOfTheService(create), program, loggedIn);

/**
 * A dedicated redis-server.
 * @param program by default the installed one
 * @param loggedIn turns the server's URL into the one that the processes use; by default the same
 */
export async function redisLocksBy(
  open: OpenOn,
  program?: string,
  loggedIn: (url: string) => Promise<string> = async (url) => url,
): Promise<RedisLockFixture> {
  const folder = await newFolder();
  const server = await startRedisServer({ folder, args: plainRedis, ...(program && { program }) });
  const redisUrl = await loggedIn(server.url).catch(async (error) => {
    await server.kill();
    throw error;
  });
  const redis = new Redis(server.url);
  const group: Group = {
    servers: { redisUrl },
    process: () => processOnRedis(redisUrl, open),
    async close() {
      redis.disconnect();
      await server.kill();
      await rm(folder, { recursive: true, force: true });
    },
  };
  const evict = async (resource: string) => void (await redis.del(`stampede:{${resource}}:lock`));
  return { ...crashing(group), evict, redis };
}

/**
 * Servers whose clients learn the addresses of the servers behind them. Each process has links to those.
 * @param open makes the lock, from the URL and from the links by the learned ports
 */
export async function redisLocksBehind(
  kind: 'sentinels' | 'cluster',
  open: (url: string, ways: Ways) => Promise<Opened>,
): Promise<LockFixture> {
  const [stores, servers] = await Promise.all([
    openTestStores(),
    kind === 'sentinels' ? openSentinels({ downAfterMs: NEVER_MS }) : openCluster(),
  ]);
  const { url } = servers;
  const ports = 'members' in servers ? servers.members.map(({ port }) => port) : servers.ports;
  return crashing({
    servers: { redisUrl: url, counterUrl: stores.redisUrl },
    process: () => processOn(ports, (links) => open(url, new Map(ports.map((port, i) => [port, links[i]!])))),
    async close() {
      await servers[Symbol.asyncDispose]();
      await stores[Symbol.asyncDispose]();
    },
  });
}

/** A dedicated database. */
export async function postgresLocks(
  create: (context: { readonly postgres: PostgresStore }) => Promise<Lock>,
): Promise<LockFixture> {
  const stores = await openTestStores();
  const { redisUrl, databaseUrl } = stores;
  const ports = [Number(new URL(databaseUrl).port)];
  return crashing({
    servers: { redisUrl, databaseUrl },
    process: () =>
      processOn(ports, async ([port]) => {
        const postgres = openPostgres(at(databaseUrl, port!), () => {});
        return { lock: await create({ postgres }), end: () => postgres.close() };
      }),
    close: async () => stores[Symbol.asyncDispose](),
  });
}

/** A dedicated ZooKeeper. `lockTtlMs` is the session timeout. */
export async function zookeeperLocks(
  create: (context: { zookeeperUrl: string; lockTtlMs: number }) => Promise<Lock>,
  lockTtlMs = 1_200,
): Promise<LockFixture> {
  const [stores, server] = await Promise.all([openTestStores(), startZookeeper()]);
  return crashing({
    servers: { redisUrl: stores.redisUrl, zookeeperUrl: server.url },
    process: () =>
      processOn([server.port], async ([port]) => ({
        lock: await create({ zookeeperUrl: `127.0.0.1:${port}`, lockTtlMs }),
      })),
    async close() {
      await server[Symbol.asyncDispose]();
      await stores[Symbol.asyncDispose]();
    },
  });
}

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
    primary,
    replicas,
    replication,
    process: () => processOnOne(primary.port, create),
    async close() {
      for (const link of replication) await link.close();
      // SIGKILL ends even a stopped process.
      for (const server of [...replicas, primary]) await server.kill();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Servers without replication. */
interface Independent extends Group {
  readonly ports: readonly number[];
  readonly redis: readonly RedisServer[];
  /** Restarts a server on its port, empty. */
  restart(i: number): Promise<void>;
}

interface RedlockContext {
  readonly urls: readonly string[];
  openRedlock(): Promise<readonly RedlockServer[]>;
}

export async function openIndependent(
  create: (context: RedlockContext) => Promise<Lock>,
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
      processOn(ports, async (own) => {
        const urls = own.map((port) => `redis://127.0.0.1:${port}`);
        return { lock: await create({ urls, openRedlock: () => openRedlockServers(urls, () => {}) }) };
      }),
    async restart(i) {
      redis[i] = await start(i, ports[i]);
    },
    async close() {
      for (const server of redis) await server.kill();
      await rm(folder, { recursive: true, force: true });
    },
  };
}
