/**
 * The clients of ioredis, by address. None of them queues commands while its connection is down, or sends one again after it
 * was lost: it may have run.
 */
import { Cluster, Redis, type SentinelConnectionOptions, SentinelConnector } from 'ioredis';
import { limits } from '../../config/limits.ts';
import type { ClusterAddress, RedisAddress, SentinelAddress } from '../../config/urls/redis.ts';
import { leavesServer } from '../../locks/adapters/redis-errors.ts';
import { retryMs, silentMs } from '../../locks/adapters/timing.ts';

/** The options of every connection. @param onReply gets each error that a server replies */
const connection = (onReply: OnReply) => ({
  lazyConnect: true,
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  commandTimeout: limits.redisCommandMs,
  connectTimeout: limits.redisCommandMs,
  socketTimeout: silentMs(limits.redisCommandMs),
  // A server that accepts no write: find the new primary, or follow the host name to it.
  reconnectOnError(error: Error) {
    onReply(error);
    return leavesServer(error);
  },
});

export type OnReply = (error: Error) => void;

/** The options of a client that needs no queue: it connects before it is used. */
const client = (onReply: OnReply) => ({
  ...connection(onReply),
  enableOfflineQueue: false,
  retryStrategy: retryMs,
});

export function clientOf(address: Exclude<RedisAddress, ClusterAddress>, onReply: OnReply): Redis {
  return address.kind === 'server'
    ? new Redis(address.url, client(onReply))
    : sentinelClient(address, onReply);
}

/**
 * Ends the subscriptions of the last connection before it asks the Sentinels for the primary. A `+switch-master` event that
 * arrives meanwhile would otherwise end the client: ioredis 6 takes it for a `disconnect()`, and never connects again.
 */
class Connector extends SentinelConnector {
  // ioredis declares its type as that of any connector's options
  constructor(options: unknown) {
    super(options as SentinelConnectionOptions);
  }

  override connect(onError: (type: string, error: Error) => void) {
    const detector: { cleanup(): void } | null = Reflect.get(this, 'failoverDetector');
    detector?.cleanup();
    return super.connect(onError);
  }
}

/**
 * With Sentinel the client asks one Sentinel after the other for the primary. It also subscribes to their `+switch-master`
 * events, so that it leaves an old primary that it still reaches (a split brain) when any Sentinel announces the new one.
 */
function sentinelClient(address: SentinelAddress, onReply: OnReply): Redis {
  let wasReady = false;
  const redis = new Redis({
    ...client(onReply),
    Connector,
    sentinels: [...address.hosts],
    name: address.service,
    db: address.db,
    ...credentialsOf(address),
    ...(address.tls && { sentinelTLS: {}, enableTLSForSentinelMode: true }),
    failoverDetector: true,
    sentinelCommandTimeout: limits.redisCommandMs,
    // Without Sentinels the first connection fails; a later one is retried for as long as it takes.
    sentinelRetryStrategy: (times) => (wasReady ? retryMs(times) : null),
    sentinelReconnectStrategy: retryMs,
  });
  redis.once('ready', () => {
    wasReady = true;
  });
  return redis;
}

/** How often the map of the slots is read, milliseconds, besides whenever a server answers that a slot has moved. */
const SLOTS_REFRESH_MS = 1_000;
/** Delay before a retry after TRYAGAIN (only some keys of the slot have moved), milliseconds. */
const TRY_AGAIN_MS = 25;
const MAX_REDIRECTIONS = 40;
/** Tries of a connection to a server that was lost. If it still belongs to the cluster, the map of the slots names it again. */
const NODE_TRIES = 8;

/** The client of a cluster sends each command to the server that has its keys, and follows MOVED, ASK and TRYAGAIN. */
export function clusterOf(address: ClusterAddress, onReply: OnReply): Cluster {
  return new Cluster([...address.hosts], {
    lazyConnect: true,
    enableOfflineQueue: false,
    // A certificate names the host: connect to that, not to its address.
    dnsLookup: (host, callback) => callback(null, host),
    slotsRefreshInterval: SLOTS_REFRESH_MS,
    slotsRefreshTimeout: limits.redisCommandMs,
    retryDelayOnFailover: 0,
    retryDelayOnClusterDown: 0,
    retryDelayOnTryAgain: TRY_AGAIN_MS,
    maxRedirections: MAX_REDIRECTIONS,
    clusterRetryStrategy: retryMs,
    clusterNodeRetryStrategy: (times) => (times > NODE_TRIES ? null : retryMs(times)),
    redisOptions: nodeOptions(address, onReply),
  });
}

/** The options of a connection to one server of a cluster. */
export function nodeOptions(address: ClusterAddress, onReply: OnReply) {
  return { ...connection(onReply), ...credentialsOf(address) };
}

function credentialsOf({ tls, username, password }: ClusterAddress | SentinelAddress) {
  return {
    ...(username !== null && { username }),
    ...(password !== null && { password }),
    ...(tls && { tls: {} }),
  };
}
