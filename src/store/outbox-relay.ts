/**
 * The relay from the outbox (the table mirror_outbox) to Redis.
 *
 *   (the transaction of a change inserts a row) ──▶ pending ──applied by Redis──▶ deleted
 *                                  ▲        └──no answer, or the process died: it stays──┘
 *
 * A change is published once it is replicated, to the copy of its sale that was loaded last; each is idempotent in Redis (lua/sale/apply-change.lua,
 * restock.lua), and those of one order are published in sequence: docs/explanation/consistency.md, "From Postgres to Redis: the outbox". If that
 * copy is in a Redis that this one has replaced, the sale is loaded in this one first: the address may lead back, where the change is missing. A
 * Redis has replaced those that were seen before it, and those from which its address has led this process back to it. The search leaves out the
 * sales of changes that are kept for a moment, so that they do not hold up those behind them.
 */
import type pg from 'pg';
import type { LoopHealth } from '../concurrency/loop-health.ts';
import { limits } from '../config/limits.ts';
import type { MirrorChange } from '../domain/order.ts';
import { isStoreUnavailable } from './failures/any-store.ts';
import { isRedisDefect } from './failures/redis.ts';
import { ACTIVE } from './postgres/orders.ts';
import { inTransaction, type PostgresStore } from './postgres/pool.ts';
import type { SaleMirror } from './redis/sale-mirror.ts';

export interface OutboxRelay {
  readonly mirror: SaleMirror;
  /**
   * Publishes the changes of these orders, or the oldest of all. Changes that cannot be published now stay pending; never
   * throws.
   * @returns how many were published or kept for now; of all, 0 when none is left to be tried
   */
  publish(orderIds?: readonly string[]): Promise<number>;
  /** Adds changes that give these orders their units and customers in Redis, unless they are closed, and publishes them. */
  take(orderIds: readonly string[]): Promise<void>;
}

/** @param health of the loop `mirror-outbox` */
export function createOutboxRelay(
  postgres: PostgresStore,
  mirror: SaleMirror,
  health: LoopHealth,
): OutboxRelay {
  const paused = new Map<number, number>();
  const publish = async (orderIds?: readonly string[]) => {
    if (orderIds?.length === 0) return 0;
    return relayOutbox({ postgres, mirror, health }, orderIds === undefined ? { paused } : { orderIds });
  };
  return {
    mirror,
    publish,
    async take(orderIds) {
      await postgres.pool.query(TAKE, [orderIds]);
      const { outboxBatch } = limits; // of one call
      for (let i = 0; i < orderIds.length; i += outboxBatch)
        await publish(orderIds.slice(i, i + outboxBatch));
    },
  };
}

/** A closing order is waited for: its release comes later. */
const TAKE = `
  INSERT INTO mirror_outbox (sale_id, change, order_id, user_id, units)
  SELECT sale_id, 'take', id, user_id, quantity FROM orders
  WHERE id = ANY($1) AND status IN ('pending', 'paid') ORDER BY id FOR UPDATE`;

interface RelayContext {
  readonly postgres: PostgresStore;
  readonly mirror: SaleMirror;
  readonly health?: LoopHealth;
  /** Receives failures that are not reported through `health`. */
  readonly onError?: (error: unknown) => void;
}

type Row = MirrorChange & {
  readonly id: string;
  readonly ageMs: number;
  readonly loadedIn: number | null;
  /** It gives units to an order that is closed by now. A copy that was loaded since has sold them: the release, which follows, would add them again. */
  readonly isOver: boolean;
};

// The first change of each order comes first. ORDER BY and LIMIT leave the planner one way to find it: a plan made while the table is
// empty is kept.
const changes = (columns: string, condition: string) => `SELECT ${columns} FROM mirror_outbox AS m
  WHERE ${condition} AND (order_id IS NULL
    OR id = (SELECT e.id FROM mirror_outbox AS e WHERE e.order_id = m.order_id ORDER BY e.id LIMIT 1))
  ORDER BY id LIMIT $1`;
/** Without rows that another process is publishing. */
const NOT_LOCKED = 'FOR UPDATE SKIP LOCKED';
const find = (condition: string) => changes('id, sale_id AS "saleId"', condition);
const OLDEST = {
  name: 'outbox-oldest',
  text: `${find('sale_id <> ALL($2::int[])')} ${NOT_LOCKED}`,
};
const OF_ORDERS = { name: 'outbox-of-orders', text: find('order_id = ANY($2::uuid[])') };
const OF_SALE = { name: 'outbox-of-sale', text: find('sale_id = $2') };
const LOCK = {
  name: 'outbox-lock',
  text: `${changes(
    `id, change, order_id AS "orderId", sale_id AS "saleId", user_id AS "userId", to_user_id AS "toUserId", units,
      (extract(epoch FROM clock_timestamp() - created_at) * 1000)::float8 AS "ageMs",
      (SELECT mirror_epoch FROM sales WHERE sales.id = m.sale_id) AS "loadedIn",
      change IN ('take', 'record') AND NOT EXISTS (SELECT FROM orders WHERE orders.id = m.order_id AND ${ACTIVE}) AS "isOver"`,
    'id = ANY($2::bigint[])',
  )} ${NOT_LOCKED}`,
};

const PUBLISH = 'publish changes';

/** `elsewhere`: its sale was loaded in another Redis last. `done`: Redis has applied it, or loads it from Postgres. */
type Applied = 'done' | 'kept' | 'elsewhere' | 'failed' | { readonly error: unknown };

type Which =
  | { readonly orderIds: readonly string[] }
  | { readonly saleId: number }
  /** The oldest, except those of some sales: each until an instant on `performance.now()`'s clock. */
  | { readonly paused: Map<number, number> };

/**
 * Holds no connection while it waits: as many requests as the pool has connections would each wait for another one.
 * @returns the numbers of the next changes, once they are replicated
 */
async function findReplicated(
  { postgres, mirror, health }: RelayContext,
  which: Which,
): Promise<readonly string[]> {
  const { outboxBatch } = limits;
  const query = () => {
    if ('orderIds' in which) return { ...OF_ORDERS, values: [outboxBatch, which.orderIds] };
    if ('saleId' in which) return { ...OF_SALE, values: [outboxBatch, which.saleId] };
    for (const [id, untilMs] of which.paused) if (untilMs < performance.now()) which.paused.delete(id);
    return {
      ...OLDEST,
      values: [outboxBatch, [...which.paused.keys(), ...(health?.backingOff('sale') ?? [])]],
    };
  };
  const before = postgres.timeline();
  const { rows } = await postgres.pool.query<{ id: string; saleId: number }>(query());
  if (rows.length === 0) return [];
  await postgres.replicated(before);
  const sales = [...new Set(rows.map((row) => row.saleId))];
  await Promise.all(sales.map((id) => mirror.epoch(id).catch(() => {}))); // it fails again where the change is applied
  return rows.map(({ id }) => id);
}

const DELETE = { name: 'outbox-delete', text: 'DELETE FROM mirror_outbox WHERE id = ANY($1::bigint[])' };

/** Of these sales, each with this process's epoch, those that were loaded in no newer one. */
const REPLACED = `
  SELECT sales.id FROM unnest($1::int[], $2::int[]) AS own (sale_id, epoch) JOIN sales ON sales.id = own.sale_id
  WHERE NOT EXISTS (
    SELECT FROM redis_epochs AS loaded JOIN redis_epochs AS mine ON mine.epoch = own.epoch
    WHERE loaded.epoch = mirror_epoch AND loaded.first_seen_at > mine.first_seen_at)`;

/**
 * Loads the sales whose last copy is in a Redis that this process's has replaced.
 * @param elsewhere for each sale the epoch of that copy
 * @throws what an unavailable store throws
 */
async function loadReplaced(
  { postgres, mirror }: RelayContext,
  elsewhere: ReadonlyMap<number, number | null>,
  failed: (item: string, error: unknown) => void,
): Promise<void> {
  const own = [...elsewhere.keys()]
    .map((id) => [id, mirror.copyOf(id)?.epoch] as const)
    .filter(([, epoch]) => epoch);
  if (own.length === 0) return;
  const { rows } = await postgres.pool.query<{ id: number }>(REPLACED, [
    own.map(([id]) => id),
    own.map(([, epoch]) => epoch),
  ]);
  const left = [...elsewhere].filter(([id, epoch]) => epoch !== null && mirror.hasLeft(id, epoch));
  for (const id of new Set([...rows.map((row) => row.id), ...left.map(([id]) => id)]))
    try {
      await mirror.load({ id });
    } catch (error) {
      if (isStoreUnavailable(error)) throw error;
      failed(`sale ${id}`, error); // the others are loaded
    }
}

/**
 * Publishes one batch of changes: of some orders, of a sale, or the oldest of all. Never throws.
 * @returns how many were published or kept for now
 */
export async function relayOutbox(context: RelayContext, which: Which): Promise<number> {
  const { postgres, mirror, health } = context;
  const { outboxElsewhereMs, outboxKeepMs } = limits;
  const elsewhere = new Map<number, number | null>();
  const failed = (item: string, error: unknown) => {
    if (health) health.failed(item, error);
    else context.onError?.(error);
  };

  /** @returns also why Redis is unavailable */
  async function apply(row: Row): Promise<Applied> {
    const sale = `sale ${row.saleId}`;
    if (row.isOver) return 'done';
    try {
      const result = await mirror.applyChange(row, row.loadedIn);
      health?.succeeded(sale);
      if (result !== 'applied' && row.ageMs < outboxKeepMs) return 'kept'; // an attempt loads it
      return result === 'elsewhere' && row.ageMs < outboxElsewhereMs ? 'elsewhere' : 'done';
    } catch (error) {
      if (!isRedisDefect(error)) return { error };
      failed(sale, error); // a key of this sale has another type: the changes of other sales go first
      return 'failed';
    }
  }

  async function relay(client: pg.PoolClient, ids: readonly string[]): Promise<number> {
    const values = [limits.outboxBatch, ids];
    const { rows } = await client.query<Row>({ ...LOCK, values });
    const results = await Promise.all(rows.map(apply));
    const done = rows.filter((_, i) => results[i] === 'done');
    if (done.length > 0) await client.query({ ...DELETE, values: [done.map(({ id }) => id)] });
    const kept = rows.filter((_, i) => results[i] === 'kept' || results[i] === 'elsewhere');
    for (const [i, row] of rows.entries())
      if (results[i] === 'elsewhere') elsewhere.set(row.saleId, row.loadedIn);
    const untilMs = performance.now() + limits.outboxPauseMs;
    if ('paused' in which) for (const { saleId } of kept) which.paused.set(saleId, untilMs);
    const unavailable = results.find((result) => typeof result === 'object' && 'error' in result);
    if (unavailable === undefined) health?.succeeded(PUBLISH);
    else failed(PUBLISH, unavailable.error);
    return done.length + kept.length;
  }

  try {
    const ids = await findReplicated(context, which);
    if (ids.length > 0) {
      const work = async (client: pg.PoolClient) =>
        ({ commit: true, value: await relay(client, ids) }) as const;
      const count = await inTransaction(postgres.pool, work);
      await loadReplaced(context, elsewhere, failed); // with no row locked
      return count;
    }
    if (!('orderIds' in which)) health?.succeeded(PUBLISH);
    return 0;
  } catch (error) {
    failed(PUBLISH, error);
    return 0;
  }
}
