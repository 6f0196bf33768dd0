/** Groups of real Redis servers, and processes with a lock of theirs, by way of a proxy for each server. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Redis } from 'ioredis';
import { type RedisServer, startRedisServer } from '../../src/local/redis-server.ts';
import type { Lock } from '../../src/locks/lock.ts';
import { openRedis, type RedisStore } from '../../src/store/redis/connection.ts';
import { eventually } from './client.ts';
import type { LockFixture, LockProcess, LockServers } from './lock-process.ts';
import { TcpProxy } from './proxy.ts';

/** A process; `close` is orderly: what it holds is given back. */
export interface GroupProcess extends LockProcess {
  /** One for each server that it speaks to. */
  readonly links: readonly TcpProxy[];
}

export interface Group {
  readonly servers: LockServers;
  /** Those that hold keys of the lock. */
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

const plain = ['--appendonly', 'no'];
const newFolder = () => mkdtemp(path.join(tmpdir(), 'stampede-test-group-'));

/** A primary with so many replicas; a lock is made on the primary. */
export interface Replicated extends Group {
  readonly primary: RedisServer;
  readonly replicas: readonly RedisServer[];
  /** What a replica and the primary speak through. */
  readonly replication: readonly TcpProxy[];
}

export async function openReplicated(create: OnOneRedis, count = 1): Promise<Replicated> {
  const folder = await newFolder();
  const fast = ['--repl-diskless-sync-delay', '0', '--repl-ping-replica-period', '1'];
  const primary = await startRedisServer({ folder: path.join(folder, 'primary'), args: [...plain, ...fast] });
  const replication: TcpProxy[] = [];
  const replicas: RedisServer[] = [];
  for (let i = 0; i < count; i++) {
    const link = await TcpProxy.open({ port: primary.port });
    const args = [...plain, '--replicaof', '127.0.0.1', String(link.port)];
    replication.push(link);
    replicas.push(await startRedisServer({ folder: path.join(folder, `replica-${i}`), args }));
  }
  const look = new Redis(primary.port);
  // A replica that is online may not have got what came since its copy was made.
  const inStep = () => look.set('in-step', 1).then(() => look.wait(count, 500));
  await eventually(inStep, (there) => there === count, 20_000);
  look.disconnect();
  return {
    servers: { redisUrl: primary.url },
    ports: [primary.port],
    primary,
    replicas,
    replication,
    process: () => processOnOne(primary.port, create),
    async close() {
      for (const link of replication) await link.close();
      // SIGKILL ends one that stands still, too.
      for (const server of [...replicas, primary]) await server.kill();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Servers that know nothing of each other. */
export interface Independent extends Group {
  readonly redis: readonly RedisServer[];
  /** Starts one again, on its port, empty. */
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
      args: plain,
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

/** As the contract wants it: a process that is closed has crashed, and gives nothing back. */
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
