/**
 * An audit without a history, for loads of millions of attempts: the stores must agree with each other and with how many
 * answers promised an order. Counted by the stores, since such a load leaves more orders than a process should read.
 */

import { Redis } from 'ioredis';
import pg from 'pg';
import { number, quantity } from '../kit/text.ts';
import { type StoresToAudit, settle } from './reader.ts';

export interface CountsToAudit extends StoresToAudit {
  /** Whether the strategy keeps its sales in Redis as well. */
  readonly inRedis: boolean;
  /** Answers that promised an order. */
  readonly accepted: number;
}

/** A load can leave millions of rows. */
const readMs = 120_000;
/** The reaper takes up what is 6 s old, every second. */
const wait = { timeoutMs: 120_000, stuckAfterMs: 15_000 };

/** Waits until nothing is in flight between the stores. To be called while the service runs. */
export async function settleAll(stores: StoresToAudit): Promise<void> {
  await settle(stores, await withPostgres(stores.databaseUrl, saleIds), wait);
}

/** What is wrong, in words; empty: nothing is. To be called when the service has stopped. */
export async function auditCounts({
  databaseUrl,
  redisUrl,
  inRedis,
  accepted,
}: CountsToAudit): Promise<string[]> {
  const { sales, twice } = await withPostgres(databaseUrl, async (client) => ({
    sales: await readSales(client),
    twice: await customersWithTwo(client),
  }));
  const active = sales.reduce((sum, sale) => sum + sale.active, 0);
  const findings = sales.flatMap(wrongOf);
  if (twice > 0) findings.push(`${quantity(twice, 'customer has', 'customers have')} two orders of one sale`);
  if (active < accepted) {
    const promised = `${quantity(accepted, 'answer')} promised an order`;
    findings.push(`${promised}, Postgres has ${quantity(active, 'order')}`);
  }
  if (inRedis) findings.push(...(await disagreements(redisUrl, sales)));
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
  return (await client.query<{ id: number }>('SELECT id FROM sales')).rows.map(({ id }) => id);
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

/** Redis must offer what Postgres has left, and nothing may be in flight. */
async function disagreements(redisUrl: string, sales: readonly SaleRow[]): Promise<string[]> {
  const redis = new Redis(redisUrl, {
    lazyConnect: true,
    retryStrategy: () => null,
    maxRetriesPerRequest: 0,
  });
  redis.on('error', () => {}); // the command in flight fails as well
  try {
    await redis.connect();
    const pipeline = redis.pipeline();
    for (const { id } of sales) {
      const prefix = `stampede:{sale:${id}}`;
      pipeline
        .hget(`${prefix}:state`, 'remaining')
        .hvals(`${prefix}:segments`)
        .zcard(`${prefix}:reservations`);
    }
    const replies = ((await pipeline.exec()) ?? []).map(([, reply]) => reply);
    let known = 0;
    const found = sales.flatMap(({ id, stock, sold }, n) => {
      const [one, segments, left] = replies.slice(3 * n) as [string | null, string[], number];
      const parts = one === null ? segments : [one];
      if (parts.length > 0) known++;
      const count = parts.reduce((sum, units) => sum + Number(units), 0);
      return [
        ...(parts.length > 0 && count !== stock - sold
          ? [`sale ${id}: Redis would sell ${number(count)} more, Postgres ${number(stock - sold)}`]
          : []),
        ...(left > 0
          ? [`sale ${id}: ${quantity(left, 'reservation is', 'reservations are')} not settled`]
          : []),
      ];
    });
    return known === 0 ? [...found, 'Redis has no sale'] : found;
  } finally {
    redis.disconnect();
  }
}

async function withPostgres<T>(url: string, read: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({
    connectionString: url,
    query_timeout: readMs,
    application_name: 'stampede-audit',
  });
  client.on('error', () => {}); // the statement in flight fails as well
  try {
    await client.connect();
    return await read(client);
  } finally {
    await client.end().catch(() => {});
  }
}
