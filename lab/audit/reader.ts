/** Reads the stores after a load. Every read is bounded; a store that does not answer is `unreadable`. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import type pg from 'pg';
import { reasonOf } from '../kit/text.ts';
import { withPostgres, withRedis } from '../servers/stores.ts';
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
  /** A number that did not change for this long is stuck; one that still changes is being settled. */
  readonly stuckAfterMs: number;
}

/** The reaper promises 10 s, and runs by its own clock. The relay retries every second. */
const defaultWait: SettleWait = { timeoutMs: 12_000, stuckAfterMs: 3_000 };
const settlePollMs = 100;

/** The result of a failed read. */
export const unreadable = (error: unknown): Unreadable => ({ unreadable: reasonOf(error) });

/** Left between the stores when the wait ended: reservations, and changes that Redis has not received. */
export type Settled =
  | (Pick<RedisSnapshot, 'unsettled' | 'settling'> & Pick<PostgresSnapshot, 'unpublished'>)
  | Unreadable;

const keyPrefix = (saleId: number): string => `stampede:{sale:${saleId}}`;

/**
 * Waits, bounded, until every reservation is acknowledged and Redis has received every change. To be called while the service
 * runs, which does both. A Postgres that does not answer is not waited for: the snapshot says why.
 * @returns for each sale what was left
 */
export async function settle(
  { databaseUrl, redisUrl }: StoresToAudit,
  saleIds: readonly number[],
  { timeoutMs, stuckAfterMs }: SettleWait = defaultWait,
): Promise<ReadonlyMap<number, Settled>> {
  /** The first and the last look. The time to connect has another bound. */
  let beganMs: number | null = null;
  let lookedMs = 0;
  /** Per sale: the last numbers, and since when they have not changed. */
  const seen = new Map<number, { readonly state: string; readonly sinceMs: number }>();
  const look = async (redis: Redis): Promise<Map<number, Exclude<Settled, Unreadable>>> => {
    const nowMs = performance.now();
    beganMs ??= nowMs;
    lookedMs = nowMs;
    const all = await withPostgres(databaseUrl, (client) => countUnpublished(client, saleIds)).catch(
      () => null,
    );
    const lookAt = async (id: number) => {
      const unsettled = await redis.zcard(`${keyPrefix(id)}:reservations`);
      const unpublished = all?.get(id) ?? 0;
      const state = `${unsettled} ${unpublished}`;
      if (seen.get(id)?.state !== state) seen.set(id, { state, sinceMs: nowMs });
      const isMoving = nowMs - seen.get(id)!.sinceMs < stuckAfterMs;
      return [id, { unsettled, unpublished, settling: unsettled + unpublished > 0 && isMoving }] as const;
    };
    return new Map(await Promise.all(saleIds.map(lookAt)));
  };
  const left = await withRedis(redisUrl, async (redis) => {
    for (;;) {
      const found = await look(redis);
      const isDone = [...found.values()].every(({ unsettled, unpublished }) => unsettled + unpublished === 0);
      if (isDone || lookedMs - beganMs! >= timeoutMs) return found;
      await sleep(settlePollMs);
    }
  }).catch(unreadable);
  return 'unreadable' in left ? new Map(saleIds.map((id) => [id, left])) : left;
}

async function countUnpublished(
  db: Pick<pg.ClientBase | pg.Pool, 'query'>,
  saleIds: readonly number[],
): Promise<ReadonlyMap<number, number>> {
  const { rows } = await db.query<{ id: number; unpublished: number }>(
    'SELECT sale_id AS id, sum(greatest(units, 1))::int AS unpublished FROM mirror_outbox WHERE sale_id = ANY($1) GROUP BY 1',
    [saleIds],
  );
  return new Map(rows.map(({ id, unpublished }) => [id, unpublished]));
}

/** Takes the snapshots. To be called when the service has stopped, so that nothing moves between the two stores. */
export async function readStores(
  { databaseUrl, redisUrl }: StoresToAudit,
  saleIds: readonly number[],
  settled: ReadonlyMap<number, Settled>,
): Promise<ReadonlyMap<number, StoresSnapshot>> {
  const [postgres, redis] = await Promise.all([
    withPostgres(databaseUrl, (client) => readPostgres(client, saleIds)).catch(unreadable),
    withRedis(redisUrl, async (redis) => ({
      server: await serverOf(redis),
      sales: await Promise.all(saleIds.map((id) => readRedis(redis, id, settled.get(id)))),
    })).catch(unreadable),
  ]);
  const snapshot = (id: number, n: number): StoresSnapshot =>
    ofOneEpoch(
      {
        postgres:
          'unreadable' in postgres
            ? postgres
            : (postgres.get(id) ?? { unreadable: `there is no sale ${id}` }),
        redis: 'unreadable' in redis ? redis : redis.sales[n]!,
      },
      'unreadable' in redis ? null : redis.server,
    );
  return new Map(saleIds.map((id, n) => [id, snapshot(id, n)]));
}

const SALES = `
  SELECT id, stock, sold + oversold AS sold, mirror_epoch AS epoch,
    (SELECT incarnation FROM redis_epochs AS e WHERE e.epoch = s.mirror_epoch) AS "loadedInto",
    (SELECT count(*)::int FROM stock_units AS u WHERE u.sale_id = s.id AND u.order_id IS NOT NULL AND NOT EXISTS
      (SELECT FROM orders AS o WHERE o.id = u.order_id AND o.status IN ('pending', 'paid'))) AS held
  FROM sales AS s WHERE id = ANY($1)`;
const ORDERS =
  'SELECT id::text AS id, sale_id AS "saleId", user_id AS "userId", transferred_from AS "transferredFrom", status::text AS status, quantity, points_earned(price_cents * quantity) AS earns FROM orders';
const POINTS = `
  SELECT user_id AS "userId", source_type AS "sourceType", source_id AS "sourceId", points FROM points_entries
  WHERE source_type IN ('order', 'order-reversal', 'order-revival', 'order-revival-reversal', 'order-transfer')`;
const PAYMENTS = 'SELECT id, order_id::text AS "orderId", result FROM payment_notifications';
const TASKS = `
  SELECT kind, payload->>'orderId' AS "orderId", state, payload->>'paymentNotificationId' AS payment FROM tasks
  WHERE kind IN ('ship', 'award', 'refund')`;

/** Reads at one instant, the rows of all sales. Leaves the transaction open. */
async function readPostgres(
  client: Pick<pg.ClientBase, 'query'>,
  saleIds: readonly number[],
): Promise<ReadonlyMap<number, PostgresSnapshot>> {
  await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
  type Sale = PostgresSnapshot['sale'] & { readonly held: number };
  const sales = await client.query<Sale>(SALES, [saleIds]);
  const rows = {
    orders: (await client.query<OrderRow>(ORDERS)).rows,
    points: (await client.query<PointsRow>(POINTS)).rows,
    payments: (await client.query<PaymentRow>(PAYMENTS)).rows,
    tasks: (await client.query<TaskRow>(TASKS)).rows,
  };
  const unpublished = await countUnpublished(client, saleIds);
  return new Map(
    sales.rows.map(({ held, ...sale }) => [
      sale.id,
      { sale, ...rows, unpublished: unpublished.get(sale.id) ?? 0, heldUnits: held },
    ]),
  );
}

/** A sale that is not in Redis, or not compared with Redis. */
const notInRedis: RedisSnapshot = { remaining: null, held: null, unsettled: 0, settling: false };

/** Both stores of a sale, which were read. */
export interface StoresNow {
  readonly postgres: PostgresSnapshot;
  readonly redis: RedisSnapshot;
}

/**
 * The stores of sales as they are now, whatever is in progress.
 * @param redis null: not compared
 * @throws when one cannot be read, or a sale does not exist
 */
export async function readNow(
  sql: pg.Pool,
  redis: Redis | null,
  saleIds: readonly number[],
): Promise<ReadonlyMap<number, StoresNow>> {
  const client = await sql.connect();
  let found: ReadonlyMap<number, PostgresSnapshot>;
  try {
    found = await readPostgres(client, saleIds);
    await client.query('COMMIT');
    client.release();
  } catch (error) {
    client.release(error as Error);
    throw error;
  }
  const server = redis === null ? null : await serverOf(redis);
  const ofSale = async (id: number): Promise<readonly [number, StoresNow]> => {
    const postgres = found.get(id);
    if (postgres === undefined) throw new Error(`there is no sale ${id}`);
    if (redis === null) return [id, { postgres: { ...postgres, unpublished: 0 }, redis: notInRedis }];
    return [id, ofOneEpoch({ postgres, redis: await redisNow(redis, id) }, server) as StoresNow];
  };
  return new Map(await Promise.all(saleIds.map(ofSale)));
}

/** One sale in Redis as it is now, whatever is in progress. @throws when a count is not a number */
export async function redisNow(redis: Redis, saleId: number): Promise<RedisSnapshot> {
  const found = await readRedis(redis, saleId, { unsettled: 0, unpublished: 0, settling: false });
  if ('unreadable' in found) throw new Error(found.unreadable);
  return found;
}

/** Changes of a sale that Postgres has and Redis does not have yet. */
export async function unpublishedOf(db: Pick<pg.Pool, 'query'>, saleId: number): Promise<number> {
  return (await countUnpublished(db, [saleId])).get(saleId) ?? 0;
}

/**
 * Ignores a mirror of another epoch: the next attempt loads the sale. On a replica that was promoted, or a server restored from a
 * snapshot, it has the number of the last epoch too, which is another server's.
 * @param server see `serverOf`
 */
function ofOneEpoch({ postgres, redis }: StoresSnapshot, server: string | null): StoresSnapshot {
  if ('unreadable' in postgres || 'unreadable' in redis) return { postgres, redis };
  const { epoch = null, loadedInto = null } = postgres.sale;
  const isElsewhere = loadedInto !== null && server !== null && !loadedInto.startsWith(server);
  const isOther = epoch !== null && (redis.epoch !== String(epoch) || isElsewhere);
  return { postgres, redis: isOther ? { ...redis, remaining: null, held: null } : redis };
}

/** Reads a sale in Redis: its units are in one counter or in segments. */
export async function readRedis(
  redis: Redis,
  saleId: number,
  settled: Settled = { unreadable: 'the audit did not wait for it' },
): Promise<RedisSnapshot | Unreadable> {
  if ('unreadable' in settled) return settled;
  const prefix = keyPrefix(saleId);
  const [[remaining = null, epoch = null, extra = null], segments, unsettled, buyers] = await Promise.all([
    redis.hmget(`${prefix}:state`, 'remaining', 'epoch', 'extraUnits'),
    redis.hvals(`${prefix}:segments`),
    redis.zcard(`${prefix}:reservations`),
    redis.hlen(`${prefix}:buyers`),
  ]);
  const counts = [...(remaining === null ? [] : [remaining]), ...segments].map(Number);
  if (counts.some((count) => !Number.isSafeInteger(count))) return { unreadable: 'a count is not a number' };
  const { settling } = settled;
  if (counts.length === 0) return { ...notInRedis, unsettled, settling };
  const held = buyers + Number(extra);
  return { remaining: counts.reduce((sum, count) => sum + count, 0), held, unsettled, settling, epoch };
}

/** What identifies a server in redis_epochs: its process and its last promotion. Null: not known, of a replica or a cluster. */
async function serverOf(redis: Redis): Promise<string | null> {
  if (redis.isCluster) return null;
  const info = await redis.info();
  const [role, runId, replicationId] = ['role', 'run_id', 'master_replid'].map(
    (name) => new RegExp(`^${name}:(\\S+)`, 'm').exec(info)?.[1],
  );
  return role === 'master' ? `${runId} ${replicationId}` : null;
}
