/**
 * The epoch of Redis: whether this is the Redis that the service wrote to, or one that has since lost its memory or been
 * restored from an older snapshot.
 *
 *   connected ──▶ read Redis's run id ──as before──▶ the same epoch
 *       ▲                   └──another──▶ Postgres numbers it ──▶ a new epoch
 *       └──connection lost: the epoch is unknown, and attempts wait or are answered busy
 *
 * A run id ends with the process, and no connection outlives the process; after a failover another process answers. (A
 * replication id would not work: it changes when the first replica connects, without an effect on connections.) The data of a
 * sale carries the epoch in which it was written. In another epoch it is ignored, and the sale is loaded from Postgres again.
 * FLUSHALL needs none of this: missing data cannot be mistaken for current data.
 */
import type { PostgresStore } from '../postgres/pool.ts';
import type { RedisStore } from './connection.ts';

export interface RedisEpochs {
  /** @throws what Redis or Postgres throws when it cannot be determined now */
  current(): Promise<number>;
  /** The epoch, if it is known; null: call `current`. */
  readonly known: number | null;
}

export function redisEpochs({ redis }: RedisStore, { pool }: PostgresStore): RedisEpochs {
  let known: { readonly incarnation: string; readonly epoch: number } | null = null;
  let trusted = false;
  let connections = 0;
  let finding: Promise<number> | null = null;

  redis.on('close', () => {
    trusted = false;
    connections++;
  });

  async function find(): Promise<number> {
    const on = connections;
    const incarnation = /^run_id:(\S+)/m.exec(await redis.info('server'))?.[1] ?? 'unknown';
    if (known?.incarnation !== incarnation) known = { incarnation, epoch: await numberOf(incarnation) };
    trusted = on === connections;
    return known.epoch;
  }

  async function numberOf(incarnation: string): Promise<number> {
    // The update changes nothing; it makes RETURNING yield the row that another process wrote.
    const { rows } = await pool.query<{ epoch: number }>(
      `INSERT INTO redis_epochs (incarnation) VALUES ($1)
       ON CONFLICT (incarnation) DO UPDATE SET incarnation = excluded.incarnation RETURNING epoch`,
      [incarnation],
    );
    return rows[0]!.epoch;
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
  };
}
