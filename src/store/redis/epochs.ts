/**
 * Which state of Redis this is: whether it is the one that the service wrote, or one that lost its memory or went back
 * to an older snapshot since.
 *
 *   connected ──▶ read Redis's run id ──as before──▶ the epoch as before
 *       ▲                   └──another──▶ Postgres numbers it ──▶ a new epoch
 *       └──connection lost: the epoch is not known, and attempts wait or are told busy
 *
 * A run id ends with the process, and no connection outlives it; after a failover another process answers. (A replication
 * id does not do: it changes when the first replica comes, on connections that go on.) What Redis holds of a sale carries
 * the epoch in which it was written: under another one it does not count, and the sale is made again from Postgres. FLUSHALL needs none of this: what is not there cannot be mistaken.
 */
import type { PostgresStore } from '../postgres/pool.ts';
import type { RedisStore } from './connection.ts';

export interface RedisEpochs {
  /** @throws what Redis or Postgres throws when it cannot be found out now */
  current(): Promise<number>;
  /** The current one where nothing has to be asked; null: ask. */
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
    // The update changes nothing; it makes RETURNING give the row that another process wrote.
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
