/**
 * An audit without a history, for loads of millions of attempts: the stores must agree with each other and with how many
 * answers promised an order. Postgres counts, since such a load leaves more orders than a process should read.
 */
import type { Redis } from 'ioredis';
import { number, quantity } from '../kit/text.ts';
import { withPostgres, withRedis } from '../servers/stores.ts';
import { isUnreadable, type RedisSnapshot, tally, type Unreadable } from './check.ts';
import { drift } from './drift.ts';
import { oversold } from './oversold.ts';
import { readRedis, type StoresToAudit, settle, unreadable } from './reader.ts';

interface Dealt {
  /** URLs of further Postgres, with other sales. */
  readonly more?: readonly string[];
}

export interface CountsToAudit extends StoresToAudit, Dealt {
  /** Whether the strategy keeps its sales in Redis as well. */
  readonly inRedis: boolean;
  /** Answers that promised an order. */
  readonly accepted: number;
}

/** Every second, the reaper resolves what is 6 s old. */
const wait = { timeoutMs: 120_000, stuckAfterMs: 15_000 };
/** Limit of quoted findings. */
const most = 3;

interface SaleRow {
  readonly id: number;
  readonly stock: number;
  readonly sold: number;
  /** Active orders, and their units. */
  readonly orders: number;
  readonly units: number;
  readonly points: number;
}

const SALES = `
  SELECT sales.id, stock, sold + oversold AS sold, coalesce(active, 0)::int AS orders, coalesce(units, 0)::int AS units, coalesce(points, 0)::int AS points
  FROM sales LEFT JOIN (
    SELECT sale_id, count(*) AS active, sum(quantity) AS units, count(entry.id) AS points
    FROM orders LEFT JOIN points_entries AS entry
      ON entry.user_id = coalesce(transferred_from, orders.user_id) AND source_type = 'order' AND source_id = orders.id::text
    WHERE status IN ('pending', 'paid') GROUP BY sale_id
  ) AS placed ON sale_id = sales.id ORDER BY sales.id`;
const TWICE = `
  SELECT count(*)::int AS twice FROM (
    SELECT 1 FROM orders WHERE status IN ('pending', 'paid') GROUP BY sale_id, user_id HAVING count(*) > 1
  ) AS doubled`;

/** Waits until nothing is in flight between the stores. To be called while the service runs. */
export async function settleAll({ more = [], ...stores }: Dealt & StoresToAudit): Promise<void> {
  for (const databaseUrl of [stores.databaseUrl, ...more]) {
    const { rows } = await withPostgres(databaseUrl, (client) =>
      client.query<{ id: number }>('SELECT id FROM sales'),
    );
    const saleIds = rows.map(({ id }) => id);
    await settle({ ...stores, databaseUrl }, saleIds, wait);
  }
}

/** The findings, in words; empty: none. To be called when the service has stopped. @throws when Postgres cannot be read */
export async function auditCounts(counts: CountsToAudit): Promise<string[]> {
  const { databaseUrl, more = [], redisUrl, inRedis, accepted } = counts;
  const sales: SaleRow[] = [];
  let twice = 0;
  for (const url of [databaseUrl, ...more])
    await withPostgres(url, async (client) => {
      sales.push(...(await client.query<SaleRow>(SALES)).rows);
      twice += (await client.query<{ twice: number }>(TWICE)).rows[0]?.twice ?? 0;
    });
  const nothing = { remaining: null, held: null, unsettled: 0, settling: false };
  const redis = inRedis ? await readSales(redisUrl, sales) : sales.map(() => nothing);
  const findings = sales.flatMap((sale, n) => wrongOf(sale, redis[n]!));
  if (twice > 0) findings.push(`${quantity(twice, 'customer has', 'customers have')} two orders of one sale`);
  const orders = sales.reduce((sum, sale) => sum + sale.orders, 0);
  if (orders < accepted) {
    const promised = `${quantity(accepted, 'answer')} promised an order`;
    findings.push(`${promised}, Postgres has ${quantity(orders, 'order')}`);
  }
  if (inRedis && redis.every((sale) => isUnreadable(sale) || sale.remaining === null)) {
    findings.push('Redis has no sale');
  }
  return findings.length <= most
    ? findings
    : [...findings.slice(0, most), `and ${findings.length - most} more`];
}

async function readSales(redisUrl: string, sales: readonly SaleRow[]) {
  const settled = { unsettled: 0, unpublished: 0, settling: false };
  const read = (redis: Redis) => Promise.all(sales.map(({ id }) => readRedis(redis, id, settled)));
  const found = await withRedis(redisUrl, read).catch(unreadable);
  return 'unreadable' in found ? sales.map(() => found) : found;
}

function wrongOf(sale: SaleRow, redis: RedisSnapshot | Unreadable): string[] {
  const { id, orders, units, points } = sale;
  const counts = { postgres: { sale, unpublished: 0 }, redis, activeUnits: units };
  const entries = `${number(orders)} orders, ${number(points)} entries of points`;
  return [oversold(counts), drift(counts), tally([Math.abs(orders - points), entries])].flatMap(
    ({ finding }) => (finding === null ? [] : [`sale ${id}: ${finding}`]),
  );
}
