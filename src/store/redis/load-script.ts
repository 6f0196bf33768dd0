/**
 * Loads a script from lua/ and defines it as a command on one connection.
 *
 * A line `--#include name` in a script stands for the text of lua/lib/name.lua: Redis has no modules. ioredis sends a
 * script's hash, and its text when the server does not know it (after a restart), so a call does not depend on Redis's script
 * cache.
 */
import { readFileSync } from 'node:fs';
import type { Redis } from 'ioredis';
import { trace } from '../../concurrency/trace.ts';

const folder = new URL('../../../lua/', import.meta.url);

export type Reply = string | number | null | readonly Reply[];
export type Call<R extends Reply = Reply> = (...keysAndArguments: (string | number)[]) => Promise<R>;

/** The text of a script as Redis gets it. @param name path in lua/ without its extension, such as `sale/reserve` */
export function scriptText(name: string): string {
  const text = readFileSync(new URL(`${name}.lua`, folder), 'utf8');
  return text.replace(/^--#include (\S+)$/gm, (_, lib: string) =>
    readFileSync(new URL(`lib/${lib}.lua`, folder), 'utf8').trimEnd(),
  );
}

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

/** Defines the scripts of a simple lock on a connection. */
export function defineLockScripts(redis: Redis) {
  const renew = defineScript<number>(redis, 'lock/renew', 1);
  const unlock = defineScript<number>(redis, 'lock/release', 1);
  return {
    renew: async (lockKey: string, token: string, ttlMs: number) =>
      (await renew(lockKey, token, ttlMs)) === 1,
    unlock: async (lockKey: string, token: string) => (await unlock(lockKey, token)) === 1,
  };
}
