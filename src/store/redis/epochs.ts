/**
 * The epoch of Redis: whether this is the Redis that the service wrote to, or one that has since lost its memory or been
 * restored from an older snapshot; and whether Postgres still has the orders that Redis knows.
 *
 *   connected ──▶ read Redis's run id ──as before──▶ the same epoch
 *       ▲                   └──another──▶ Postgres draws a number ──▶ a new epoch
 *       └──connection lost: the epoch is unknown, and attempts wait or are answered busy
 *
 *   every second: read Postgres's timeline ──another: a standby was promoted──▶ a new epoch
 *
 * In a cluster each server has its epoch. A sale whose slot moves to another server is in another epoch there.
 *
 * A run id ends with the process, and no connection outlives the process; after a failover another process answers. (A
 * replication id would not work: it changes when the first replica connects, without an effect on connections.) The data of a
 * sale carries the epoch in which it was written. In another epoch it is ignored, and the sale is loaded from Postgres again.
 * FLUSHALL needs none of this: missing data cannot be mistaken for current data. A promoted standby that replicated
 * asynchronously may lack orders that Redis has; the timeline is a number that grows with each promotion.
 */
import type { PostgresStore } from '../postgres/pool.ts';
import type { RedisStore } from './connection.ts';
import type { RedisServer } from './server.ts';

export interface RedisEpochs {
  /** Of the server that has a key. @throws what Redis or Postgres throws when it cannot be determined now */
  current(key: string): Promise<number>;
  /** The same, if it is known; null: call `current`. @throws when the server is not connected */
  known(key: string): number | null;
  /** Begins a new epoch if Postgres was promoted since this one was found. @throws what Postgres throws */
  checkPostgres(): Promise<void>;
}

/** What is known about a server. */
interface Found {
  readonly runId: string;
  readonly timeline: string;
  readonly epoch: number;
  /** How often the server's connection had been lost when it was found. */
  readonly connections: number;
}

export function redisEpochs(
  { serverOf }: Pick<RedisStore, 'serverOf'>,
  { pool }: PostgresStore,
): RedisEpochs {
  const found = new WeakMap<RedisServer, Found>();
  const finding = new WeakMap<RedisServer, Promise<number>>();
  let timeline: string | null = null;

  async function timelineOfPostgres(): Promise<string> {
    const { rows } = await pool.query<{ timeline: string }>(
      'SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8) AS timeline',
    );
    return rows[0]!.timeline;
  }

  async function find(server: RedisServer): Promise<number> {
    const { connections } = server;
    const runId = /^run_id:(\S+)/m.exec(await server.redis.info('server'))?.[1] ?? 'unknown';
    const before = found.get(server);
    const isSame = before?.runId === runId && before.timeline === timeline;
    const epoch = isSame ? before : await epochOf(runId);
    found.set(server, { ...epoch, connections });
    return epoch.epoch;
  }

  async function epochOf(runId: string): Promise<Omit<Found, 'connections'>> {
    timeline = await timelineOfPostgres();
    const now = timeline;
    // The update changes nothing; it makes RETURNING yield the row that another process wrote.
    const { rows } = await pool.query<{ epoch: number }>(
      `INSERT INTO redis_epochs (incarnation) VALUES ($1)
       ON CONFLICT (incarnation) DO UPDATE SET incarnation = excluded.incarnation RETURNING epoch`,
      [`${runId} ${now}`],
    );
    return { runId, timeline: now, epoch: rows[0]!.epoch };
  }

  function knownOf(server: RedisServer): number | null {
    const known = found.get(server);
    const isCurrent = known?.connections === server.connections && known.timeline === timeline;
    return isCurrent ? known.epoch : null;
  }

  return {
    known: (key) => knownOf(serverOf(key)),
    async current(key) {
      const server = serverOf(key);
      const epoch = knownOf(server);
      if (epoch !== null) return epoch;
      const running = finding.get(server) ?? find(server).finally(() => finding.delete(server));
      finding.set(server, running);
      return running;
    },
    async checkPostgres() {
      if (timeline !== null) timeline = await timelineOfPostgres();
    },
  };
}
