/**
 * The Redis stream between dispatchers and workers. An entry is a hint: the number of a task that is queued in Postgres.
 *
 *   enqueue ──▶ entry ──read, which is its only delivery──▶ deleted, then claimed in Postgres
 *                 └──its reader died before it deleted it: trimmed when it is old
 *
 * A lost entry is a task that Postgres takes back and that is enqueued again; a second one finds its task claimed. So
 * nothing is acknowledged, and nothing of a dead reader is left to look through: the group keeps no list of what is
 * pending (NOACK), and all readers share one name in it, since Redis forgets no name by itself.
 */
import type { Redis } from 'ioredis';
import { limits } from '../config/limits.ts';
import type { RedisStore } from '../store/redis/connection.ts';

export const STREAM = 'stampede:{tasks}:queue';
const GROUP = 'workers';
const READER = 'worker';

export interface TaskQueue {
  /** Entries that nobody has read. */
  length(): Promise<number>;
  /** @throws what Redis throws: some or all may be in the stream then */
  enqueue(ids: readonly string[]): Promise<void>;
  /** Deletes entries older than this: what they hinted at has been taken back. */
  trim(olderMs: number): Promise<void>;
  /** A reader has a connection of its own, because its reads wait. */
  reader(blockMs: number): TaskReader;
}

export interface TaskReader {
  /** Waits for entries and takes at most so many. @returns the tasks' numbers; none when there was nothing */
  read(most: number): Promise<readonly string[]>;
  /** Ends a read that waits. What was read up to then is returned. */
  interrupt(): Promise<void>;
  close(): void;
}

export function taskQueue({ redis }: RedisStore): TaskQueue {
  return {
    length: () => redis.xlen(STREAM),
    async enqueue(ids) {
      const pipeline = redis.pipeline();
      for (const id of ids) pipeline.xadd(STREAM, '*', 'id', id);
      for (const [error] of (await pipeline.exec()) ?? []) if (error) throw error;
    },
    async trim(olderMs) {
      // An entry's id begins with Redis's own time in milliseconds.
      const [seconds] = await redis.time();
      await redis.xtrim(STREAM, 'MINID', Number(seconds) * 1_000 - olderMs);
    },
    reader: (blockMs) => openReader(redis, blockMs),
  };
}

function openReader(redis: Redis, blockMs: number): TaskReader {
  // A read that gets no answer long after it should have is on a connection that is dead.
  const answerMs = blockMs + limits.redisCommandMs;
  const connection = redis.duplicate({
    lazyConnect: true,
    commandTimeout: answerMs,
    socketTimeout: answerMs,
  });
  connection.on('error', () => {}); // the read that fails for it tells
  const connected = connection.connect().catch(() => {}); // and it goes on trying
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

  async function readEntries(most: number): Promise<Entries> {
    try {
      // biome-ignore format: one command
      const reply = await connection.xreadgroup(
        'GROUP', GROUP, READER, 'COUNT', most, 'BLOCK', blockMs, 'NOACK', 'STREAMS', STREAM, '>',
      );
      return (reply as [key: string, entries: Entries][] | null)?.[0]?.[1] ?? [];
    } catch (error) {
      // The stream is new, or Redis lost its memory, perhaps while the read waited.
      if (!/^(NOGROUP|UNBLOCKED)/.test((error as Error).message)) throw error;
      await connection.xgroup('CREATE', STREAM, GROUP, '0', 'MKSTREAM').catch((failure: Error) => {
        if (!failure.message.startsWith('BUSYGROUP')) throw failure;
      });
      return [];
    }
  }

  return {
    async read(most) {
      await connected;
      const entries = await readEntries(most);
      if (entries.length === 0) return [];
      // Not waited for: what is not deleted now is trimmed later.
      redis.xdel(STREAM, ...entries.map(([reservedAt]) => reservedAt)).catch(() => {});
      return entries.map(([, [, id = '']]) => id).filter((id) => /^[1-9]\d{0,17}$/.test(id));
    },
    async interrupt() {
      if (clientId !== null) await redis.client('UNBLOCK', clientId);
    },
    close: () => connection.disconnect(),
  };
}

type Entries = [reservedAt: string, fields: string[]][];
