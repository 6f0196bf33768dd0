/**
 * The scripts of lua/ as Redis gets them.
 *
 * A line `--#include name` in a script stands for the text of lua/lib/name.lua: Redis has no modules.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { Call, RedisClient } from '../clients.ts';

const folder = new URL('../../../lua/', import.meta.url);

const texts = new Map<string, string>();

/** @param name path in lua/ without its extension, such as `sale/reserve` */
export function scriptText(name: string): string {
  const known = texts.get(name);
  if (known !== undefined) return known;
  const own = readFileSync(new URL(`${name}.lua`, folder), 'utf8');
  const text = own.replace(/^--#include (\S+)$/gm, (_, lib: string) =>
    readFileSync(new URL(`lib/${lib}.lua`, folder), 'utf8').trimEnd(),
  );
  texts.set(name, text);
  return text;
}

/** Prepares a script for a client that only sends commands: by its hash, and by its text when the server does not know it. */
export function scriptBy(send: RedisClient['send'], name: string, numberOfKeys: number): Call {
  const text = scriptText(name);
  const hash = createHash('sha1').update(text).digest('hex');
  return (...given) =>
    send('EVALSHA', hash, numberOfKeys, ...given).catch((error: Error) => {
      if (!error.message.startsWith('NOSCRIPT')) throw error;
      return send('EVAL', text, numberOfKeys, ...given);
    }) as ReturnType<Call>;
}
