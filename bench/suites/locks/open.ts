/** Opens a lock in a process: one of the registry, a library, or the control that locks nothing. */
import type { Redis } from 'ioredis';
import { locks } from '../../../src/locks/registry.ts';
import { openPostgres } from '../../../src/store/postgres/pool.ts';
import { openRedis } from '../../../src/store/redis/connection.ts';
import { CONTROL } from './cells.ts';
import { type BenchLock, type ServerUrls, TTL_MS } from './protocol.ts';

/** @throws when there is no such lock, or its servers cannot be reached */
export async function openLock(name: string, urls: ServerUrls): Promise<BenchLock> {
  const redisUrls = urls.redlockUrls ?? [urls.redisUrl ?? ''];
  if (name.startsWith('redlock-5')) return (await import('./libraries.ts')).openRedlock(redisUrls);
  if (name.startsWith('redis-semaphore')) return (await import('./libraries.ts')).openSemaphore(redisUrls);
  if (name === CONTROL) return openControl(urls.redisUrl ?? '');
  return openOwn(name, urls);
}

async function openOwn(name: string, urls: ServerUrls): Promise<BenchLock> {
  const entry = locks.get(name);
  if (entry === undefined) throw new Error(`there is no lock ${name}`);
  const redis = urls.redisUrl === undefined ? null : await openRedis(urls.redisUrl, () => {});
  const postgres = urls.databaseUrl === undefined ? null : openPostgres(urls.databaseUrl, () => {});
  const lock = await entry.create({
    get redis() {
      return redis ?? missing(name, 'Redis');
    },
    get postgres() {
      return postgres ?? missing(name, 'Postgres');
    },
    lockTtlMs: TTL_MS,
    redlockUrls: urls.redlockUrls ?? [],
    zookeeperUrl: urls.zookeeperUrl ?? null,
    onError: () => {},
  });
  return {
    async acquire(resource, options) {
      const result = await lock.acquire(resource, { ttlMs: TTL_MS, ...options });
      if (result.kind === 'held') return { kind: 'held', release: () => result.lease.release() };
      return { kind: 'refused', reason: result.kind === 'unavailable' ? result.reason : result.kind };
    },
    async close() {
      await lock.close();
      await redis?.close();
      await postgres?.close();
    },
  };
}

/** A lock is given what its description says that it needs. */
function missing(name: string, server: string): never {
  throw new Error(`${name} was given no ${server}`);
}

async function openControl(redisUrl: string): Promise<BenchLock> {
  const store = await openRedis(redisUrl, () => {});
  const redis: Redis = store.redis;
  return {
    async acquire() {
      await redis.ping();
      return { kind: 'held', release: () => redis.ping() };
    },
    close: () => store.close(),
  };
}
