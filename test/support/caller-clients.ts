/**
 * The clients of the locks by a caller's own client, of either library and of any kind, as the package of the locks makes them. The
 * caller's has options that must change neither the names of the locks' keys nor what the locks read in replies.
 */
import { Cluster, Redis } from 'ioredis';
import { createClient, createCluster, createSentinel, RESP_TYPES } from 'redis';
import { parseRedisUrl } from '../../src/config/urls/redis.ts';
import { openIoredis } from '../../src/locks/adapters/ioredis.ts';
import { openNodeRedis } from '../../src/locks/adapters/node-redis.ts';
import { whenConnected } from '../../src/locks/adapters/opening.ts';
import type { RedisClient } from '../../src/locks/clients.ts';
import { openRedis } from '../../src/store/redis/connection.ts';
import { eventually } from './client.ts';

/** @param url as REDIS_URL names a server, Sentinels or a cluster */
export type Connect = (url: string) => Promise<{ readonly redis: RedisClient; close(): Promise<unknown> }>;

/** Connects again until the servers answer: a busy machine may be late. @throws with the last error */
export async function reached<T extends object>(connect: () => Promise<T>): Promise<T> {
  const connected = (one: T | string) => typeof one !== 'string';
  return (await eventually<T | string>(() => connect().catch(String), connected)) as T;
}

export const asTheService: Connect = async (url) => {
  const store = await reached(() => openRedis(url, () => {}));
  return { redis: store.locks, close: () => store.close() };
};

export const byIoredis: Connect = async (url) => {
  const redis = await reached(() => whenConnected(openIoredis(ioredis(url), () => {})));
  return { redis, close: () => redis.close() };
};

export const byNodeRedis: Connect = async (url) => {
  const redis = await reached(() => whenConnected(openNodeRedis(nodeRedis(url), () => {})));
  return { redis, close: () => redis.close() };
};

function addressOf(url: string) {
  const address = parseRedisUrl(url);
  if (typeof address === 'string') throw new Error(address);
  return address;
}

/** For each port that a client learns from the servers, the one where it connects. */
export type Ways = ReadonlyMap<number, number>;

const mapOf = (ways: Ways) =>
  Object.fromEntries([...ways].map(([from, port]) => [`127.0.0.1:${from}`, { host: '127.0.0.1', port }]));

export function ioredis(url: string, ways: Ways = new Map()): Redis | Cluster {
  const address = addressOf(url);
  const natMap = mapOf(ways);
  const named = { lazyConnect: true, keyPrefix: 'app:', natMap };
  if (address.kind === 'server') return new Redis(url, { ...named, stringNumbers: true });
  const hosts = [...address.hosts];
  if (address.kind === 'cluster')
    return new Cluster(hosts, { ...named, redisOptions: { stringNumbers: true } });
  return new Redis({ ...named, sentinels: hosts, name: address.service, stringNumbers: true });
}

function plainNodeRedis(url: string, ways: Ways) {
  const address = addressOf(url);
  const nodeAddressMap = mapOf(ways);
  if (address.kind === 'server') return createClient({ url });
  const hosts = [...address.hosts];
  if (address.kind === 'cluster')
    return createCluster({ rootNodes: hosts.map((socket) => ({ socket })), nodeAddressMap });
  return createSentinel({ name: address.service, sentinelRootNodes: hosts, nodeAddressMap });
}

export const nodeRedis = (url: string, ways: Ways = new Map()) =>
  plainNodeRedis(url, ways).withTypeMapping({
    [RESP_TYPES.NUMBER]: String,
    [RESP_TYPES.SIMPLE_STRING]: Buffer,
    [RESP_TYPES.BLOB_STRING]: Buffer,
  });
