/**
 * Opens a lock in a process: one of the registry, a library, or the control that locks nothing. The libraries are called
 * as their own documentation shows it, on ioredis as it comes.
 */
import { createRequire } from 'node:module';
import { Redis } from 'ioredis';
import { Mutex, RedlockMutex } from 'redis-semaphore';
import { locks } from '../../../src/locks/registry.ts';
import { openPostgres } from '../../../src/store/postgres/pool.ts';
import { openRedis } from '../../../src/store/redis/connection.ts';
import { reasonOf } from '../../kit/text.ts';
import { CONTROL } from './cells.ts';
import type { ServerUrls } from './protocol.ts';

/** As much of a lock as is measured. */
export interface BenchLock {
  /** @returns how to release it, or why it was refused */
  acquire(resource: string, waitMs: number, signal: AbortSignal): Promise<(() => Promise<unknown>) | string>;
  close(): Promise<void>;
}

/** As much of redlock as is called. A module cannot find the types that it brings: its `exports` do not name them. */
interface RedlockModule {
  readonly default: new (
    clients: Iterable<Redis>,
  ) => {
    acquire(
      resources: string[],
      durationMs: number,
      settings: { readonly retryCount: number },
    ): Promise<{ release(): Promise<unknown> }>;
  };
}
const { default: Redlock } = createRequire(import.meta.url)('redlock') as RedlockModule;

/** Length of every lease: the service's own default. No hold comes near it. */
const ttlMs = 10_000;
/** The shortest pause between two tries that redlock's defaults make: 200 ms less a jitter of 100 ms. */
const redlockPauseMs = 100;

/** @throws when there is no such lock, or its servers cannot be reached */
export async function openLock(name: string, urls: ServerUrls): Promise<BenchLock> {
  if (locks.has(name)) return await openOwn(name, urls);
  const clients = (urls.redlockUrls ?? [urls.redisUrl ?? '']).map(
    (url) => new Redis(url, { lazyConnect: true }),
  );
  for (const client of clients) client.on('error', () => {}); // a command that fails rejects
  await Promise.all(clients.map((client) => client.connect()));
  return {
    acquire: acquireOf(name, clients),
    async close() {
      for (const client of clients) client.disconnect();
    },
  };
}

function acquireOf(name: string, clients: readonly Redis[]): BenchLock['acquire'] {
  const [first] = clients as [Redis];
  if (name.startsWith('redlock-5')) {
    const redlock = new Redlock(clients);
    return async (resource, waitMs, signal) => {
      const retryCount = Math.ceil(waitMs / redlockPauseMs);
      const asked = redlock.acquire([resource], ttlMs, { retryCount });
      const lock = await unlessAborted(asked.catch(reasonOf), signal);
      if (typeof lock === 'string') return lock;
      if (lock !== null) return () => lock.release().catch(() => {});
      asked.then((late) => late.release()).catch(() => {}); // redlock cannot be cancelled
      return 'aborted';
    };
  }
  if (name.startsWith('redis-semaphore')) {
    return async (resource, waitMs, signal) => {
      const options = { lockTimeout: ttlMs, acquireTimeout: waitMs, onLockLost: () => {} };
      const mutex =
        clients.length === 1
          ? new Mutex(first, resource, options)
          : new RedlockMutex([...clients], resource, options);
      const got = await mutex.tryAcquire(signal).catch(reasonOf);
      if (got === true) return () => mutex.release().catch(() => {});
      return got === false ? 'gave up' : got;
    };
  }
  if (name !== CONTROL) throw new Error(`there is no lock ${name}`);
  return async () => {
    await first.ping();
    return () => first.ping();
  };
}

async function openOwn(name: string, urls: ServerUrls): Promise<BenchLock> {
  const redis = urls.redisUrl === undefined ? null : await openRedis(urls.redisUrl, () => {});
  const postgres = urls.databaseUrl === undefined ? null : openPostgres(urls.databaseUrl, () => {});
  const lock = await locks.get(name)!.create({
    // A lock uses those stores alone that its description names.
    redis: redis!,
    postgres: postgres!,
    lockTtlMs: ttlMs,
    redlockUrls: urls.redlockUrls ?? [],
    zookeeperUrl: urls.zookeeperUrl ?? null,
    redisWait: 0,
    onError: () => {},
  });
  return {
    async acquire(resource, waitMs, signal) {
      const result = await lock.acquire(resource, { ttlMs, waitMs, signal });
      if (result.kind === 'held') return () => result.lease.release();
      return result.kind === 'unavailable' ? result.reason : result.kind;
    },
    async close() {
      await lock.close();
      await redis?.close();
      await postgres?.close();
    },
  };
}

/** The value of a promise, or null when the signal fired before; keeps no listener, of which there would be thousands. */
function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T | null> {
  return new Promise((resolve) => {
    const giveUp = () => resolve(null);
    if (signal.aborted) giveUp();
    else signal.addEventListener('abort', giveUp, { once: true });
    void promise.then(resolve).finally(() => signal.removeEventListener('abort', giveUp));
  });
}
