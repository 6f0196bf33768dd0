/**
 * A Redis primary with replicas, and three Sentinels that fail over to a replica. For suites, and for tests.
 *
 *   services ──▶ Sentinels: where is the primary? ──▶ [link] primary ══replication══▶ [link] replica
 *
 * All others reach a server through its link, a proxy whose address it announces, so that it can be cut off.
 */
import { rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { Redis } from 'ioredis';
import { ensureRedisServer, type RedisServer, startRedisServer } from '../../src/local/redis-server.ts';
import { freePort, launch, type ServerProcess } from '../../src/local/server-process.ts';
import { eventually } from '../kit/eventually.ts';
import { temporaryFolder } from '../kit/temporary-folder.ts';
import { TcpProxy } from '../proxy.ts';
import { eagerPrimary } from './redis.ts';
import { withRedis } from './stores.ts';

const SERVICE = 'sale-primary';
const SENTINELS = 3;
/** How long a server is silent before a Sentinel calls it down; the usual 30 s would dominate what a test measures. */
export const DOWN_AFTER_MS = 500;
/** For groups that must not fail over because the machine is slow. */
export const NEVER_MS = 600_000;
/** Logged by a Sentinel once it runs. Another process may have taken its port. */
const MONITORS = '+monitor';
const PORT_TRIES = 5;
/** Longer than a failover on a slow machine, with a second try of the Sentinels. */
const PATIENCE_MS = 120_000;

export interface SentinelOptions {
  /** Time until the Sentinels undo `cutReplication`; by default 3 s. */
  readonly failoverTimeoutMs?: number;
  readonly replicas?: number;
  /** How long a server has to be silent before a Sentinel calls it down; by default 0.5 s. */
  readonly downAfterMs?: number;
  /** Further arguments of the servers; they win. */
  readonly args?: readonly string[];
  /** The program of servers and Sentinels; by default the installed Redis. */
  readonly program?: string;
}

export type Sentinels = Awaited<ReturnType<typeof openSentinels>>;

export async function openSentinels(options: SentinelOptions = {}) {
  const { failoverTimeoutMs = 3_000, replicas = 1, downAfterMs = DOWN_AFTER_MS } = options;
  const folder = await temporaryFolder('stampede-sentinel-');
  const { servers, links, linkOf, start } = startServers(folder, options);
  const processes: ServerProcess[] = [];
  const replicationLinks: TcpProxy[] = [];
  const stop = async (): Promise<void> => {
    await Promise.all([...links, ...replicationLinks].map((link) => link.close()));
    await Promise.all([...processes, ...servers].map((one) => one.kill()));
    await rm(folder, { recursive: true, force: true });
  };
  const open = async (): Promise<readonly number[]> => {
    const times = { 'down-after-milliseconds': downAfterMs, 'failover-timeout': failoverTimeoutMs };
    await start(0, null);
    for (let n = 1; n <= replicas; n++) await start(n, links[0]!.port);
    const program = options.program ?? (await ensureRedisServer()).path;
    const ports = await startSentinels(folder, program, links[0]!.port, times, processes);
    await untilReady(ports.at(-1)!, replicas);
    return ports;
  };
  const ports = await open().catch(async (error) => {
    await stop();
    throw error;
  });
  const sentinel = new Redis({ port: ports.at(-1)!, retryStrategy: () => 100 });
  sentinel.on('error', () => {}); // the command fails as well
  const address = async (): Promise<number> => {
    const reply = (await sentinel.call('SENTINEL', 'get-master-addr-by-name', SERVICE)) as string[] | null;
    return Number(reply?.[1]);
  };
  const primary = async (): Promise<RedisServer> => {
    const port = await address();
    return servers.find((server) => linkOf(server).port === port)!;
  };
  return {
    /** redis+sentinel://… */
    url: `redis+sentinel://${ports.map((port) => `127.0.0.1:${port}`).join(',')}/${SERVICE}`,
    /** The first primary, then its replicas. */
    servers: servers as readonly RedisServer[],
    /** The ports that clients learn, of the same servers. */
    ports: links.map(({ port }) => port),
    /** The server that the Sentinels call the primary now. */
    primary,
    /** A client of the primary. The caller disconnects it. */
    async client() {
      const client = new Redis((await primary()).port);
      client.on('error', () => {}); // the command in flight fails as well
      return client;
    },
    /** Cuts a server off: what is sent to it, or by it, is lost. */
    cut: (server: RedisServer) => linkOf(server).set('black-hole'),
    /** Pauses the URL's first Sentinel, which clients ask first. @returns what resumes it */
    freezeFirst() {
      process.kill(processes[0]!.pid, 'SIGSTOP');
      return () => process.kill(processes[0]!.pid, 'SIGCONT');
    },
    /** Sets how long a server has to be silent before a Sentinel calls it down. */
    setDownAfter: (ms: number) => setOption(ports, 'down-after-milliseconds', ms),
    /** Ends the cut. */
    heal: (server: RedisServer) => linkOf(server).set('pass'),
    /** From now on the replicas get nothing that the primary writes, and no server notices. */
    async cutReplication() {
      const old = await primary();
      for (const server of servers.filter((one) => one !== old))
        replicationLinks.push(await followThroughLink(server, old));
      for (const link of replicationLinks) link.set('lose-replies');
    },
    /** Starts a killed server again, on its port, as a replica. */
    restart: async (server: RedisServer) => start(servers.indexOf(server), await address(), server.port),
    /** Has the Sentinels promote the replica, as an operator does before maintenance, and waits until they have. */
    switchOver: () => switchOver(sentinel, address),
    /** Waits until another server than `old` is the primary. */
    async untilPromoted(old: RedisServer) {
      await eventually(address, (port) => port !== linkOf(old).port, PATIENCE_MS);
    },
    async [Symbol.asyncDispose]() {
      sentinel.disconnect();
      await stop();
    },
  };
}

/** The servers of the group, and their links. `start` takes the port to replicate from; null: none. */
function startServers(folder: string, { args = [], program }: SentinelOptions) {
  const servers: RedisServer[] = [];
  const links: TcpProxy[] = [];
  return {
    ...{ servers, links },
    linkOf: (server: RedisServer): TcpProxy => links[servers.indexOf(server)]!,
    async start(n: number, primary: number | null, port?: number): Promise<void> {
      const server = await startRedisServer({
        folder: path.join(folder, String(n)),
        args: [...eagerPrimary, '--repl-ping-replica-period', '1', ...args],
        ...(port !== undefined && { port }),
        ...(program !== undefined && { program }),
      });
      servers[n] = server;
      links[n] ??= await TcpProxy.open({ port: server.port });
      const announced = ['replica-announce-ip', '127.0.0.1', 'replica-announce-port', links[n].port] as const;
      await withRedis(server.url, async (redis) => {
        await redis.config('SET', ...announced);
        if (primary !== null) await redis.replicaof('127.0.0.1', primary);
      });
    },
  };
}

/** @param processes receives the running Sentinels @returns their ports */
async function startSentinels(
  folder: string,
  command: string,
  primary: number,
  times: Readonly<Record<string, number>>,
  processes: ServerProcess[],
): Promise<readonly number[]> {
  const settings = [
    'bind 127.0.0.1',
    `dir ${folder}`,
    `sentinel monitor ${SERVICE} 127.0.0.1 ${primary} 2`,
    ...Object.entries(times).map(([name, ms]) => `sentinel ${name} ${SERVICE} ${ms}`),
  ];
  const ports: number[] = [];
  for (let tries = 0; ports.length < SENTINELS; tries++) {
    const port = await freePort();
    const file = path.join(folder, `sentinel-${port}.conf`);
    await writeFile(file, `port ${port}\n${settings.join('\n')}\n`);
    const log = path.join(folder, `sentinel-${port}.log`);
    const started = await launch({ command, args: [file, '--sentinel'], cwd: folder, log }, 'redis-failed');
    await eventually(async () => started.end() !== null || started.output().includes(MONITORS), Boolean);
    if (started.end() === null) {
      processes.push(started);
      ports.push(port);
    } else if (tries >= PORT_TRIES) throw new Error(`a Sentinel did not start:\n${started.tail()}`);
  }
  return ports;
}

/** Waits until a Sentinel knows the others and the replicas: then it can fail over. */
async function untilReady(port: number, replicas: number): Promise<void> {
  const sentinel = new Redis(port, { retryStrategy: () => 100 });
  sentinel.on('error', () => {}); // it may not listen yet
  const info = async (): Promise<string> =>
    JSON.stringify(await sentinel.call('SENTINEL', 'master', SERVICE).catch(() => ''));
  const field = (text: string, name: string): string =>
    new RegExp(`"${name}"[,:]"([^"]*)"`).exec(text)?.[1] ?? '';
  const isReady = (text: string): boolean =>
    field(text, 'num-other-sentinels') === String(SENTINELS - 1) &&
    field(text, 'num-slaves') === String(replicas) &&
    field(text, 'flags') === 'master';
  await eventually(info, isReady, PATIENCE_MS).finally(() => sentinel.disconnect());
}

async function setOption(ports: readonly number[], name: string, value: number): Promise<void> {
  for (const port of ports)
    await withRedis(`redis://127.0.0.1:${port}`, (sentinel) =>
      sentinel.call('SENTINEL', 'SET', SERVICE, name, value),
    );
}

/** A Sentinel refuses while it knows no good replica, and gives up when the replica is slow: it is asked again. */
async function switchOver(sentinel: Redis, address: () => Promise<number>): Promise<void> {
  const before = await address();
  const ask = async (): Promise<number> => {
    const now = await address();
    if (now === before) await sentinel.call('SENTINEL', 'failover', SERVICE).catch(() => {});
    return now;
  };
  await eventually(ask, (port) => port !== before, PATIENCE_MS);
}

/** Has a replica follow its primary through a link that others do not use. */
async function followThroughLink(server: RedisServer, primary: RedisServer): Promise<TcpProxy> {
  const link = await TcpProxy.open({ port: primary.port });
  const linked = [`master_port:${link.port}`, 'master_link_status:up'];
  await withRedis(server.url, async (replica) => {
    await replica.replicaof('127.0.0.1', link.port);
    await eventually(
      () => replica.info('replication'),
      (info) => linked.every((line) => info.includes(line)),
    );
  });
  return link;
}
