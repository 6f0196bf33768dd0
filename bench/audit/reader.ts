/** Reads what the stores hold after the load. Every read is bounded; a store that does not answer is `unreadable`. */
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import pg from 'pg';
import type {
  OrderRow,
  PointsRow,
  PostgresSnapshot,
  RedisSnapshot,
  StoresSnapshot,
  Unreadable,
} from './check.ts';

/** Where one trial's stores are. */
export interface StoresToAudit {
  readonly databaseUrl: string;
  readonly redisUrl: string;
  readonly saleId: number;
}

/** How long the audit waits for reservations to be settled. */
export interface SettleWait {
  /** How long the stream may take to become empty. */
  readonly timeoutMs: number;
  /** A stream whose length did not change for this long is stuck; one that still changes is being settled. */
  readonly stuckAfterMs: number;
}

/** Recovery promises 10 s, and begins on its own time. */
const defaultWait: SettleWait = { timeoutMs: 12_000, stuckAfterMs: 3_000 };
const settlePollMs = 50;
/** How long a store may take to answer one question of the audit. */
const readTimeoutMs = 10_000;

/** What was left of the reservations when the waiting ended. */
export type Settled = Pick<RedisSnapshot, 'unsettled' | 'settling'> | Unreadable;

/** Waits, bounded, until every reservation is settled. To be called while the service still runs: it settles them. */
export async function settle(
  { redisUrl, saleId }: StoresToAudit,
  { timeoutMs, stuckAfterMs }: SettleWait = defaultWait,
): Promise<Settled> {
  return withRedis(redisUrl, async (redis) => {
    const stream = `stampede:{sale:${saleId}}:reservations`;
    const begin = performance.now();
    let unsettled = await redis.xlen(stream);
    let changedAt = begin;
    while (unsettled > 0 && performance.now() - begin < timeoutMs) {
      await sleep(settlePollMs);
      const now = await redis.xlen(stream);
      if (now !== unsettled) changedAt = performance.now();
      unsettled = now;
    }
    return { unsettled, settling: unsettled > 0 && performance.now() - changedAt < stuckAfterMs };
  });
}

/** Takes the snapshot. To be called when the service has stopped, so that nothing moves between the two stores. */
export async function readStores(stores: StoresToAudit, settled: Settled): Promise<StoresSnapshot> {
  const [postgres, redis] = await Promise.all([readPostgres(stores), readRedis(stores, settled)]);
  return { postgres, redis };
}

async function readPostgres({ databaseUrl, saleId }: StoresToAudit): Promise<PostgresSnapshot | Unreadable> {
  const client = new pg.Client({
    connectionString: databaseUrl,
    connectionTimeoutMillis: readTimeoutMs,
    query_timeout: readTimeoutMs,
    application_name: 'stampede-audit',
  });
  client.on('error', () => {}); // A connection that breaks fails the query that is under way; that is reported.
  try {
    await client.connect();
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
    const sales = await client.query<{ id: number; stock: number; sold: number }>(
      'SELECT id, stock, sold FROM sales WHERE id = $1',
      [saleId],
    );
    const sale = sales.rows[0];
    if (sale === undefined) return { unreadable: `sale ${saleId} is not there` };
    const orders = await client.query<OrderRow>(
      'SELECT id::text AS id, sale_id AS "saleId", user_id AS "userId", status::text AS status FROM orders',
    );
    const points = await client.query<PointsRow>(
      `SELECT user_id AS "userId", source_id AS "sourceId" FROM points_entries WHERE source_type = 'order'`,
    );
    await client.query('COMMIT');
    return { sale, orders: orders.rows, points: points.rows };
  } catch (error) {
    return { unreadable: reason(error) };
  } finally {
    await client.end().catch(() => {});
  }
}

async function readRedis(
  { redisUrl, saleId }: StoresToAudit,
  settled: Settled,
): Promise<RedisSnapshot | Unreadable> {
  if ('unreadable' in settled) return settled;
  return withRedis(redisUrl, async (redis) => {
    const prefix = `stampede:{sale:${saleId}}`;
    const [remaining, segments, unsettled] = await Promise.all([
      redis.hget(`${prefix}:state`, 'remaining'),
      redis.hvals(`${prefix}:segments`),
      redis.xlen(`${prefix}:reservations`),
    ]);
    const counts = [...(remaining === null ? [] : [remaining]), ...segments].map(Number);
    if (counts.some((count) => !Number.isSafeInteger(count)))
      return { unreadable: 'a count is not a number' };
    return {
      remaining: counts.length === 0 ? null : counts.reduce((sum, count) => sum + count, 0),
      unsettled,
      settling: settled.settling && unsettled > 0,
    };
  });
}

async function withRedis<T>(url: string, read: (redis: Redis) => Promise<T>): Promise<T | Unreadable> {
  const redis = new Redis(url, {
    lazyConnect: true,
    connectTimeout: readTimeoutMs,
    commandTimeout: readTimeoutMs,
    retryStrategy: () => null,
    maxRetriesPerRequest: 0,
    connectionName: 'stampede-audit',
  });
  redis.on('error', () => {}); // The command that is under way fails as well; that is reported.
  try {
    await redis.connect();
    return await read(redis);
  } catch (error) {
    return { unreadable: reason(error) };
  } finally {
    redis.disconnect();
  }
}

function reason(error: unknown): string {
  return error instanceof Error ? error.message || error.name : String(error);
}
