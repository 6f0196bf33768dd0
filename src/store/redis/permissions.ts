/** What the user of Redis may do: a mode whose command is denied would start, and then refuse everyone. */
import type { Config } from '../../config/env.ts';
import { isDenied } from '../../locks/adapters/redis-errors.ts';
import { missingRule } from '../failures/redis.ts';
import type { StoreServer } from './server.ts';

/** Arguments with which a command does nothing but write to, and then delete, one key. Some need no key. */
const TRIES: Readonly<Record<string, (key: string) => readonly (string | number)[]>> = {
  ping: () => [],
  info: () => ['server'],
  time: () => [],
  wait: () => [0, 1],
  eval: () => ['return 1', 0],
  evalsha: () => ['0'.repeat(40), 0], // no such script
  publish: () => ['stampede:permissions', ''],
  set: (key) => [key, '0', 'PX', 1_000],
  ...withKey('get', 'exists', 'persist', 'pttl', 'hgetall', 'hkeys', 'hlen', 'hvals', 'zcard', 'zpopmin'),
  ...withKey(['incrby', 0], ['expire', 1], ['pexpire', 1_000], ['pexpireat', 1]),
  ...withKey(['hget', 'a'], ['hset', 'a', 'b'], ['hsetnx', 'a', 'b'], ['hdel', 'a'], ['hexists', 'a']),
  ...withKey(['hincrby', 'a', 0], ['hmget', 'a'], ['hscan', 0], ['sadd', 'a'], ['zadd', 0, 'a']),
  ...withKey(['zcount', 0, 1], ['zmscore', 'a'], ['zrange', 0, 1], ['zrangebyscore', 0, 1], ['zrank', 'a']),
  ...withKey(['zrem', 'a'], ['zremrangebyscore', 0, 1], ['zrevrange', 0, 1], ['zscan', 0], ['zscore', 'a']),
  rename: (key) => [key, key],
  zdiffstore: (key) => [key, 1, key],
  ...withKey(['setnx', '0'], ['delifeq', '0'], ['delex', 'IFEQ', '0']), // a server that lacks a command denies nothing
  'command|info': () => ['get'],
  del: (key) => [key], // last
};

type WithKey = string | readonly [string, ...(string | number)[]];

function withKey(...commands: readonly WithKey[]): typeof TRIES {
  const entries = commands.map((given) => {
    const [command, ...args] = typeof given === 'string' ? [given] : given;
    return [command, (key: string) => [key, ...args]] as const;
  });
  return Object.fromEntries(entries);
}

/** The commands of a lock whose scripts renew and release it, on a server that has nothing else. */
export const OF_A_LOCK = ['eval', 'evalsha', 'set', 'get', 'pexpire', 'del'] as const;

/** A key of no sale, for tries on a server that is no cluster's. */
export const PROBE_KEY = 'stampede:{probe:0}';

/** The commands that a configuration needs, `select` and `subscribe` among them. */
export function commandsFor({
  strategy,
  redisUrl,
  lock,
  confirm,
  redisWait,
  auth,
}: Pick<Config, 'strategy' | 'redisUrl' | 'lock' | 'confirm' | 'redisWait' | 'auth'>): readonly string[] {
  const ofModes: Readonly<Record<string, boolean>> = {
    wait: lock === 'redis-wait' || (confirm === 'accepted' && redisWait > 0),
    incrby: auth !== null, // limits of a customer
    select: /\/[1-9]\d*(\?|$)/.test(redisUrl ?? ''),
    subscribe: strategy === 'lua' || lock === 'redis',
    setnx: lock === 'redis-setnx' || lock === 'redis-setnx-expire',
    ...Object.fromEntries(['command|info', 'delifeq', 'delex'].map((name) => [name, lock === 'redis-cas'])),
  };
  return [...Object.keys(TRIES), 'select', 'subscribe'].filter((name) => ofModes[name] ?? true);
}

/**
 * Tries commands on each server; see `TRIES`.
 * @param commands see `commandsFor`
 * @returns the rules that the user lacks, such as `+wait`; a server that cannot be asked lacks none
 */
export async function missingRules(
  servers: readonly Pick<StoreServer, 'redis' | 'key'>[],
  commands: readonly string[],
): Promise<readonly string[]> {
  const rules = new Set<string>();
  const tries = servers.flatMap(({ redis, key }) =>
    commands.map(async (command) => {
      try {
        if (command === 'subscribe') await subscribe(redis);
        else if (command === 'select') await send(redis, command, [redis.options.db ?? 0]);
        else await send(redis, command, TRIES[command]!(key));
      } catch (error) {
        if (isDenied(error as Error)) rules.add(missingRule(command, error as Error));
      }
    }),
  );
  await Promise.all(tries);
  return [...rules];
}

/** @param command perhaps with its subcommand, as in a rule */
async function send(redis: StoreServer['redis'], command: string, args: readonly (string | number)[]) {
  const [name, ...subcommand] = command.split('|');
  await redis.call(name!, ...subcommand, ...args);
}

/** On a separate connection, which can send nothing else afterwards. */
async function subscribe(redis: StoreServer['redis']): Promise<void> {
  const subscriber = redis.duplicate({ lazyConnect: true, retryStrategy: null }).on('error', () => {});
  try {
    await subscriber.connect();
    await subscriber.subscribe('stampede:permissions');
  } finally {
    subscriber.disconnect();
  }
}
