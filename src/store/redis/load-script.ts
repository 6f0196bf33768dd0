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
import type { Call, Reply } from '../../locks/clients.ts';

const folder = new URL('../../../lua/', import.meta.url);

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
