/** The servers of one trial of the lab: real ones, started for it, with a clock that can be set where a compiler is installed. */
import { execFile } from 'node:child_process';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Redis } from 'ioredis';
import { startPostgresServer } from '../../src/local/postgres-server.ts';
import { startRedisServer } from '../../src/local/redis-server.ts';
import { migrate } from '../../src/store/postgres/migrate.ts';
import type { ServerKind } from '../kit/lock-cells.ts';
import type { ServerUrls } from '../kit/open-lock.ts';
import { eagerPrimary, startZookeeper, untilReplicated, whyNoZookeeper } from '../kit/servers.ts';

/** One server that can be killed and started again. */
export interface Node {
  readonly port: number;
  /** Writes what it has to its file. */
  save(): Promise<void>;
  kill(): Promise<void>;
  /** @param empty without its file */
  start(empty: boolean): Promise<void>;
  /** Of a Redis: from now on writes beyond so many bytes are refused; 0: none are. */
  setMemory(bytes: number): Promise<void>;
}

export interface LabServers extends AsyncDisposable {
  /** Those that hold the lock; replicas are none of them. */
  readonly nodes: readonly Node[];
  /** @param ports the ways to the nodes */
  urls(ports: readonly number[]): ServerUrls;
  /** From now on the replicas miss what the primary gets. */
  stopReplication(): Promise<void>;
  /** Promotes a replica, which the others follow. @returns its port */
  promote(): Promise<number>;
  /** Sets the clock of a node, in ms from the true one. */
  setClock(node: number, aheadMs: number): Promise<void>;
}

const never = async (): Promise<never> => {
  throw new Error('these servers have none');
};

/** @returns the path of the library that sets a server's clock; null: there is no C compiler */
export async function buildClock(folder: string): Promise<string | null> {
  const [source, library] = [fileURLToPath(new URL('clock.c', import.meta.url)), join(folder, 'clock.so')];
  const args = ['-shared', '-fPIC', '-O2', '-o', library, source];
  return promisify(execFile)('cc', args).then(
    () => library,
    () => null,
  );
}

export interface LabOptions {
  /** An empty one. */
  readonly folder: string;
  /** Of `buildClock`. */
  readonly clock: string | null;
  /** Of a single Redis. */
  readonly replicas?: number;
  /** For a sale: Redis writes an append-only file, and the service prepares Postgres. */
  readonly durable?: boolean;
}

export async function openLabServers(kind: ServerKind, options: LabOptions): Promise<LabServers> {
  const { folder } = options;
  if (kind === 'zookeeper') return openZookeeper(folder);
  if (kind === 'postgres') return openPostgres(options);
  return openRedis(kind === 'redis-five' ? 3 : 1, options);
}

/** @param count independent ones */
async function openRedis(
  count: number,
  { folder, clock: library, replicas: replicaCount = 0, durable = false }: LabOptions,
): Promise<LabServers> {
  const clock = (n: number) => join(folder, `clock-${n}`);
  const start = async (n: number, port?: number, more: readonly string[] = []) => {
    const args = [
      ...eagerPrimary,
      '--repl-ping-replica-period',
      '1',
      ...(durable ? ['--appendonly', 'yes'] : []),
      ...more,
    ];
    const environment = library === null ? {} : { LD_PRELOAD: library, STAMPEDE_CLOCK: clock(n) };
    const options = { folder: join(folder, String(n)), args, environment };
    return startRedisServer(port === undefined ? options : { ...options, port });
  };
  const servers = await Promise.all(Array.from({ length: count }, (_, n) => start(n)));
  const nodes = servers.map((server, n): Node => {
    const { port } = server;
    return {
      port,
      save: () => asked(port, (redis) => redis.save()),
      kill: () => servers[n]!.kill(),
      async start(empty) {
        if (empty) await rm(join(folder, String(n)), { recursive: true, force: true });
        servers[n] = await start(n, port);
      },
      setMemory: (bytes) => asked(port, (redis) => redis.config('SET', 'maxmemory', bytes)),
    };
  });
  const following = ['--replicaof', '127.0.0.1', String(nodes[0]!.port)];
  const replicas = await Promise.all(
    Array.from({ length: replicaCount }, (_, n) => start(count + n, undefined, following)),
  );
  if (replicaCount > 0) await asked(nodes[0]!.port, (redis) => untilReplicated(redis, replicaCount));
  const follow = async (port: number) => {
    for (const replica of replicas)
      if (replica.port !== port) await asked(replica.port, (redis) => redis.replicaof('127.0.0.1', port));
  };
  return {
    nodes,
    urls(ports) {
      const urls = ports.map((port) => `redis://127.0.0.1:${port}`);
      return count > 1 ? { redlockUrls: urls } : { redisUrl: urls[0]! };
    },
    // A replica that is stopped keeps its socket, and the bytes wait there: it has to lose its primary.
    stopReplication: () => follow(1),
    async promote() {
      const { port } = replicas[0]!;
      await asked(port, (redis) => redis.replicaof('NO', 'ONE'));
      await follow(port);
      return port;
    },
    setClock: (node, aheadMs) => writeFile(clock(node), `${aheadMs}\n`),
    async [Symbol.asyncDispose]() {
      await Promise.all([...servers, ...replicas].map((server) => server.kill()));
    },
  };
}

async function asked(port: number, question: (redis: Redis) => Promise<unknown>): Promise<void> {
  const redis = new Redis(port);
  redis.on('error', () => {}); // the command fails as well
  await question(redis).finally(() => redis.disconnect());
}

async function openPostgres({ folder, durable = false }: LabOptions): Promise<LabServers> {
  const open = (port?: number) => startPostgresServer({ folder, ...(port !== undefined && { port }) });
  let server = await open();
  const { port } = server;
  const url = server.url();
  if (!durable) await migrate(url);
  const node: Node = {
    port,
    save: async () => {}, // a commit is on disk
    kill: () => server.kill(),
    async start() {
      server = await open(port);
    },
    setMemory: never,
  };
  return {
    nodes: [node],
    urls: ([way]) => ({ databaseUrl: Object.assign(new URL(url), { port: String(way) }).href }),
    stopReplication: never,
    promote: never,
    setClock: never,
    [Symbol.asyncDispose]: () => server.kill(),
  };
}

async function openZookeeper(folder: string): Promise<LabServers> {
  const why = whyNoZookeeper();
  if (why !== null) throw new Error(why);
  const java = ['-Xmx128m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-Dzookeeper.forceSync=no'];
  const sessions = { tickTime: 250, minSessionTimeout: 500, maxSessionTimeout: 60_000 };
  const server = await startZookeeper(folder, sessions, java);
  const node: Node = {
    port: server.port,
    save: async () => {}, // each write is in its log
    kill: () => server.kill(),
    async start(empty) {
      if (empty) await rm(join(folder, 'data'), { recursive: true, force: true });
      await server.start();
    },
    setMemory: never,
  };
  return {
    nodes: [node],
    urls: ([way]) => ({ zookeeperUrl: `127.0.0.1:${way}` }),
    stopReplication: never,
    promote: never,
    setClock: never,
    [Symbol.asyncDispose]: () => server.kill(),
  };
}
