/**
 * Opens a lock in a process: one of the registry, a library, or the control that locks nothing. The libraries are called
 * as their own documentation shows, on ioredis with its defaults.
 */
import { createRequire } from 'node:module';
import { Redis } from 'ioredis';
import { Mutex, RedlockMutex } from 'redis-semaphore';
import { createLock, createRedlock, IoredisAdapter } from 'redlock-universal';
import { parseEnv } from '../../src/config/env.ts';
import { choices, connectPostgres, connectRedis, openLock } from '../../src/service/core.ts';
import { reasonOf } from '../kit/text.ts';
import { CONTROL } from './lock-cells.ts';

/** URLs of a lock's servers, without those that it does not use. */
export interface ServerUrls {
  readonly redisUrl?: string;
  readonly redlockUrls?: readonly string[];
  readonly zookeeperUrl?: string;
  readonly databaseUrl?: string;
}

/** A holder's grant. */
export interface Grant {
  release(): Promise<unknown>;
  /** Fires when the lock says that the lease is lost; null: it never does. Each read compares the clock if the lock does. */
  readonly lost: AbortSignal | null;
  readonly fencingToken: number | null;
}

/** Why there is no grant. The libraries never say `contended`. */
export interface Refusal {
  readonly refused: 'contended' | 'aborted' | 'unavailable';
  readonly reason: string;
}

const refusal = (refused: Refusal['refused'], reason: string = refused): Refusal => ({ refused, reason });

/** The measured part of a lock. */
export interface ClientLock {
  /** @param ttlMs of this lease; by default that of the lock. The libraries ignore it. */
  acquire(resource: string, waitMs: number, signal: AbortSignal, ttlMs?: number): Promise<Grant | Refusal>;
  close(): Promise<void>;
}

/** The part of redlock that is called. A module cannot find redlock's own types: its `exports` do not name them. */
interface RedlockModule {
  readonly default: new (
    clients: Iterable<Redis>,
  ) => {
    /** Extends the lock while `work` runs. */
    using(
      resources: string[],
      durationMs: number,
      settings: { readonly retryCount: number },
      work: (signal: AbortSignal) => Promise<void>,
    ): Promise<void>;
  };
}
const { default: Redlock } = createRequire(import.meta.url)('redlock') as RedlockModule;

/** Length of every lease: the service's own default. */
const DEFAULT_TTL_MS = 10_000;
/** redlock's longest default pause between two tries: 200 ms and a jitter of 100 ms. */
const redlockPauseMs = 300;

/** @throws when there is no such lock, or its servers cannot be reached */
export async function openClientLock(
  name: string,
  urls: ServerUrls,
  ttlMs = DEFAULT_TTL_MS,
): Promise<ClientLock> {
  if (choices.locks.includes(name)) return await openOwn(name, urls, ttlMs);
  const clients = (urls.redlockUrls ?? [urls.redisUrl ?? '']).map(
    (url) => new Redis(url, { lazyConnect: true }),
  );
  for (const client of clients) client.on('error', () => {}); // a command that fails rejects
  await Promise.all(clients.map((client) => client.connect()));
  return {
    acquire: acquireOf(name, clients, ttlMs),
    async close() {
      for (const client of clients) client.disconnect();
    },
  };
}

function acquireOf(name: string, clients: readonly Redis[], ttlMs: number): ClientLock['acquire'] {
  const [first] = clients as [Redis];
  if (name.startsWith('redlock-5')) {
    const redlock = new Redlock(clients);
    // redlock counts a lease from the first of its tries on.
    const retryCount = Math.max(1, Math.floor(ttlMs / 2 / redlockPauseMs));
    return callingBack((resource, work) => redlock.using([resource], ttlMs, { retryCount }, work));
  }
  if (name.startsWith('redlock-universal')) {
    const adapters = clients.map((client) => new IoredisAdapter(client));
    const [adapter] = adapters as [IoredisAdapter];
    return callingBack(async (key, work) => {
      const options = { key, ttl: ttlMs };
      const lock =
        clients.length === 1 ? createLock({ adapter, ...options }) : createRedlock({ adapters, ...options });
      await lock.using(work);
    });
  }
  if (name.startsWith('redis-semaphore')) {
    return async (resource, waitMs, signal) => {
      const lost = new AbortController();
      const options = { lockTimeout: ttlMs, acquireTimeout: waitMs, onLockLost: () => lost.abort() };
      const mutex =
        clients.length === 1
          ? new Mutex(first, resource, options)
          : new RedlockMutex([...clients], resource, options);
      const got = await mutex.tryAcquire(signal).catch(reasonOf);
      const release = () => mutex.release().catch(() => {});
      if (got === true) return { release, lost: lost.signal, fencingToken: null };
      return refusal('unavailable', got === false ? 'gave up' : got);
    };
  }
  if (name !== CONTROL) throw new Error(`there is no lock ${name}`);
  return async () => {
    await first.ping();
    return { release: () => first.ping(), lost: null, fencingToken: null };
  };
}

/** A library that runs `work` while it holds the lock, and gives up after some tries. It is called again until the waiter gives up. */
function callingBack(
  use: (resource: string, work: (lost: AbortSignal) => Promise<void>) => Promise<void>,
): ClientLock['acquire'] {
  return (resource, waitMs, signal) =>
    new Promise((granted) => {
      const untilMs = performance.now() + waitMs;
      let isGranted = false;
      const work = (lost: AbortSignal) =>
        new Promise<void>((done) => {
          if (signal.aborted) return done(); // the call cannot be cancelled
          isGranted = true;
          const release = () => {
            done();
            return used;
          };
          granted({ release, lost, fencingToken: null });
        });
      const ask = (): Promise<void> =>
        use(resource, work).catch((error) => {
          if (isGranted) return;
          if (performance.now() < untilMs && !signal.aborted) return ask();
          granted(refusal('unavailable', reasonOf(error)));
        });
      const used = ask();
      const giveUp = () => granted(refusal('aborted'));
      signal.addEventListener('abort', giveUp, { once: true });
      void used.finally(() => signal.removeEventListener('abort', giveUp));
    });
}

/** On connections as the service has them. */
async function openOwn(name: string, urls: ServerUrls, ttlMs: number): Promise<ClientLock> {
  const env = {
    LOCK: name,
    REDLOCK_URLS: urls.redlockUrls?.join(','),
    ZOOKEEPER_URL: urls.zookeeperUrl,
    REDIS_WAIT: '1', // its servers are a primary with one replica
  };
  const config = { ...parseEnv(env, choices), lockTtlMs: ttlMs };
  const { redisUrl, databaseUrl } = urls;
  const onError = () => {};
  const redis = redisUrl === undefined ? null : await connectRedis(redisUrl, config, onError);
  const postgres = databaseUrl === undefined ? null : connectPostgres(databaseUrl, config, onError);
  // A lock uses only the stores that its description names.
  const lock = await openLock(config, { redis, postgres: postgres!, onError });
  return {
    async acquire(resource, waitMs, signal, ownMs = ttlMs) {
      const result = await lock.acquire(resource, { ttlMs: ownMs, waitMs, signal });
      if (result.kind === 'held') {
        const { lease } = result;
        return {
          release: async () => (await lease.release()) === 'released',
          get lost() {
            return lease.signal;
          },
          fencingToken: lease.fencingToken,
        };
      }
      return refusal(result.kind, result.kind === 'unavailable' ? result.reason : result.kind);
    },
    async close() {
      await lock.close();
      await redis?.close();
      await postgres?.close();
    },
  };
}
