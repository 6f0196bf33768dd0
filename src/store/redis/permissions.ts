/** What the user of Redis may do: a mode whose command is denied would start, and then refuse everyone. */
import type { StoreServer } from './server.ts';

/** Arguments with which a command does nothing but write to, and then delete, one key. Of `wait` there is no key. */
const TRIES: Readonly<Record<string, (key: string) => readonly (string | number)[]>> = {
  info: () => ['server'],
  time: () => [],
  wait: () => [0, 1],
  eval: () => ['return 1', 0],
  publish: () => ['stampede:permissions', ''],
  set: (key) => [key, '0', 'PX', 1_000],
  ...withKey('get', 'exists', 'persist', 'pttl', 'hgetall', 'hkeys', 'hlen', 'hvals', 'zcard', 'zpopmin'),
  ...withKey(['incrby', 0], ['expire', 1], ['pexpire', 1_000], ['pexpireat', 1]),
  ...withKey(['hget', 'a'], ['hset', 'a', 'b'], ['hsetnx', 'a', 'b'], ['hdel', 'a'], ['hexists', 'a']),
  ...withKey(['hincrby', 'a', 0], ['hmget', 'a'], ['hscan', 0], ['sadd', 'a'], ['zadd', 0, 'a']),
  ...withKey(['zcount', 0, 1], ['zmscore', 'a'], ['zrange', 0, 1], ['zrangebyscore', 0, 1], ['zrank', 'a']),
  ...withKey(['zrem', 'a'], ['zremrangebyscore', 0, 1], ['zrevrange', 0, 1], ['zscore', 'a']),
  rename: (key) => [key, key],
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

/** Only some modes need them. */
export const OF_MODES = ['wait', 'incrby'] as const;
export type OfModes = (typeof OF_MODES)[number];

/**
 * Tries the commands of the service on each server; see `TRIES`.
 * @param modes the commands of `OF_MODES` that are needed
 * @returns those that Redis denies to the user; a server that cannot be asked denies none
 */
export async function deniedCommands(
  servers: readonly StoreServer[],
  modes: readonly OfModes[],
): Promise<readonly string[]> {
  const others: readonly string[] = OF_MODES.filter((name) => !modes.includes(name));
  const denied = new Set<string>();
  await Promise.all(
    servers.map(async ({ redis, key }) => {
      const tries = Object.entries(TRIES).filter(([name]) => !others.includes(name));
      await Promise.all(
        tries.map(([name, args]) =>
          redis.call(name, ...args(key)).catch(({ message }: Error) => {
            if (message.startsWith('NOPERM')) denied.add(name);
          }),
        ),
      );
    }),
  );
  return [...denied];
}
