/**
 * The Redis stream between dispatchers and workers. An entry is a hint: the id of a task that is queued in Postgres.
 *
 *   enqueue ──▶ entry ──read, its only delivery──▶ deleted, then claimed in Postgres
 *                 └──its reader died before deleting it: trimmed once it is old
 *
 * When an entry is lost, Postgres reclaims its task and a dispatcher enqueues it again; a duplicate entry finds its task
 * claimed. Entries therefore need no acknowledgement: the group keeps no pending list (NOACK), and all readers share one
 * consumer name, because Redis never removes consumers by itself.
 */
import { limits } from '../config/limits.ts';
import type { RedisStore } from '../store/redis/connection.ts';

export const STREAM = 'stampede:{tasks}:queue';
const GROUP = 'workers';
const READER = 'worker';

export interface TaskQueue {
  /** Unread entries. */
  length(): Promise<number>;
  /** @throws errors of Redis; some or all ids may be in the stream then */
  enqueue(ids: readonly string[]): Promise<void>;
  /** Deletes entries older than this: their tasks were reclaimed. */
  trim(olderMs: number): Promise<void>;
  /** Opens a reader with its own connection, because its reads block. */
  reader(blockMs: number): TaskReader;
}

export interface TaskReader {
  /** Waits for entries and takes at most `max`. @returns the tasks' ids; empty after a timeout */
  read(max: number): Promise<readonly string[]>;
  /** Unblocks a waiting read, which then returns what it has. */
  interrupt(): Promise<void>;
  close(): void;
}

export function taskQueue(store: RedisStore): TaskQueue {
  const { redis } = store;
  return {
    length: () => redis.xlen(STREAM),
    async enqueue(ids) {
      const pipeline = redis.pipeline();
      for (const id of ids) pipeline.xadd(STREAM, '*', 'id', id);
      for (const [error] of (await pipeline.exec()) ?? []) if (error) throw error;
    },
    async trim(olderMs) {
      // An entry's id begins with its time by Redis's clock, in milliseconds.
      const [seconds] = await store.serverOf(STREAM).redis.time();
      await redis.xtrim(STREAM, 'MINID', Number(seconds) * 1_000 - olderMs);
    },
    reader: (blockMs) => openReader(store, blockMs),
  };
}

function openReader({ redis, serverOf, connectionTo }: RedisStore, blockMs: number): TaskReader {
  // A read without an answer well after its timeout is on a dead connection.
  const answerMs = blockMs + limits.redisCommandMs;
  const connection = connectionTo(STREAM, {
    lazyConnect: true,
    commandTimeout: answerMs,
    socketTimeout: answerMs,
  });
  connection.on('error', () => {}); // the read fails and reports it
  const connected = connection.connect().catch(() => {}); // ioredis keeps reconnecting
  let clientId: number | null = null;
  connection.on('ready', () => {
    connection.client('ID').then(
      (id) => {
        clientId = id;
      },
      () => {},
    );
  });
  connection.on('close', () => {
    clientId = null;
  });

  async function readEntries(max: number): Promise<Entries> {
    try {
      // biome-ignore format: one command
      const reply = await connection.xreadgroup(
        'GROUP', GROUP, READER, 'COUNT', max, 'BLOCK', blockMs, 'NOACK', 'STREAMS', STREAM, '>',
      );
      return (reply as [key: string, entries: Entries][] | null)?.[0]?.[1] ?? [];
    } catch (error) {
      if ((error as Error).message.startsWith('MOVED')) connection.disconnect(true); // to where the stream is now
      // The stream is new, or Redis lost its data, possibly during the read.
      if (!/^(NOGROUP|UNBLOCKED)/.test((error as Error).message)) throw error;
      await connection.xgroup('CREATE', STREAM, GROUP, '0', 'MKSTREAM').catch((failure: Error) => {
        if (!failure.message.startsWith('BUSYGROUP')) throw failure;
      });
      return [];
    }
  }

  return {
    async read(max) {
      await connected;
      const entries = await readEntries(max);
      if (entries.length === 0) return [];
      // Not awaited: entries that are not deleted now are trimmed later.
      redis.xdel(STREAM, ...entries.map(([entryId]) => entryId)).catch(() => {});
      return entries.map(([, [, id = '']]) => id).filter((id) => /^[1-9]\d{0,17}$/.test(id));
    },
    async interrupt() {
      if (clientId !== null) await serverOf(STREAM).redis.client('UNBLOCK', clientId);
    },
    close: () => connection.disconnect(),
  };
}

type Entries = [entryId: string, fields: string[]][];
