/**
 * A cluster of Redis. All keys of a sale have one hash tag, so a sale is on one server, and so is a lock.
 *
 *   key ──CRC16 of its tag──▶ slot ──the cluster's map──▶ server ──not connected──▶ not sent, and the map is read again
 *
 * A slot can move to another server at any time. The client follows; the sales in it have another epoch there, so they are
 * loaded again (see epochs.ts).
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Cluster, Command, Redis, type RedisOptions } from 'ioredis';
import type { ClusterAddress } from '../../config/urls/redis.ts';
import { FailureError } from '../../domain/failure.ts';
import { retryMs } from '../../locks/adapters/timing.ts';
import { clusterOf, nodeOptions, type OnReply } from './client.ts';
import { type RedisServer, redisServer, type StoreServer } from './server.ts';

/** Options of a further connection. */
export type ConnectionOptions = Pick<
  RedisOptions,
  'lazyConnect' | 'enableOfflineQueue' | 'autoResubscribe' | 'commandTimeout' | 'socketTimeout'
>;

/** How long a cluster may take to become ready at start, milliseconds. */
const CONNECT_MS = 5_000;
/** Keys whose slots are cached. */
const MAX_CACHED_SLOTS = 10_000;

export interface RedisCluster {
  readonly cluster: Cluster;
  /** @throws when the cluster does not become ready in time */
  connect(): Promise<void>;
  /** The masters, also those that do not answer. */
  servers(): readonly StoreServer[];
  /** The master that has a key. @throws FailureError (`not-sent`) when it is not connected */
  serverOf(key: string): RedisServer;
  /** A dedicated connection to the master that has a key. Each reconnection looks up where the key is. */
  connectionTo(key: string, options: ConnectionOptions): Redis;
}

/** @param replicas see `REDIS_WAIT` */
export function redisCluster(
  address: ClusterAddress,
  replicas: number,
  onError: (error: Error) => void,
  onReply: OnReply,
): RedisCluster {
  const cluster = clusterOf(address, onReply);
  const nodes = new Map<string, Redis>();
  const servers = new WeakMap<Redis, RedisServer>();
  cluster.on('error', onError);
  cluster.on('node error', onError);
  cluster.on('+node', (node: Redis) => {
    nodes.set(addressOf(node), node);
    if (cluster.status === 'ready') connectAll();
  });
  cluster.on('-node', (node: Redis) => {
    if (nodes.get(addressOf(node)) === node) nodes.delete(addressOf(node));
  });

  /** Replicas, too, so that a failover does not wait for it. Not earlier: the client's check of the cluster needs an idle node. */
  function connectAll(): void {
    for (const node of cluster.nodes()) if (node.status === 'wait') node.connect().catch(() => {});
  }
  cluster.on('ready', connectAll);

  const slots = new Map<string, number>();
  function slotOf(key: string): number {
    let slot = slots.get(key);
    if (slot === undefined) {
      slot = new Command('get', [key]).getSlot()!;
      if (slots.size >= MAX_CACHED_SLOTS) slots.clear();
      slots.set(key, slot);
    }
    return slot;
  }
  /** By slot, the server that had it last. */
  const owners: RedisServer[] = [];
  const masterOf = (key: string): string | undefined => cluster.slots[slotOf(key)]?.[0];

  return {
    cluster,
    async connect() {
      const late = sleep(CONNECT_MS, true, { ref: false });
      try {
        // The client's promise stays open when the cluster is up and reports that it is not ready.
        if (await Promise.race([cluster.connect().then(() => false), late]))
          throw new Error('the cluster is not ready');
        // A ping waits for the connection. A master that is down does not keep the others from being used.
        await Promise.allSettled(cluster.nodes('master').map((node) => node.ping()));
      } catch (error) {
        cluster.disconnect();
        throw error;
      }
    },
    serverOf(key) {
      const node = nodes.get(masterOf(key) ?? '');
      if (node === undefined || !['ready', 'wait'].includes(node.status)) {
        cluster.refreshSlotsCache();
        throw new FailureError(
          'redis',
          'not-sent',
          'redis-unreachable',
          `the server of ${key} is not connected`,
        );
      }
      let server = servers.get(node);
      if (server === undefined) {
        server = redisServer(node, replicas);
        servers.set(node, server);
      }
      const slot = slotOf(key);
      if (owners[slot] !== undefined && owners[slot] !== server) server.lost();
      owners[slot] = server;
      return server;
    },
    servers() {
      const slotsOf = new Map<string, number[]>();
      // forEach skips slots that no master has.
      cluster.slots.forEach(([master = ''], slot) => {
        const its = slotsOf.get(master);
        if (its === undefined) slotsOf.set(master, [slot]);
        else its.push(slot);
      });
      return [...slotsOf].flatMap(([name, its]) => {
        const redis = nodes.get(name);
        if (redis === undefined) return [];
        const part = `${rangesOf(its)}, ${Math.round((its.length / SLOTS) * 100)} % of the sales,`;
        const key = keyIn(new Set(its));
        return [{ redis, name, key, part, check: () => redis.exists(key) }];
      });
    },
    connectionTo(key, options) {
      const place = () => {
        const at = masterOf(key) ?? nodes.keys().next().value ?? '';
        const colon = at.lastIndexOf(':');
        return { host: at.slice(0, colon), port: Number(at.slice(colon + 1)) };
      };
      const retryStrategy = (times: number) => {
        cluster.refreshSlotsCache();
        Object.assign(connection.options, place());
        return retryMs(times);
      };
      const connection: Redis = new Redis({
        ...nodeOptions(address, onReply),
        enableOfflineQueue: false,
        ...options,
        ...place(),
        retryStrategy,
      });
      return connection;
    },
  };
}

/** Connects to the first server, because the client of the cluster does not say why it fails. @returns null: it is reached */
export async function whyUnreachable(address: ClusterAddress, onReply: OnReply): Promise<Error | null> {
  const options = { ...nodeOptions(address, onReply), ...address.hosts[0], retryStrategy: () => null };
  const server = new Redis(options);
  const errors: Error[] = [];
  server.on('error', (error) => errors.push(error));
  const why = await server.connect().then(
    () => null,
    (error) => errors[0] ?? error,
  );
  server.disconnect();
  return why;
}

const SLOTS = 16_384;

/** `slots 0-5460` */
function rangesOf(slots: readonly number[]): string {
  const starts = slots.filter((slot, i) => slot !== slots[i - 1]! + 1);
  const ends = slots.filter((slot, i) => slot !== slots[i + 1]! - 1);
  return `slots ${starts.map((start, i) => (start === ends[i] ? start : `${start}-${ends[i]}`)).join(', ')}`;
}

/** A key in one of the slots: a cluster that is down answers PING, and no command with a key. */
function keyIn(slots: ReadonlySet<number>): string {
  for (let n = 0; ; n++) {
    const key = `stampede:{probe:${n}}`;
    if (slots.has(new Command('get', [key]).getSlot()!)) return key;
  }
}

const addressOf = ({ options }: Redis): string => `${options.host}:${options.port}`;
