/** Reads what the stores hold after the load. Every read is bounded; a store that does not answer is `unreadable`. */
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import pg from 'pg';
import type {
  OrderRow,
  PaymentRow,
  PointsRow,
  PostgresSnapshot,
  RedisSnapshot,
  StoresSnapshot,
  TaskRow,
  Unreadable,
} from './check.ts';

/** Where one trial's stores are. */
export interface StoresToAudit {
  readonly databaseUrl: string;
  readonly redisUrl: string;
  readonly saleId: number;
}

/** How long the audit waits until nothing is under way between the stores. */
export interface SettleWait {
  /** How long it may take until nothing is left. */
  readonly timeoutMs: number;
  /** What did not get less or more for this long is stuck; what still changes is being settled. */
  readonly stuckAfterMs: number;
}

/** Recovery promises 10 s, and begins on its own time. Redis is told again every second of what it did not hear. */
const defaultWait: SettleWait = { timeoutMs: 12_000, stuckAfterMs: 3_000 };
const settlePollMs = 50;
/** How long a store may take to answer one question of the audit. */
const readTimeoutMs = 10_000;

/** What was left between the stores when the waiting ended: reservations, and units that Redis was not told of. */
export type Settled =
  | (Pick<RedisSnapshot, 'unsettled' | 'settling'> & Pick<PostgresSnapshot, 'untold'>)
  | Unreadable;

/**
 * Waits, bounded, until every reservation is settled and Redis has been told of every unit. To be called while the
 * service still runs: it does both. A Postgres that does not answer is not waited for: the snapshot says why.
 */
export async function settle(
  { databaseUrl, redisUrl, saleId }: StoresToAudit,
  wait: SettleWait = defaultWait,
): Promise<Settled> {
  const postgres = new pg.Pool({ ...postgresOptions(databaseUrl), max: 1 });
  postgres.on('error', () => {}); // The next look opens another connection.
  try {
    return await withRedis(redisUrl, (redis) =>
      untilNothingIsLeft(async () => {
        const unsettled = await redis.zcard(`stampede:{sale:${saleId}}:reservations`);
        return { unsettled, untold: await countUntold(postgres, saleId).catch(() => 0) };
      }, wait),
    );
  } finally {
    await postgres.end();
  }
}

async function untilNothingIsLeft(
  look: () => Promise<{ readonly unsettled: number; readonly untold: number }>,
  { timeoutMs, stuckAfterMs }: SettleWait,
): Promise<Settled> {
  const begin = performance.now();
  let changedAt = begin;
  let left = await look();
  while (left.unsettled + left.untold > 0 && performance.now() - begin < timeoutMs) {
    await sleep(settlePollMs);
    const next = await look();
    if (next.unsettled !== left.unsettled || next.untold !== left.untold) changedAt = performance.now();
    left = next;
  }
  const settling = left.unsettled + left.untold > 0 && performance.now() - changedAt < stuckAfterMs;
  return { ...left, settling };
}

async function countUntold(db: Pick<pg.Client, 'query'>, saleId: number): Promise<number> {
  const { rows } = await db.query<{ untold: number }>(
    'SELECT count(*)::int AS untold FROM mirror_outbox WHERE sale_id = $1',
    [saleId],
  );
  return rows[0]?.untold ?? 0;
}

/** Takes the snapshot. To be called when the service has stopped, so that nothing moves between the two stores. */
export async function readStores(stores: StoresToAudit, settled: Settled): Promise<StoresSnapshot> {
  const [postgres, redis] = await Promise.all([readPostgres(stores), readRedis(stores, settled)]);
  return { postgres, redis };
}

async function readPostgres({ databaseUrl, saleId }: StoresToAudit): Promise<PostgresSnapshot | Unreadable> {
  const client = new pg.Client(postgresOptions(databaseUrl));
  client.on('error', () => {}); // A connection that breaks fails the query that is under way; that is reported.
  try {
    await client.connect();
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
    const sales = await client.query<{ id: number; stock: number; sold: number }>(
      'SELECT id, stock, sold + oversold AS sold FROM sales WHERE id = $1',
      [saleId],
    );
    const sale = sales.rows[0];
    if (sale === undefined) return { unreadable: `sale ${saleId} is not there` };
    const snapshot = { sale, ...(await readRows(client)), ...(await readCounts(client, saleId)) };
    await client.query('COMMIT');
    return snapshot;
  } catch (error) {
    return { unreadable: reason(error) };
  } finally {
    await client.end().catch(() => {});
  }
}

type Rows = Pick<PostgresSnapshot, 'orders' | 'points' | 'payments' | 'tasks'>;

/** Those of all sales. */
async function readRows(client: pg.Client): Promise<Rows> {
  const orders = await client.query<OrderRow>(
    'SELECT id::text AS id, sale_id AS "saleId", user_id AS "userId", status::text AS status FROM orders',
  );
  const points = await client.query<PointsRow>(
    `SELECT user_id AS "userId", source_type AS "sourceType", source_id AS "sourceId", points FROM points_entries
     WHERE source_type IN ('order', 'order-reversal', 'order-revival')`,
  );
  const payments = await client.query<PaymentRow>(
    'SELECT id, order_id::text AS "orderId", result FROM payment_notifications',
  );
  const tasks = await client.query<TaskRow>(
    `SELECT kind, payload->>'orderId' AS "orderId", state FROM tasks WHERE kind IN ('ship', 'award', 'refund')`,
  );
  return { orders: orders.rows, points: points.rows, payments: payments.rows, tasks: tasks.rows };
}

/** Those of one sale. */
async function readCounts(
  client: pg.Client,
  saleId: number,
): Promise<Pick<PostgresSnapshot, 'untold' | 'heldUnits'>> {
  const { rows } = await client.query<{ held: number }>(
    `SELECT count(*)::int AS held FROM stock_units AS u WHERE u.sale_id = $1 AND u.order_id IS NOT NULL
       AND NOT EXISTS (SELECT FROM orders AS o WHERE o.id = u.order_id AND o.status IN ('pending', 'paid'))`,
    [saleId],
  );
  return { untold: await countUntold(client, saleId), heldUnits: rows[0]?.held ?? 0 };
}

function postgresOptions(databaseUrl: string): pg.ClientConfig {
  return {
    connectionString: databaseUrl,
    connectionTimeoutMillis: readTimeoutMs,
    query_timeout: readTimeoutMs,
    application_name: 'stampede-audit',
  };
}

async function readRedis(
  { redisUrl, saleId }: StoresToAudit,
  settled: Settled,
): Promise<RedisSnapshot | Unreadable> {
  if ('unreadable' in settled) return settled;
  return withRedis(redisUrl, async (redis) => {
    const prefix = `stampede:{sale:${saleId}}`;
    const [remaining, segments, unsettled, buyers] = await Promise.all([
      redis.hget(`${prefix}:state`, 'remaining'),
      redis.hvals(`${prefix}:segments`),
      redis.zcard(`${prefix}:reservations`),
      redis.hlen(`${prefix}:buyers`),
    ]);
    const counts = [...(remaining === null ? [] : [remaining]), ...segments].map(Number);
    if (counts.some((count) => !Number.isSafeInteger(count)))
      return { unreadable: 'a count is not a number' };
    return {
      remaining: counts.length === 0 ? null : counts.reduce((sum, count) => sum + count, 0),
      buyers: counts.length === 0 ? null : buyers,
      unsettled,
      settling: settled.settling,
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
