/** A service with separate stores and a proxy to each store, for fault injection. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { freePort } from '../src/local/server-process.ts';
import type { Shop, StrategyFault } from './faults/strategy-fault.ts';
import { removeFolder } from './kit/temporary-folder.ts';
import { TcpProxy } from './proxy.ts';
import type { LabOptions } from './servers/lab-servers.ts';
import { openLabServers } from './servers/open.ts';
import { type Service, startService } from './service.ts';

interface StoreUrls {
  readonly databaseUrl: string;
  readonly redisUrl: string;
}

export interface ShopOptions {
  readonly strategy: string;
  /** Additional environment variables of the service. */
  readonly env: Readonly<Record<string, string>>;
  /** Folder of the servers and their data; removed at the end. */
  readonly folder: string;
  readonly clock?: string | null;
  readonly redis?: 'single' | 'replicated' | 'cluster';
  /** The servers that the fault requires, such as a replica. */
  readonly needs?: Pick<StrategyFault, 'group' | 'smallDisk'>;
  /** Time added to each round trip to a store, ms. */
  readonly rttMs?: number;
  readonly signal: AbortSignal;
}

export interface OpenShop extends Shop, AsyncDisposable {
  /** URL of the service; it stays the same after a restart. */
  readonly url: string;
  /** Direct URLs, without a proxy, of the stores that currently have the data. */
  stores(): Promise<StoreUrls>;
  /** Stops the service; the stores keep running. */
  stop(): Promise<unknown>;
}

/** @throws when a store or the service does not start; then all of them are stopped and removed */
export async function openShop(options: ShopOptions): Promise<OpenShop> {
  const closers: (() => PromiseLike<unknown>)[] = [];
  const close = async (): Promise<void> => {
    for (const closer of closers.splice(0).reverse()) await closer();
  };
  try {
    return { ...(await open(options, closers)), [Symbol.asyncDispose]: close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** As a supervisor starts it again: on a slow machine, a store may answer the start too late. */
const START_TRIES = 5;

/** @param closers receives a function that ends each part, in starting order */
async function open(
  options: ShopOptions,
  closers: (() => PromiseLike<unknown>)[],
): Promise<Omit<OpenShop, typeof Symbol.asyncDispose>> {
  const { folder, strategy, rttMs = 0, signal } = options;
  const use = <T extends AsyncDisposable>(part: T): T => {
    closers.push(() => part[Symbol.asyncDispose]());
    return part;
  };
  closers.push(() => removeFolder(folder));
  await mkdir(folder, { recursive: true, mode: 0o755 });
  const redis = use(await openLabServers('redis', redisOptions(options)));
  signal.throwIfAborted();
  const postgres = use(await openLabServers('postgres', postgresOptions(options)));
  const [redisNode, postgresNode] = [redis.nodes[0]!, postgres.nodes[0]!];
  const wayTo = async ({ port }: { readonly port: number }): Promise<TcpProxy> =>
    Object.assign(use(await TcpProxy.open({ port })), { rttMs });
  const [toRedis, toPostgres] = [await wayTo(redisNode), await wayTo(postgresNode)];
  const port = await freePort();
  const start = async (tries = START_TRIES): Promise<Service> => {
    const through = {
      ...(redis.groupUrls ?? redis.urls([toRedis.port])),
      ...(postgres.groupUrls ?? postgres.urls([toPostgres.port])),
    } as StoreUrls;
    const env = { PORT: String(port), ...options.env };
    try {
      return await startService({ strategy, lock: null, ...through, env }, { signal });
    } catch (error) {
      if (tries === 1 || signal.aborted) throw error;
      return start(tries - 1);
    }
  };
  let service = await start();
  const stop = () => service.stop();
  closers.push(stop);
  return {
    service: {
      async kill() {
        process.kill(service.pid!, 'SIGKILL');
        await service.stop();
      },
      async start() {
        service = await start();
      },
      signal: (name) => void process.kill(service.pid!, name),
    },
    redis: { ...redis, ...redisNode },
    postgres: { ...postgres, ...postgresNode },
    links: { redis: redis.ways ?? toRedis, postgres: postgres.ways ?? toPostgres },
    url: service.url,
    stores: async () => ({ ...(await redis.currentUrls()), ...(await postgres.currentUrls()) }) as StoreUrls,
    stop,
  };
}

function redisOptions({ folder, clock = null, redis, needs = {} }: ShopOptions): LabOptions {
  const group = redis === 'cluster' ? 'cluster' : needs.group === 'sentinels' ? needs.group : null;
  const replicas = redis === 'replicated' ? 1 : 0;
  return { folder: join(folder, 'redis'), clock, durable: true, group, replicas };
}

function postgresOptions({ folder, clock = null, needs = {} }: ShopOptions): LabOptions {
  const { group = null, smallDisk = false } = needs;
  const own = group === 'sentinels' ? null : group;
  return { folder: join(folder, 'postgres'), clock, durable: true, group: own, smallDisk };
}
