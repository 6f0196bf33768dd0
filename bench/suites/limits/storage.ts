/** What orders occupy in the stores, from the stores' own counters. */
import { withPostgres, withRedis } from '../../../lab/servers/stores.ts';

/** Bytes. */
export interface Stored {
  /** Of the database: tables, indexes, and what updates left behind. */
  readonly database: number;
  /** Written to the write-ahead log since the server was created. */
  readonly wal: number;
  /** Of all Redis servers: `used_memory`. */
  readonly redis: number;
}

const SIZES = `SELECT pg_database_size(current_database())::float8 AS database, (pg_current_wal_lsn() - '0/0')::float8 AS wal`;

/** Reads the counters. @throws when a store does not answer */
export async function readStored(databaseUrl: string, redisUrls: readonly string[]): Promise<Stored> {
  const [postgres, ...used] = await Promise.all([
    withPostgres(databaseUrl, async (client) => (await client.query<Omit<Stored, 'redis'>>(SIZES)).rows[0]!),
    ...redisUrls.map((url) =>
      withRedis(url, async (redis) =>
        Number(/^used_memory:(\d+)/m.exec(await redis.info('memory'))?.[1] ?? Number.NaN),
      ),
    ),
  ]);
  return { ...postgres, redis: used.reduce((sum, bytes) => sum + bytes, 0) };
}

/** Bytes for each of `orders`. */
export const storedSince = (before: Stored, after: Stored, orders: number): Stored => ({
  database: (after.database - before.database) / orders,
  wal: (after.wal - before.wal) / orders,
  redis: (after.redis - before.redis) / orders,
});
