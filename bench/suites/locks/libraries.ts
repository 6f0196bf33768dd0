/** The two libraries as the bench calls them, each as its own documentation shows it, on ioredis as it comes. */
import { createRequire } from 'node:module';
import { Redis } from 'ioredis';
import { Mutex, RedlockMutex } from 'redis-semaphore';
import { type BenchLock, TTL_MS } from './protocol.ts';

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
const require = createRequire(import.meta.url);
const { default: Redlock } = require('redlock') as RedlockModule;

/** The shortest pause between two tries that redlock's defaults make: 200 ms less a jitter of 100 ms. */
const REDLOCK_PAUSE_MS = 100;

async function connect(urls: readonly string[]): Promise<Redis[]> {
  const clients = urls.map((url) => new Redis(url, { lazyConnect: true }));
  for (const client of clients) client.on('error', () => {}); // a command that fails rejects
  await Promise.all(clients.map((client) => client.connect()));
  return clients;
}

function disconnect(clients: readonly Redis[]): void {
  for (const client of clients) client.disconnect();
}

/** redlock cannot be cancelled: a lock that arrives after the signal fired is released. */
export async function openRedlock(urls: readonly string[]): Promise<BenchLock> {
  const clients = await connect(urls);
  const redlock = new Redlock(clients);
  return {
    async acquire(resource, { waitMs, signal }) {
      const retryCount = Math.ceil(waitMs / REDLOCK_PAUSE_MS);
      const asked = redlock.acquire([resource], TTL_MS, { retryCount });
      const lock = await unlessAborted(asked.catch(reasonOf), signal);
      if (lock === null) {
        asked.then((late) => late.release()).catch(() => {});
        return { kind: 'refused', reason: 'aborted' };
      }
      if (typeof lock === 'string') return { kind: 'refused', reason: lock };
      return { kind: 'held', release: () => lock.release().catch(() => {}) };
    },
    async close() {
      disconnect(clients);
    },
  };
}

/** One Mutex for each acquisition; over several servers it is a RedlockMutex. */
export async function openSemaphore(urls: readonly string[]): Promise<BenchLock> {
  const clients = await connect(urls);
  return {
    async acquire(resource, { waitMs, signal }) {
      const options = { lockTimeout: TTL_MS, acquireTimeout: waitMs, onLockLost: () => {} };
      const mutex =
        clients.length === 1
          ? new Mutex(clients[0]!, resource, options)
          : new RedlockMutex(clients, resource, options);
      const got = await mutex.tryAcquire(signal).catch(reasonOf);
      if (got !== true) return { kind: 'refused', reason: got === false ? 'gave up' : got };
      return { kind: 'held', release: () => mutex.release().catch(() => {}) };
    },
    async close() {
      disconnect(clients);
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

const reasonOf = (error: unknown): string => (error instanceof Error ? error.name : String(error));
