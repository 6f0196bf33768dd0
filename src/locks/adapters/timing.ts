/** The bounds of every client of Redis. */
import { within } from '../kit/within.ts';

/** How long a command may take before its outcome counts as unknown. */
export const REPLY_MS = 1_500;
/** How long a first connection may take: clients of node-redis, and those of ioredis behind Sentinels, try for ever. */
export const CONNECT_MS = 5_000;

/** A lost connection is replaced soon, because the renewal of a lease may be waiting. @returns the pause before a try, milliseconds */
export const retryMs = (times: number): number => Math.min(25 * 2 ** Math.min(times, 5), 250);

/**
 * A connection on which nothing was received for so long after a command is ended, milliseconds: its server has vanished, or is frozen.
 * Where only replies are lost, what undoes the command is sent before.
 * @param replyMs how long a command may take
 */
export const silentMs = (replyMs: number): number => 3 * replyMs;

/** @throws what the promise throws, and after `ms` an error with the message */
export async function inTime<T>(promise: Promise<T>, ms: number, message: string): Promise<T> {
  const reply = promise.then((value) => ({ value }));
  const replied = await within(reply, ms);
  if (replied === null) throw new Error(message);
  return replied.value;
}
