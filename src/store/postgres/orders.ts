/** Reads orders. The statements that insert them: insert-orders.ts. */
import type pg from 'pg';
import type { Order, OrderQuery } from '../../domain/order.ts';
import type { VersionedTerms } from '../../domain/sale.ts';
import { inSnapshot, onAllRows, type PostgresStore } from './pool.ts';
import { fromRow } from './rows.ts';

/** An order is active while it holds its units. The partial unique index names the same states. */
export const ACTIVE = `status IN ('pending', 'paid')`;

const COLUMNS = `id AS "orderId", sale_id AS "saleId", user_id AS "userId", status, quantity, price_cents AS "priceCents",
  price_cents * quantity AS "amountCents", created_at AS "createdAt", expires_at AS "expiresAt", paid_at AS "paidAt",
  closed_at AS "closedAt"`;
const TERMS = `starts_at AS "startsAt", ends_at AS "endsAt", paused, max_per_order AS "maxPerOrder", price_cents AS "priceCents",
  payment_window_s AS "paymentWindowS", version`;

/**
 * The orders of a customer, through the points, of which each order has an entry, and a transferred one another for its new customer: an
 * index of orders by customer would slow every purchase. An administrator may have awarded points for an "order" with another kind of id.
 */
const WITH_POINTS = `FROM points_entries AS p JOIN orders AS o
  ON o.id = CASE WHEN p.source_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN p.source_id::uuid END AND o.user_id = p.user_id
  WHERE p.source_type IN ('order', 'order-transfer')`;

export type OrderTable = ReturnType<typeof orderTable>;

export interface UnpaidOrders {
  readonly pending: number;
  /** Expired or cancelled. */
  readonly closed: number;
  /** Null: none was closed. */
  readonly lastClosedAt: Date | null;
}

export interface OrderCounts {
  readonly sold: number;
  /** Units of active orders. */
  readonly active: number;
  /** Orders without their one entry, and those with other reversals, less revivals, than one if closed. */
  readonly pointsMissing: number;
}

export interface Buyer {
  readonly userId: string;
  readonly orderId: string;
  readonly quantity: number;
}

/** Buyers per page. */
const PAGE = 1_000;
/** A page of the buyers of a sale. */
const BUYERS = `SELECT user_id AS "userId", id AS "orderId", quantity FROM orders
  WHERE sale_id = $1 AND user_id > $2 AND ${ACTIVE} ORDER BY user_id LIMIT $3`;

export function orderTable(postgres: PostgresStore) {
  const { pool } = postgres;
  return {
    /** @param db a connection whose transaction may have changed it */
    async get(orderId: string, db: Pick<pg.PoolClient, 'query'> = pool) {
      const { rows } = await db.query(`SELECT ${COLUMNS} FROM orders WHERE id = $1`, [orderId]);
      return rows[0] === undefined ? null : fromRow<Order>(rows[0]);
    },
    /** The customer's active order, or else the latest one. */
    async ofUser(saleId: number, userId: string) {
      // No index has the closed orders of a customer: they are found through the points, as in `unpaidOf`.
      const { rows } = await pool.query(
        `SELECT ${COLUMNS} FROM orders WHERE id = coalesce(
           (SELECT id FROM orders WHERE sale_id = $1 AND user_id = $2 AND ${ACTIVE} LIMIT 1),
           (SELECT o.id ${WITH_POINTS} AND o.sale_id = $1 AND p.user_id = $2 ORDER BY o.created_at DESC, o.id DESC LIMIT 1))`,
        [saleId, userId],
      );
      return rows[0] === undefined ? null : fromRow<Order>(rows[0]);
    },
    /** Orders of a sale, in descending order of their ids: newest first, by the clocks of the processes that placed them. */
    async list(saleId: number, { limit, before, status, search }: OrderQuery) {
      const { rows } = await pool.query(
        `SELECT ${COLUMNS} FROM orders WHERE sale_id = $1
           AND ($2::uuid IS NULL OR id < $2) AND ($3::text IS NULL OR status = $3)
           AND ($4::text IS NULL OR strpos(lower(user_id), lower($4)) > 0 OR strpos(id::text, lower($4)) > 0)
         ORDER BY id DESC LIMIT $5`,
        [saleId, before ?? null, status ?? null, search ?? null, limit],
      );
      return rows.map(fromRow<Order>);
    },
    /** A customer's reservations of any sale that were not paid. @param withinMs how long ago they were placed at most, by Postgres's clock */
    async unpaidOf(userId: string, withinMs: number) {
      const { rows } = await pool.query<UnpaidOrders>({
        name: 'unpaid-orders', // each ticket needs it, and planning it costs ten times as much as executing it
        text: `SELECT (count(*) FILTER (WHERE o.status = 'pending'))::int AS pending,
           (count(*) FILTER (WHERE o.status IN ('expired', 'cancelled')))::int AS closed,
           max(o.closed_at) FILTER (WHERE o.status IN ('expired', 'cancelled')) AS "lastClosedAt"
         ${WITH_POINTS} AND p.user_id = $1 AND p.created_at >= now() - $2 * interval '1 millisecond'`,
        values: [userId, withinMs],
      });
      return rows[0]!;
    },
    /** Changes of a sale in the outbox: their units, and the number of the oldest. */
    async pendingChanges(saleId: number) {
      const { rows } = await pool.query<{ units: number; oldest: string | null }>(
        'SELECT coalesce(sum(units), 0)::int AS units, min(id)::text AS oldest FROM mirror_outbox WHERE sale_id = $1',
        [saleId],
      );
      return rows[0]!;
    },
    /** Counts that must agree within Postgres, at one instant. */
    async counts(saleId: number) {
      const text = `SELECT (SELECT sold + oversold FROM sales WHERE id = $1) AS sold, coalesce(sum(quantity) FILTER (WHERE ${ACTIVE}), 0)::int AS active,
           (count(*) FILTER (WHERE earned.n <> 1 OR reversed.n <> (closed_at IS NOT NULL)::int))::int AS "pointsMissing"
         FROM orders
           CROSS JOIN LATERAL (SELECT count(*) AS n FROM points_entries AS p WHERE p.user_id = orders.user_id
             AND p.source_type = CASE WHEN transferred_from IS NULL THEN 'order' ELSE 'order-transfer' END
             AND p.source_id = orders.id::text) AS earned
           CROSS JOIN LATERAL (SELECT coalesce(sum(CASE source_type WHEN 'order-revival' THEN -1 ELSE 1 END), 0) AS n
             FROM points_entries AS p WHERE p.user_id = orders.user_id AND p.source_id = orders.id::text
               AND p.source_type IN ('order-reversal', 'order-revival', 'order-revival-reversal')) AS reversed
         WHERE sale_id = $1`;
      const { rows } = await inSnapshot(pool, (client) => onAllRows<OrderCounts>(client, text, [saleId]));
      return rows[0]!;
    },
    /** In which epoch of Redis each sale was last loaded; one that never was is left out. */
    async loadedIn(saleIds: readonly number[]): Promise<ReadonlyMap<number, number>> {
      const { rows } = await pool.query<{ id: number; epoch: number }>({
        name: 'loaded-in',
        text: 'SELECT id, mirror_epoch AS epoch FROM sales WHERE id = ANY($1::int[]) AND mirror_epoch IS NOT NULL',
        values: [saleIds],
      });
      return new Map(rows.map(({ id, epoch }) => [id, epoch]));
    },
    /** The terms of a sale; null: no such sale. */
    async terms(saleId: number) {
      const { rows } = await pool.query(`SELECT ${TERMS} FROM sales WHERE id = $1`, [saleId]);
      return rows[0] === undefined ? null : fromRow<VersionedTerms>(rows[0]);
    },
    /**
     * Marks a sale as loaded in the epoch `to`. It waits for commits that have locked the sale: later ones fail that were reserved in
     * another epoch. So it does for a stock cut.
     * @param waits also when both are the same epoch
     * @returns false, without effect, when it was loaded in another one than `from` since
     */
    async markLoaded(saleId: number, from: number | null, to: number, waits = false) {
      if (from === to && !waits) return true;
      // It does not wait for a disk or a standby: where the epoch is forgotten, orders that were reserved in it are not committed, and the
      // sale is loaded again.
      const { rowCount } = await pool.query(
        `UPDATE sales SET mirror_epoch = $3 WHERE id = $1 AND mirror_epoch IS NOT DISTINCT FROM $2
         AND set_config('synchronous_commit', 'off', true) = 'off'`,
        [saleId, from, to],
      );
      return rowCount === 1;
    },
    /** The customers of a sale with an active order, in pages; those that are there throughout are among them. */
    async *customers(saleId: number): AsyncGenerator<readonly string[]> {
      for await (const page of buyersOf(pool, saleId)) yield page.map(({ userId }) => userId);
    },
    /**
     * Reads what a load of the mirror needs, at one instant: free units, terms, which of some orders exist, and all buyers, which `use`
     * receives page by page. @throws when there is no such sale
     */
    async snapshot<T>(
      saleId: number,
      orderIds: readonly string[],
      use: (buyers: AsyncIterable<readonly Buyer[]>) => Promise<T>,
    ) {
      const before = postgres.timeline();
      const readWith = async (db: Pick<pg.Pool, 'query'>, { buyers, ...read }: MirrorState) => {
        return { ...read, value: await use(buyersOf(db, saleId, buyers)) };
      };
      const first = await stateOf(pool, saleId, orderIds);
      // One statement sees one instant; more pages need a transaction.
      const read =
        first.buyers.length < PAGE
          ? await readWith(pool, first)
          : await inSnapshot(pool, async (client) => {
              return readWith(client, await stateOf(client, saleId, orderIds));
            });
      // Their reservations are removed, and nothing else would know them if the standby lacked them.
      if (read.known.size > 0) await postgres.replicated(before);
      return read;
    },
  };
}

type MirrorState = Awaited<ReturnType<typeof stateOf>>;

/** What a load of the mirror needs, with the first page of buyers. */
async function stateOf(db: Pick<pg.Pool, 'query'>, saleId: number, orderIds: readonly string[]) {
  type Row = VersionedTerms & { remaining: number; restocks: string[]; known: string[]; buyers: Buyer[] };
  const { rows } = await db.query<Row>(
    `SELECT stock - sold AS remaining, ${TERMS}, ARRAY(SELECT id::text FROM orders WHERE id = ANY($4::uuid[])) AS known,
       ARRAY(SELECT id::text FROM mirror_outbox WHERE sale_id = $1 AND change = 'restock') AS restocks,
       (SELECT coalesce(json_agg(page), '[]') FROM (${BUYERS}) AS page) AS buyers
     FROM sales WHERE id = $1`,
    [saleId, '', PAGE, orderIds],
  );
  const { remaining, restocks, known, buyers, ...terms } = rows[0]!;
  return {
    remaining,
    terms: fromRow<VersionedTerms>(terms),
    /** Numbers of the restocks that `remaining` includes and Redis has not applied. */
    restocks,
    known: new Set(known),
    buyers,
  };
}

/** @param first the first page, if it is known */
async function* buyersOf(
  db: Pick<pg.Pool, 'query'>,
  saleId: number,
  first: readonly Buyer[] | null = null,
): AsyncGenerator<readonly Buyer[]> {
  const after = async (userId: string) => (await db.query<Buyer>(BUYERS, [saleId, userId, PAGE])).rows;
  for (let page = first ?? (await after('')); ; page = await after(page.at(-1)!.userId)) {
    if (page.length > 0) yield page;
    if (page.length < PAGE) return;
  }
}
