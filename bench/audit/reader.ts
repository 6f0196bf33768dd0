/** Reads what the stores hold after a load. Every read is bounded; a store that does not answer is `unreadable`. */
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import pg from 'pg';
import { reasonOf } from '../kit/text.ts';
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

export interface StoresToAudit {
  readonly databaseUrl: string;
  readonly redisUrl: string;
}

/** How long the audit waits until nothing is in flight between the stores. */
export interface SettleWait {
  readonly timeoutMs: number;
  /** What did not change for this long is stuck; what still changes is being settled. */
  readonly stuckAfterMs: number;
}

/** Recovery promises 10 s, and runs by its own clock. The relay retries every second. */
const defaultWait: SettleWait = { timeoutMs: 12_000, stuckAfterMs: 3_000 };
const settlePollMs = 50;
/** How long a store may take to answer one question of the audit; a load may leave 100,000 orders. */
const readTimeoutMs = 30_000;

/** What was left between the stores when the wait ended: reservations, and changes that Redis has not received. */
export type Settled =
  | (Pick<RedisSnapshot, 'unsettled' | 'settling'> & Pick<PostgresSnapshot, 'untold'>)
  | Unreadable;

/**
 * Waits, bounded, until every reservation is settled and Redis has received every change. To be called while the service
 * runs: it does both. A Postgres that does not answer is not waited for: the snapshot says why.
 * @returns for each sale what was left
 */
export async function settle(
  { databaseUrl, redisUrl }: StoresToAudit,
  saleIds: readonly number[],
  wait: SettleWait = defaultWait,
): Promise<ReadonlyMap<number, Settled>> {
  const postgres = new pg.Pool({ ...postgresOptions(databaseUrl), max: 1 });
  postgres.on('error', () => {}); // The next look opens another connection.
  try {
    const left = await withRedis(redisUrl, (redis) =>
      untilNothingIsLeft(async () => {
        const untold = await countUntold(postgres, saleIds).catch(() => new Map<number, number>());
        const pipeline = redis.pipeline();
        for (const saleId of saleIds) pipeline.zcard(`${keyPrefix(saleId)}:reservations`);
        const replies = (await pipeline.exec()) ?? [];
        return saleIds.map((saleId, n) => {
          const [error, unsettled] = replies[n] ?? [new Error('no reply')];
          if (error) throw error;
          return { saleId, unsettled: Number(unsettled), untold: untold.get(saleId) ?? 0 };
        });
      }, wait),
    );
    return 'unreadable' in left ? new Map(saleIds.map((saleId) => [saleId, left])) : left;
  } finally {
    await postgres.end();
  }
}

const keyPrefix = (saleId: number): string => `stampede:{sale:${saleId}}`;

interface Left {
  readonly saleId: number;
  readonly unsettled: number;
  readonly untold: number;
}

async function untilNothingIsLeft(
  look: () => Promise<readonly Left[]>,
  { timeoutMs, stuckAfterMs }: SettleWait,
): Promise<ReadonlyMap<number, Settled>> {
  const beganMs = performance.now();
  const changedMs = new Map<number, number>();
  const before = new Map<number, string>();
  for (;;) {
    const nowMs = performance.now();
    const all = await look();
    for (const { saleId, unsettled, untold } of all) {
      const state = `${unsettled} ${untold}`;
      if (before.get(saleId) !== state) changedMs.set(saleId, nowMs);
      before.set(saleId, state);
    }
    const isDone = all.every(({ unsettled, untold }) => unsettled + untold === 0);
    if (isDone || nowMs - beganMs >= timeoutMs) {
      return new Map(
        all.map(({ saleId, unsettled, untold }) => {
          const isMoving = nowMs - (changedMs.get(saleId) ?? beganMs) < stuckAfterMs;
          return [saleId, { unsettled, untold, settling: unsettled + untold > 0 && isMoving }];
        }),
      );
    }
    await sleep(settlePollMs);
  }
}

async function countUntold(
  db: Pick<pg.Client, 'query'>,
  saleIds: readonly number[],
): Promise<ReadonlyMap<number, number>> {
  const { rows } = await db.query<{ id: number; untold: number }>(
    'SELECT sale_id AS id, count(*)::int AS untold FROM mirror_outbox WHERE sale_id = ANY($1) GROUP BY 1',
    [saleIds],
  );
  return new Map(rows.map(({ id, untold }) => [id, untold]));
}

/** Takes the snapshots. To be called when the service has stopped, so that nothing moves between the two stores. */
export async function readStores(
  { databaseUrl, redisUrl }: StoresToAudit,
  saleIds: readonly number[],
  settled: ReadonlyMap<number, Settled>,
): Promise<ReadonlyMap<number, StoresSnapshot>> {
  const [postgres, redis] = await Promise.all([
    readPostgres(databaseUrl, saleIds),
    withRedis(redisUrl, async (client) => {
      const read = async (id: number) => [id, await readSale(client, id, settled.get(id))] as const;
      return new Map(await Promise.all(saleIds.map(read)));
    }),
  ]);
  return new Map(
    saleIds.map((id) => [
      id,
      {
        postgres:
          'unreadable' in postgres
            ? postgres
            : (postgres.get(id) ?? { unreadable: `there is no sale ${id}` }),
        redis: 'unreadable' in redis ? redis : redis.get(id)!,
      },
    ]),
  );
}

async function readPostgres(
  databaseUrl: string,
  saleIds: readonly number[],
): Promise<ReadonlyMap<number, PostgresSnapshot> | Unreadable> {
  const client = new pg.Client(postgresOptions(databaseUrl));
  client.on('error', () => {}); // A connection that breaks fails the query in flight; that is reported.
  try {
    await client.connect();
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
    const sales = await client.query<PostgresSnapshot['sale'] & { readonly held: number }>(
      `SELECT id, stock, sold + oversold AS sold,
              (SELECT count(*)::int FROM stock_units AS u WHERE u.sale_id = s.id AND u.order_id IS NOT NULL
                 AND NOT EXISTS (SELECT FROM orders AS o WHERE o.id = u.order_id AND o.status IN ('pending', 'paid'))) AS held
       FROM sales AS s WHERE id = ANY($1)`,
      [saleIds],
    );
    const rows = await readRows(client);
    const untold = await countUntold(client, saleIds);
    await client.query('COMMIT');
    return new Map(
      sales.rows.map(({ held, ...sale }) => [
        sale.id,
        { sale, ...rows, untold: untold.get(sale.id) ?? 0, heldUnits: held },
      ]),
    );
  } catch (error) {
    return { unreadable: reasonOf(error) };
  } finally {
    await client.end().catch(() => {});
  }
}

/** Those of all sales. */
async function readRows(
  client: pg.Client,
): Promise<Pick<PostgresSnapshot, 'orders' | 'points' | 'payments' | 'tasks'>> {
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

function postgresOptions(databaseUrl: string): pg.ClientConfig {
  return {
    connectionString: databaseUrl,
    connectionTimeoutMillis: readTimeoutMs,
    query_timeout: readTimeoutMs,
    application_name: 'stampede-audit',
  };
}

async function readSale(
  redis: Redis,
  saleId: number,
  settled: Settled = { unreadable: 'the audit did not wait for it' },
): Promise<RedisSnapshot | Unreadable> {
  if ('unreadable' in settled) return settled;
  const prefix = keyPrefix(saleId);
  const [remaining, segments, unsettled, buyers] = await Promise.all([
    redis.hget(`${prefix}:state`, 'remaining'),
    redis.hvals(`${prefix}:segments`),
    redis.zcard(`${prefix}:reservations`),
    redis.hlen(`${prefix}:buyers`),
  ]);
  const counts = [...(remaining === null ? [] : [remaining]), ...segments].map(Number);
  if (counts.some((count) => !Number.isSafeInteger(count))) return { unreadable: 'a count is not a number' };
  return {
    remaining: counts.length === 0 ? null : counts.reduce((sum, count) => sum + count, 0),
    buyers: counts.length === 0 ? null : buyers,
    unsettled,
    settling: settled.settling,
  };
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
  redis.on('error', () => {}); // The command in flight fails as well; that is reported.
  try {
    await redis.connect();
    return await read(redis);
  } catch (error) {
    return { unreadable: reasonOf(error) };
  } finally {
    redis.disconnect();
  }
}
