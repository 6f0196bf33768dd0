/**
 * The epoch of Redis: whether this is the Redis that the service wrote to, or one that has since lost its memory or been
 * restored from an older snapshot; and whether Postgres still has what Redis was told.
 *
 *   connected ──▶ read Redis's run id ──as before──▶ the same epoch
 *       ▲                   └──another──▶ Postgres numbers it ──▶ a new epoch
 *       └──connection lost: the epoch is unknown, and attempts wait or are answered busy
 *
 *   every second: read Postgres's timeline ──another: a standby was promoted──▶ a new epoch
 *
 * A run id ends with the process, and no connection outlives the process; after a failover another process answers. (A
 * replication id would not work: it changes when the first replica connects, without an effect on connections.) The data of a
 * sale carries the epoch in which it was written. In another epoch it is ignored, and the sale is loaded from Postgres again.
 * FLUSHALL needs none of this: missing data cannot be mistaken for current data. A promoted standby that replicated
 * asynchronously may lack orders that Redis has; the timeline is a number that grows with each promotion.
 */
import type { PostgresStore } from '../postgres/pool.ts';
import type { RedisStore } from './connection.ts';

export interface RedisEpochs {
  /** @throws what Redis or Postgres throws when it cannot be determined now */
  current(): Promise<number>;
  /** The epoch, if it is known; null: call `current`. */
  readonly known: number | null;
  /** Begins a new epoch if Postgres was promoted since this one was found. @throws what Postgres throws */
  checkPostgres(): Promise<void>;
}

interface Epoch {
  readonly runId: string;
  readonly timeline: string;
  readonly epoch: number;
}

export function redisEpochs({ redis }: RedisStore, { pool }: PostgresStore): RedisEpochs {
  let known: Epoch | null = null;
  let trusted = false;
  let connections = 0;
  let finding: Promise<number> | null = null;

  redis.on('close', () => {
    trusted = false;
    connections++;
  });

  async function find(): Promise<number> {
    const on = connections;
    const runId = /^run_id:(\S+)/m.exec(await redis.info('server'))?.[1] ?? 'unknown';
    if (known?.runId !== runId) known = await epochOf(runId);
    trusted = on === connections;
    return known.epoch;
  }

  async function timelineOfPostgres(): Promise<string> {
    const { rows } = await pool.query<{ timeline: string }>(
      'SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8) AS timeline',
    );
    return rows[0]!.timeline;
  }

  async function epochOf(runId: string): Promise<Epoch> {
    const timeline = await timelineOfPostgres();
    // The update changes nothing; it makes RETURNING yield the row that another process wrote.
    const { rows } = await pool.query<{ epoch: number }>(
      `INSERT INTO redis_epochs (incarnation) VALUES ($1)
       ON CONFLICT (incarnation) DO UPDATE SET incarnation = excluded.incarnation RETURNING epoch`,
      [`${runId} ${timeline}`],
    );
    return { runId, timeline, epoch: rows[0]!.epoch };
  }

  const knownEpoch = () => (trusted && known !== null ? known.epoch : null);

  return {
    get known() {
      return knownEpoch();
    },
    async current() {
      const epoch = knownEpoch();
      if (epoch !== null) return epoch;
      finding ??= find().finally(() => {
        finding = null;
      });
      return finding;
    },
    async checkPostgres() {
      if (known === null || (await timelineOfPostgres()) === known.timeline) return;
      const { runId } = known;
      const next = await epochOf(runId);
      if (known.runId === runId) known = next;
    },
  };
}
