/** The clients that the locks get: see locks/clients.ts. */
import type { Redis } from 'ioredis';
import { type RedisClient, type RedisServerOfKey, RequestError } from '../../locks/clients.ts';
import { expectedRedisFailure } from '../failures/redis.ts';
import type { ConnectionOptions } from './cluster.ts';
import { defineScript } from './load-script.ts';
import type { RedisServer } from './server.ts';

export interface LockClientParts extends Pick<RedisClient, 'isCluster' | 'another' | 'close'> {
  readonly redis: Redis;
  serverOf(key: string): RedisServer;
  connectionTo(key: string, options: ConnectionOptions): Redis;
}

export function lockClient({ redis, serverOf, connectionTo, ...parts }: LockClientParts): RedisClient {
  const servers = new WeakMap<RedisServer, RedisServerOfKey>();
  return {
    ...parts,
    ...requestsOn(redis),
    serverOf(key) {
      const server = thrown(() => serverOf(key));
      const known = servers.get(server) ?? serverOfKey(server);
      servers.set(server, known);
      return known;
    },
    subscriber(channel, { message, error }) {
      // ioredis's own resubscription leaves an unhandled rejection, fatal to the process, if the new connection fails too.
      const connection = connectionTo(channel, {
        lazyConnect: true,
        enableOfflineQueue: true,
        autoResubscribe: false,
      });
      let isSubscribed = false;
      connection.on('ready', () => {
        if (isSubscribed) connection.subscribe(channel).catch(() => connection.disconnect(true));
      });
      connection.on('error', error);
      connection.on('message', (_channel, text) => message(text));
      return {
        get isReady() {
          return isSubscribed && connection.status === 'ready';
        },
        async subscribe() {
          await connection.subscribe(channel);
          isSubscribed = true;
        },
        close: () => connection.disconnect(),
      };
    },
  };
}

/** Commands and scripts on one connection. */
export function requestsOn(redis: Redis): Pick<RedisClient, 'send' | 'script'> {
  return {
    send: (command, ...given) => redis.call(command, ...given).catch(failed),
    script(name, numberOfKeys) {
      const call = defineScript(redis, name, numberOfKeys);
      // biome-ignore lint/suspicious/noExplicitAny: the script's author knows its reply
      return (...given) => call(...given).catch(failed) as Promise<any>;
    },
  };
}

function serverOfKey(server: RedisServer): RedisServerOfKey {
  const { redis } = server;
  return {
    get connections() {
      return server.connections;
    },
    info: (section) => redis.info(section).catch(failed),
    wait: (replicas, timeoutMs) => redis.wait(replicas, timeoutMs).catch(failed),
  };
}

/** @throws RequestError, or the error itself when it is a defect */
function failed(error: unknown): never {
  throw new RequestError(expectedRedisFailure(error), error);
}

function thrown<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    return failed(error);
  }
}
