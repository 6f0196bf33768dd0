/**
 * Cancels or refunds all orders of a sale, in the background.
 *
 *   requested ──▶ running ──a batch at a time, in any process──▶ no order is left ──▶ finished
 *
 * It covers the orders that exist when it is requested, or requested again while it runs: pause the sale first. What is done is
 * what the orders' own statuses say, so it continues after any crash, and each order is closed once. An order that Postgres
 * rejects is retried later (see metrics/loop-health.ts), and does not stop the others.
 */
import type pg from 'pg';
import type { LoopHealth } from '../concurrency/loop-health.ts';
import { limits } from '../config/limits.ts';
import type { Instruments } from '../metrics/instruments.ts';
import type { OutboxRelay } from '../store/outbox-relay.ts';
import { closeOrders } from '../store/postgres/close-orders.ts';
import { GroupDrain } from '../store/postgres/drain.ts';
import { type IdempotencyKey, once } from '../store/postgres/idempotency.ts';
import { ACTIVE } from '../store/postgres/orders.ts';
import { type PostgresStore, retried } from '../store/postgres/pool.ts';
import { fromRow } from '../store/postgres/rows.ts';
import { type Refund, transitionOf } from './lifecycle.ts';

export interface SaleRefund {
  readonly saleId: number;
  readonly returnUnits: boolean;
  /** Orders that were active when it was requested. */
  readonly orders: number;
  /** Those of them that still are. */
  readonly remaining: number;
  readonly requestedAt: string;
  readonly finishedAt: string | null;
}

/** What a refund of all orders would close now. */
export interface RefundPreview {
  /** Pending orders, which it would cancel. */
  readonly unpaid: number;
  readonly paid: number;
  /** The amounts of the paid ones, in cents. */
  readonly paidCents: number;
  /** Null: there was none. */
  readonly last: SaleRefund | null;
}

export interface SaleRefunds {
  /**
   * Requests one. One that runs covers the orders placed since, too.
   * @param key of a request that has one: a repeat gets the same answer
   * @returns null: no such sale; `differs`: one runs that treats the units otherwise
   */
  request(saleId: number, how: Refund, key?: IdempotencyKey | null): Promise<SaleRefund | 'differs' | null>;
  /**
   * Closes one batch of orders; several processes may do so at once, also of one sale: each order is closed by one of them.
   * @returns 0 when no refund runs that can go on now
   * @throws what Postgres throws when it is unavailable
   */
  closeBatch(): Promise<number>;
}

export interface SaleRefundsContext {
  readonly postgres: PostgresStore;
  /** Null for a strategy that decides in Postgres. */
  readonly outbox: OutboxRelay | null;
  readonly instruments: Instruments;
  /** The health of the loop that calls `closeBatch`. */
  readonly health: LoopHealth;
}

const LEFT = (sale: string, until: string) =>
  `FROM orders WHERE sale_id = ${sale} AND ${ACTIVE} AND created_at <= ${until}`;
const COLUMNS = `sale_id AS "saleId", return_units AS "returnUnits", orders,
  CASE WHEN finished_at IS NULL THEN (SELECT count(*) ${LEFT('r.sale_id', 'r.requested_at')})::int ELSE 0 END AS remaining,
  requested_at AS "requestedAt", finished_at AS "finishedAt"`;

const REQUEST = `
  INSERT INTO sale_refunds AS r (sale_id, return_units, actor, orders, requested_at)
  SELECT id, $2, $3, (SELECT count(*) ${LEFT('$1', 'now.at')}), now.at
  FROM sales, (SELECT date_trunc('milliseconds', clock_timestamp()) AS at) AS now WHERE id = $1
  ON CONFLICT (sale_id) DO UPDATE SET return_units = excluded.return_units, actor = excluded.actor, orders = excluded.orders,
    requested_at = excluded.requested_at, finished_at = NULL
  WHERE r.finished_at IS NOT NULL OR r.return_units = excluded.return_units`;

/** One that runs, in any order: processes that choose different sales do not wait for each other. */
const NEXT = `
  SELECT sale_id AS "saleId", return_units AS "returnUnits", actor, requested_at AS "requestedAt" FROM sale_refunds
  WHERE finished_at IS NULL AND sale_id <> ALL($1::int[]) ORDER BY random() LIMIT 1`;

/** Unless orders are left, or it was requested again. */
const FINISH = `
  UPDATE sale_refunds SET finished_at = clock_timestamp()
  WHERE sale_id = $1 AND finished_at IS NULL AND requested_at = $2 AND NOT EXISTS (SELECT ${LEFT('$1', '$2')})`;

interface Running {
  readonly saleId: number;
  readonly returnUnits: boolean;
  readonly actor: string;
  readonly requestedAt: Date;
}

type Db = Pick<pg.PoolClient, 'query'>;

/** The last refund of a sale; null: it has none. */
export async function readSaleRefund(saleId: number, db: Db): Promise<SaleRefund | null> {
  const { rows } = await db.query(`SELECT ${COLUMNS} FROM sale_refunds AS r WHERE sale_id = $1`, [saleId]);
  return rows[0] === undefined ? null : fromRow<SaleRefund>(rows[0]);
}

/** Reads every active order of the sale. */
export async function previewRefund(saleId: number, db: Db): Promise<RefundPreview> {
  const { rows } = await db.query<Omit<RefundPreview, 'last'>>(
    `SELECT (count(*) FILTER (WHERE status = 'pending'))::int AS unpaid, (count(*) FILTER (WHERE status = 'paid'))::int AS paid,
       coalesce(sum(price_cents * quantity) FILTER (WHERE status = 'paid'), 0)::float8 AS "paidCents"
     FROM orders WHERE sale_id = $1 AND ${ACTIVE}`,
    [saleId],
  );
  return { ...rows[0]!, last: await readSaleRefund(saleId, db) };
}

export function createSaleRefunds(context: SaleRefundsContext): SaleRefunds {
  const { outbox, instruments, health } = context;
  const { pool } = context.postgres;
  /** The place is a customer: a sale has one active order of each. */
  const active = new GroupDrain<string>({ health, kind: 'order' });

  /** Finds a page of the orders that are left. @returns whether there was one; another process may have closed them */
  async function closePage({ saleId, returnUnits, actor, requestedAt }: Running): Promise<boolean> {
    const sale = `sale ${saleId}`;
    const { rows } = await pool.query<{ id: string; user_id: string }>(
      `SELECT id, user_id ${LEFT('$1', '$2')} AND id <> ALL($3::uuid[]) AND user_id > $4 ORDER BY user_id LIMIT $5`,
      [saleId, requestedAt, health.backingOff('order'), active.places.get(sale) ?? '', limits.expiryBatch],
    );
    const last = rows.at(-1);
    if (last === undefined) return false;
    const isMirrored = outbox !== null;
    const closing = { from: ['pending', 'paid'], to: 'cancelled', returnUnits, isMirrored, actor } as const;
    const ids = rows.map(({ id }) => id);
    const { done } = await active.page(sale, ids, last.user_id, (some) =>
      retried(() => closeOrders(pool, some, closing)),
    );
    for (const order of done) instruments.transitions.inc({ to: transitionOf(order) });
    await outbox?.publish(done.map(({ id }) => id));
    return true;
  }

  return {
    request: (saleId, how, key = null) =>
      once<SaleRefund | 'differs' | null>(context.postgres, key, async (client) => {
        await client.query(REQUEST, [saleId, how.returnUnits, how.actor]);
        const value = await readSaleRefund(saleId, client);
        const isOther = value !== null && value.returnUnits !== how.returnUnits;
        return { commit: value !== null && !isOther, value: isOther ? 'differs' : value };
      }),
    async closeBatch() {
      const { rows } = await pool.query<Running>(NEXT, [health.backingOff('sale')]);
      const [running] = rows;
      if (running === undefined) return 0;
      if (await closePage(running)) return 1;
      const { saleId, requestedAt } = running;
      active.places.delete(`sale ${saleId}`);
      await pool.query(FINISH, [saleId, requestedAt]);
      const now = await readSaleRefund(saleId, pool);
      if (now === null) return 1; // a standby that lacks it was promoted meanwhile
      // What is left backs off: so does the sale, and others go first.
      if (now.remaining > 0 && now.requestedAt === requestedAt.toISOString())
        health.failed(`sale ${saleId}`, new Error('orders of it cannot be refunded'));
      else health.succeeded(`sale ${saleId}`);
      return 1;
    },
  };
}
