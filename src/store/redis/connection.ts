/**
 * The connection to Redis. What its errors mean: store/failures/redis.ts.
 *
 * A command without an answer within `limits.redisCommandMs` fails as *unknown*: it may have run. A command that cannot be
 * sent because the connection is down fails at once as *not sent*. ioredis is configured neither to queue commands
 * while the connection is down nor to resend them.
 */
import type { Redis } from 'ioredis';
import { type ClusterAddress, parseRedisUrl } from '../../config/urls/redis.ts';
import { onIoredis } from '../../locks/adapters/ioredis.ts';
import { isDenied } from '../../locks/adapters/redis-errors.ts';
import type { RedisClient } from '../../locks/clients.ts';
import { clientOf } from './client.ts';
import { type ConnectionOptions, redisCluster, whyUnreachable } from './cluster.ts';
import { heldErrors } from './held-errors.ts';
import { missingRules, PROBE_KEY } from './permissions.ts';
import { attemptScripts, requestsBy, type SaleScripts } from './scripts.ts';
import { type RedisServer, redisServer, type StoreServer } from './server.ts';

export interface RedisStore {
  /** For commands that name keys. In a cluster, each goes to the server that has them. */
  readonly redis: Redis;
  /** A script may name the keys of one sale only. */
  readonly isCluster: boolean;
  readonly scripts: SaleScripts;
  /** The same, as the locks use it. */
  readonly locks: RedisClient;
  /** The server that has a key. @throws FailureError (`not-sent`) when it is not connected */
  serverOf(key: string): RedisServer;
  /** Asks again which servers have the keys, of the Sentinels, the name service or the cluster. Attempts are busy meanwhile. */
  findAgain(): void;
  /**
   * Call it before a write to a key, and its result after the write.
   * @returns whether as many replicas as `REDIS_WAIT` asks for have the write; always, when it asks for none
   * @throws (the result) what kept Redis from counting them
   */
  watchReplication(key: string): () => boolean | Promise<boolean>;
  /** Opens the same again, for the commands of one user. @throws when it cannot connect */
  another(onError: (error: Error) => void): Promise<RedisStore>;
  /** Another connection to the server that has a key, for commands that block it. It reconnects, and follows the key. */
  connectionTo(key: string, options: ConnectionOptions): Redis;
  /** @throws when Redis does not answer; in a cluster, when no master does. */
  ping(): Promise<void>;
  /**
   * Looks at each server: whether it answers, and keeps what is written to it; and at the user once a command was denied.
   * @param commands that the service needs
   * @returns what is wrong
   */
  inspect(commands: readonly string[]): Promise<readonly string[]>;
  /** Tries commands: see permissions.ts. @returns the rules that the user lacks, such as `+wait` */
  missingRules(commands: readonly string[]): Promise<readonly string[]>;
  close(): Promise<void>;
}

/**
 * Connects, and reconnects in the background whenever Redis is unreachable.
 * @param replicas that must have an attempt's reservation before it counts: see `REDIS_WAIT`
 * @throws when the first connection fails
 */
export async function openRedis(
  redisUrl: string,
  onError: (error: Error) => void,
  replicas = 0,
  denials: Denials = { isSeen: false },
): Promise<RedisStore> {
  const address = parseRedisUrl(redisUrl);
  if (typeof address === 'string') throw new Error(`the URL ${address}`);
  if (address.kind === 'cluster') return openCluster(address, onError, replicas, denials);
  const redis = clientOf(address, noteIn(denials));
  const errors = heldErrors(onError);
  redis.on('error', errors.report);
  await redis.connect().catch((error) => {
    redis.disconnect();
    throw errors.first()?.[0] ?? error; // what `connect` rejects with may say no more than that the connection is closed
  });
  errors.release();
  return storeOn(redis, (listener) => openRedis(redisUrl, listener, 0, denials), replicas, denials);
}

/** The store on a client of one server. */
export function storeOn(
  redis: Redis,
  another: RedisStore['another'],
  replicas = 0,
  denials: Denials = { isSeen: false },
): RedisStore {
  const server = redisServer(redis, replicas);
  const connectionTo: RedisStore['connectionTo'] = (_key, options) => redis.duplicate(options);
  const { host, port } = redis.options;
  const servers = () => [{ redis, name: `${host}:${port}`, key: PROBE_KEY, check: () => redis.ping() }];
  const serverOf = () => server;
  const findAgain = () => redis.disconnect(true);
  return storeWith({
    redis,
    isCluster: false,
    serverOf,
    findAgain,
    servers,
    another,
    connectionTo,
    replicas,
    denials,
  });
}

async function openCluster(
  address: ClusterAddress,
  onError: (error: Error) => void,
  replicas: number,
  denials: Denials,
): Promise<RedisStore> {
  const errors = heldErrors(onError);
  const onReply = noteIn(denials);
  const { cluster, connect, servers, ...toServers } = redisCluster(address, replicas, errors.report, onReply);
  await connect().catch(async (error) => {
    throw (await whyUnreachable(address, onReply)) ?? error;
  });
  errors.release();
  const redis = cluster as unknown as Redis; // the commands that name keys are the same
  const another: RedisStore['another'] = (listener) => openCluster(address, listener, 0, denials);
  const findAgain = () => cluster.refreshSlotsCache();
  return storeWith({ redis, isCluster: true, findAgain, servers, another, ...toServers, replicas, denials });
}

type Parts = Pick<
  RedisStore,
  'redis' | 'isCluster' | 'serverOf' | 'findAgain' | 'another' | 'connectionTo'
> & {
  servers(): readonly StoreServer[];
  readonly replicas: number;
  readonly denials: Denials;
};

/** Whether a command of this store, or of another one that it opened, was denied to the user. */
interface Denials {
  isSeen: boolean;
}

const noteIn = (denials: Denials) => (reply: Error) => {
  denials.isSeen ||= isDenied(reply);
};

function storeWith({ servers, replicas, denials, ...parts }: Parts): RedisStore {
  const { redis, isCluster, serverOf, connectionTo } = parts;
  const close = async () => redis.disconnect();
  const another = async (onError: (error: Error) => void) => (await parts.another(onError)).locks;
  return {
    ...parts,
    locks: onIoredis({ ...requestsBy(redis), isCluster, serverOf, connectionTo, another, close }),
    scripts: attemptScripts(redis, serverOf),
    watchReplication: (key) => (replicas === 0 ? ALWAYS : watchReplication(serverOf, key)),
    async ping() {
      const checks = await Promise.allSettled(servers().map(({ check }) => check()));
      const failed = checks.find(({ status }) => status === 'rejected') as PromiseRejectedResult | undefined;
      if (checks.every(({ status }) => status === 'rejected')) throw failed?.reason ?? new Error(NO_MASTER);
    },
    async inspect(commands) {
      const looks = servers().map((server) => inspectServer(server, isCluster));
      const problems = (await Promise.all(looks)).filter((problem) => problem !== null);
      if (!denials.isSeen) return problems;
      const rules = await missingRules(servers(), commands);
      denials.isSeen = rules.length > 0;
      return denials.isSeen ? [...problems, `the user lacks ${rules.join(' ')}`] : problems;
    },
    missingRules: (commands) => missingRules(servers(), commands),
    close,
  };
}

const NO_MASTER = 'no master of the cluster is known';

/** A single server that does not answer is not reported: /readyz names the store. @returns what is wrong; null: nothing */
async function inspectServer(
  { redis, name, part, check }: StoreServer,
  isCluster: boolean,
): Promise<string | null> {
  try {
    await check();
    const policy = /^maxmemory_policy:(\S+)/m.exec(await redis.info('memory'))?.[1] ?? 'noeviction';
    if (policy === 'noeviction') return null;
    return `${name}: maxmemory-policy is ${policy}: Redis may evict sales; set it to noeviction`;
  } catch (error) {
    if (!isCluster || isDenied(error as Error)) return null;
    return `shard ${name}: ${part} unavailable: ${(error as Error).message}`;
  }
}

const ALWAYS = () => true;

function watchReplication(serverOf: RedisStore['serverOf'], key: string): () => boolean | Promise<boolean> {
  try {
    const server = serverOf(key);
    const { connections } = server;
    return async () =>
      (await server.replication!.confirm(`${key}:replicated`)) && server.connections === connections;
  } catch {
    return () => false; // it is not connected
  }
}
