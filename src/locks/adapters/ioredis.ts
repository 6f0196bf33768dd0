/** The client of the locks on ioredis: on connections of the service, or made from a caller's client of any kind. */
import type { Cluster, Redis } from 'ioredis';
import type { Ioredis } from '../callers.ts';
import { type Call, type RedisClient, type RedisServerOfKey, RequestError } from '../clients.ts';
import { type Opening, whenConnected } from './opening.ts';
import { explainRedis, isStill, leavesServer } from './redis-errors.ts';
import { scriptBy } from './scripts.ts';
import { slotOf } from './slots.ts';
import { CONNECT_MS, inTime, REPLY_MS, retryMs, silentMs } from './timing.ts';

export interface IoredisParts extends Pick<RedisClient, 'isCluster' | 'another' | 'close'>, Requests {
  serverOf(key: string): ServerOfKey;
  /** A connection that can receive the messages of a channel, with these options. It reconnects. */
  connectionTo(channel: string, options: typeof SUBSCRIBER): Redis;
}

interface Requests {
  readonly redis: Pick<Redis, 'call' | 'on'>;
  script(name: string, numberOfKeys: number): Call;
  /** What an error of ioredis means. @throws the error itself when it is a defect */
  explain(error: unknown): ConstructorParameters<typeof RequestError>[0];
}

interface ServerOfKey {
  readonly redis: Pick<Redis, 'set' | 'wait'>;
  readonly connections: number;
}

/** ioredis's own resubscription leaves an unhandled rejection, fatal to the process, if the new connection fails too. */
const SUBSCRIBER = { lazyConnect: true, enableOfflineQueue: true, autoResubscribe: false } as const;

export function onIoredis({ isCluster, another, close, serverOf, connectionTo, ...requests }: IoredisParts) {
  const failed = failing(requests);
  const servers = new WeakMap<ServerOfKey, RedisServerOfKey>();
  const newServer = (server: ServerOfKey): RedisServerOfKey => ({
    get connections() {
      return server.connections;
    },
    wait: (replicas, timeoutMs) => server.redis.wait(replicas, timeoutMs).catch(failed),
    mark: (key) => isStill(server.redis.set(key, '1', 'PX', 1)).catch(failed),
  });
  const client: RedisClient = {
    ...{ isCluster, another, close },
    ...requestsOn(requests),
    serverOf(key) {
      let server: ServerOfKey;
      try {
        server = serverOf(key);
      } catch (error) {
        return failed(error);
      }
      const known = servers.get(server) ?? newServer(server);
      servers.set(server, known);
      return known;
    },
    subscriber(channel, { message, error }) {
      const connection = connectionTo(channel, SUBSCRIBER);
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
  return client;
}

/** Commands and scripts on one connection, or in a cluster. */
export function requestsOn(requests: Requests): Pick<RedisClient, 'send' | 'script' | 'onReady'> {
  const { redis, script } = requests;
  const failed = failing(requests);
  return {
    send: (command, ...given) => redis.call(command, ...given).catch(failed),
    onReady: (callback) => void redis.on('ready', callback),
    script(name, numberOfKeys) {
      const call = script(name, numberOfKeys);
      // biome-ignore lint/suspicious/noExplicitAny: the script's author knows its reply
      return (...given) => call(...given).catch(failed) as Promise<any>;
    },
  };
}

const failing =
  ({ explain }: Requests) =>
  (error: unknown): never => {
    throw new RequestError(explain(error), error);
  };

/**
 * No command waits for a connection, and none is sent again: it may have run, and its lease may have ended. The locks count with integer
 * replies, and their scripts publish names of keys: a caller's `stringNumbers` and `keyPrefix` would change both.
 */
const OPTIONS = {
  stringNumbers: false,
  keyPrefix: '',
  lazyConnect: true,
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  commandTimeout: REPLY_MS,
  connectTimeout: REPLY_MS,
  socketTimeout: silentMs(REPLY_MS),
  reconnectOnError: leavesServer,
  retryStrategy: retryMs,
} as const;

/** Opens connections of the same kind as a caller's client. @param onError receives errors of connections */
export function openIoredis(given: Ioredis, onError: (error: Error) => void): Opening {
  const isCluster = 'slots' in given;
  const client: Redis = isCluster
    ? given.duplicate([], {
        lazyConnect: true,
        enableOfflineQueue: false,
        keyPrefix: '',
        clusterRetryStrategy: retryMs,
        // The caller's password and TLS: ioredis 5 does not merge them.
        redisOptions: {
          ...(given as unknown as Cluster).options.redisOptions,
          ...OPTIONS,
          enableOfflineQueue: true,
        },
      })
    : given.duplicate(OPTIONS);
  client.on('error', onError);
  const connected = inTime(client.connect(), CONNECT_MS, 'Connection timeout');
  const counts = new WeakMap<Redis, { redis: Redis; connections: number }>();
  /** Counts the lost connections of a server from its first use on. */
  const counted = (redis: Redis) => {
    const known = counts.get(redis) ?? { redis, connections: 0 };
    if (!counts.has(redis)) redis.on('close', () => known.connections++);
    counts.set(redis, known);
    return known;
  };
  const masterOf = (key: string): Redis => {
    const { slots, nodes } = client as unknown as Cluster;
    const [address] = slots[slotOf(key)] ?? [];
    const all = nodes.call(client, 'master');
    const node = all.find(({ options }) => `${options.host}:${options.port}` === address);
    if (node === undefined) throw new Error('Connection is closed.');
    return node;
  };
  const opened = onIoredis({
    redis: client,
    isCluster,
    serverOf: (key) => counted(isCluster ? masterOf(key) : client),
    connectionTo: (channel, options) =>
      (isCluster ? masterOf(channel) : client).duplicate({ ...options, retryStrategy: retryMs }),
    script: (name, numberOfKeys) =>
      scriptBy((command, ...rest) => client.call(command, ...rest), name, numberOfKeys),
    explain: explainRedis,
    another: (listener) => whenConnected(openIoredis(given, listener)),
    close: async () => client.disconnect(),
  });
  return { client: opened, connected };
}
