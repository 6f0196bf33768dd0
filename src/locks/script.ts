/** A script of lua/ as a call on one connection, for a lock that brings its own. */
import { readFileSync } from 'node:fs';
import type { Redis } from 'ioredis';

const folder = new URL('../../lua/', import.meta.url);

/** Takes the keys and then the arguments; replies with one number. */
export type Script = (...keysAndArguments: (string | number)[]) => Promise<number>;

export function script(redis: Redis, name: string, numberOfKeys: number): Script {
  const command = `${name}/${numberOfKeys}`; // one text may be called with more keys or fewer
  redis.defineCommand(command, {
    numberOfKeys,
    lua: readFileSync(new URL(`${name}.lua`, folder), 'utf8'),
  });
  const call = (redis as unknown as Record<string, Script>)[command];
  if (call === undefined) throw new Error(`lua/${name}.lua was not defined`);
  return call.bind(redis);
}
