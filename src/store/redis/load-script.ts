/**
 * Loads a script from lua/ and defines it as a command on one connection.
 *
 * ioredis sends a script's hash, and its text when the server does not know it (after a restart), so a call does not depend on Redis's script
 * cache.
 */
import type { Redis } from 'ioredis';
import { trace } from '../../concurrency/trace.ts';
import { scriptText } from '../../locks/adapters/scripts.ts';
import type { Call, Reply } from '../../locks/clients.ts';
import { expectedRedisFailure } from '../failures/redis.ts';

/** What the adapter of the locks needs to send commands and scripts on a connection. */
export const requestsBy = (redis: Redis) => ({
  redis,
  script: (name: string, numberOfKeys: number) => defineScript(redis, name, numberOfKeys),
  explain: expectedRedisFailure,
});

/** @param numberOfKeys undefined: it is the call's first argument */
export function defineScript<R extends Reply = Reply>(
  redis: Redis,
  name: string,
  numberOfKeys?: number,
): Call<R> {
  const command = `${name}/${numberOfKeys ?? 'n'}`; // a script may be called with different numbers of keys
  redis.defineCommand(command, {
    ...(numberOfKeys !== undefined && { numberOfKeys }),
    lua: scriptText(name),
  });
  const call = (redis as unknown as Record<string, Call<R>>)[command]!;
  return (...keysAndArguments) => trace({ name }, () => call.apply(redis, keysAndArguments));
}
