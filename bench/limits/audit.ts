/**
 * The audit after each cell, without a history: what the stores hold must agree with itself, and with how many answers
 * promised an order. Counted by the stores, since a cell can have more orders than a process would like to read.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import pg from 'pg';
import { number, quantity } from '../audit/check.ts';
import { keysOf } from './sale-keys.ts';

export interface Check {
  readonly databaseUrl: string;
  readonly redisUrl: string;
  /** Whether the strategy keeps its sales in Redis as well. */
  readonly inRedis: boolean;
  /** Answers that promised an order. */
  readonly accepted: number;
}

const pollMs = 100;
/** Recovery takes up what is 6 s old, every second; a number that stands still for longer will not change. */
const stuckMs = 15_000;
/** A read of the audit may take so long: a cell can leave millions of rows. */
const readMs = 120_000;

/** Waits until no reservation is left, or their number stands still. To be called while the service runs: it settles them. */
export async function untilSettled(
  { databaseUrl, redisUrl }: Pick<Check, 'databaseUrl' | 'redisUrl'>,
  signal: AbortSignal,
): Promise<void> {
  const ids = await withPostgres(databaseUrl, saleIds);
  await withRedis(redisUrl, async (redis) => {
    let left = await reservations(redis, ids);
    let changedMs = performance.now();
    while (left > 0 && performance.now() - changedMs < stuckMs) {
      await sleep(pollMs, undefined, { signal }).catch(() => signal.throwIfAborted());
      const now = await reservations(redis, ids);
      if (now !== left) changedMs = performance.now();
      left = now;
    }
  });
}

/** What is wrong, in words; empty: nothing is. To be called when nothing moves between the stores any more. */
export async function checkStores({ databaseUrl, redisUrl, inRedis, accepted }: Check): Promise<string[]> {
  const sales = await withPostgres(databaseUrl, readSales);
  const twice = await withPostgres(databaseUrl, customersWithTwo);
  const active = sales.reduce((sum, sale) => sum + sale.active, 0);
  const findings = sales.flatMap(wrongOf);
  if (twice > 0) findings.push(`${quantity(twice, 'customer has', 'customers have')} two orders of one sale`);
  if (active < accepted) {
    const promised = `${quantity(accepted, 'answer')} promised an order`;
    findings.push(`${promised}, ${quantity(active, 'order is', 'orders are')} there`);
  }
  if (inRedis) findings.push(...(await withRedis(redisUrl, (redis) => disagreements(redis, sales))));
  return findings.length <= 3 ? findings : [...findings.slice(0, 3), `and ${findings.length - 3} more`];
}

interface SaleRow {
  readonly id: number;
  readonly stock: number;
  readonly sold: number;
  readonly active: number;
  readonly points: number;
}

async function saleIds(client: pg.Client): Promise<number[]> {
  const { rows } = await client.query<{ id: number }>('SELECT id FROM sales');
  return rows.map(({ id }) => id);
}

async function readSales(client: pg.Client): Promise<SaleRow[]> {
  const { rows } = await client.query<SaleRow>(
    `SELECT sales.id, stock, sold + oversold AS sold, coalesce(active, 0)::int AS active, coalesce(points, 0)::int AS points
     FROM sales LEFT JOIN (
       SELECT sale_id, count(*) AS active, count(entry.id) AS points
       FROM orders LEFT JOIN points_entries AS entry
         ON entry.user_id = orders.user_id AND source_type = 'order' AND source_id = orders.id::text
       WHERE status IN ('pending', 'paid') GROUP BY sale_id
     ) AS placed ON sale_id = sales.id ORDER BY sales.id`,
  );
  return rows;
}

async function customersWithTwo(client: pg.Client): Promise<number> {
  const { rows } = await client.query<{ twice: number }>(
    `SELECT count(*)::int AS twice FROM (
       SELECT 1 FROM orders WHERE status IN ('pending', 'paid') GROUP BY sale_id, user_id HAVING count(*) > 1
     ) AS doubled`,
  );
  return rows[0]?.twice ?? 0;
}

function wrongOf({ id, stock, sold, active, points }: SaleRow): string[] {
  const of = `sale ${id}:`;
  return [
    ...(active > stock ? [`${of} ${number(active)} orders for ${number(stock)} units`] : []),
    ...(active !== sold ? [`${of} sales.sold is ${number(sold)}, orders are ${number(active)}`] : []),
    ...(active !== points ? [`${of} ${number(active)} orders, ${number(points)} entries of points`] : []),
  ];
}

/** What Redis would still sell must be what Postgres has left, and nothing may be under way. */
async function disagreements(redis: Redis, sales: readonly SaleRow[]): Promise<string[]> {
  const counts = await countsInRedis(redis, sales);
  const found = sales.flatMap(({ id, stock, sold }, index) => {
    const count = counts[index];
    if (count === undefined || count === null) return [];
    return count === stock - sold
      ? []
      : [`sale ${id}: Redis would sell ${number(count)} more, Postgres ${number(stock - sold)}`];
  });
  const left = await reservations(
    redis,
    sales.map(({ id }) => id),
  );
  if (left > 0) found.push(`${quantity(left, 'reservation is', 'reservations are')} not settled`);
  if (counts.every((count) => count === null)) found.push('no sale is in Redis');
  return found;
}

/** In one counter or in segments; null: the sale is not there. */
async function countsInRedis(redis: Redis, sales: readonly SaleRow[]): Promise<(number | null)[]> {
  const pipeline = redis.pipeline();
  for (const { id } of sales) pipeline.hget(keysOf(id).state, 'remaining').hvals(keysOf(id).segments);
  const replies = (await pipeline.exec()) ?? [];
  return sales.map((_, index) => {
    const one = replies[2 * index]?.[1];
    const split = (replies[2 * index + 1]?.[1] ?? []) as string[];
    if (typeof one === 'string') return Number(one);
    return split.length === 0 ? null : split.reduce((sum, units) => sum + Number(units), 0);
  });
}

async function reservations(redis: Redis, ids: readonly number[]): Promise<number> {
  const pipeline = redis.pipeline();
  for (const id of ids) pipeline.zcard(keysOf(id).reservations);
  const replies = (await pipeline.exec()) ?? [];
  return replies.reduce((sum, [, length]) => sum + Number(length), 0);
}

async function withPostgres<T>(url: string, read: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({
    connectionString: url,
    query_timeout: readMs,
    application_name: 'stampede-audit',
  });
  client.on('error', () => {}); // the statement that is under way fails as well
  try {
    await client.connect();
    return await read(client);
  } finally {
    await client.end().catch(() => {});
  }
}

async function withRedis<T>(url: string, read: (redis: Redis) => Promise<T>): Promise<T> {
  const redis = new Redis(url, { lazyConnect: true, retryStrategy: () => null, maxRetriesPerRequest: 0 });
  redis.on('error', () => {}); // the command that is under way fails as well
  try {
    await redis.connect();
    return await read(redis);
  } finally {
    redis.disconnect();
  }
}
