/** The independent servers of the lock `redlock`. */
import { Redis } from 'ioredis';
import { limits } from '../../config/limits.ts';
import { requestsOn } from '../../locks/adapters/ioredis.ts';
import { isDenied, leavesServer } from '../../locks/adapters/redis-errors.ts';
import { retryMs } from '../../locks/adapters/timing.ts';
import type { RedlockServer } from '../../locks/clients.ts';
import { LockSetupError } from '../../locks/lock.ts';
import { heldErrors } from './held-errors.ts';
import { missingRules, OF_A_LOCK, PROBE_KEY } from './permissions.ts';
import { requestsBy } from './scripts.ts';

type OnError = (doing: string, error: unknown, details?: object) => void;

/** Connects to a majority at least. @throws LockSetupError */
export async function openRedlockServers(
  urls: readonly string[],
  onError: OnError,
): Promise<readonly RedlockServer[]> {
  const distinct = new Set(urls.map((url) => new URL(url).host)).size;
  if (distinct < 3 || distinct < urls.length)
    throw new LockSetupError('REDLOCK_URLS must name at least three different Redis servers');
  const errors = heldErrors(onError);
  const clients = urls.map((url) => clientOf(url, errors.report));
  const close = () => {
    for (const redis of clients) redis.disconnect();
  };
  const quorum = Math.floor(clients.length / 2) + 1;
  const connected = await Promise.allSettled(clients.map((redis) => redis.connect()));
  if (connected.filter(({ status }) => status === 'fulfilled').length < quorum) {
    close();
    throw new LockSetupError(
      `fewer than ${quorum} of the ${clients.length} servers of REDLOCK_URLS are reachable`,
    );
  }
  errors.release();
  const rules = await missingRules(
    clients.map((redis) => ({ redis, key: PROBE_KEY })),
    OF_A_LOCK,
  );
  if (rules.length === 0) return clients.map(serverOn);
  close();
  throw new LockSetupError(`a server denies commands: run ACL SETUSER with its user and ${rules.join(' ')}`);
}

function clientOf(url: string, onError: OnError): Redis {
  const { host } = new URL(url);
  const redis = new Redis(url, {
    lazyConnect: true,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    commandTimeout: limits.redisCommandMs,
    connectTimeout: limits.redisCommandMs,
    socketTimeout: 2 * limits.redisCommandMs, // replaces a silent connection
    retryStrategy: retryMs, // a lease may depend on it
    reconnectOnError(error) {
      if (isDenied(error)) onError('redlock-permission', error, { host });
      return leavesServer(error);
    },
  });
  redis.on('error', (error) => onError('redlock-connection', error, { host }));
  return redis;
}

function serverOn(redis: Redis): RedlockServer {
  return {
    ...requestsOn(requestsBy(redis)),
    close: async () => redis.disconnect(),
  };
}
