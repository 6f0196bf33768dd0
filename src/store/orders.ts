/** Orders in Postgres, as they are read. Who writes them: orders/writer.ts and the Postgres strategies. */
import type { Order, OrderStatus } from '../domain/order.ts';
import type { PostgresStore } from './postgres.ts';

/** An order is active while it holds a unit. The partial unique index names the same states. */
export const ACTIVE = `status IN ('pending', 'paid')`;

const COLUMNS = `id, sale_id, user_id, status, price_cents, created_at, expires_at, paid_at, closed_at`;

interface OrderRow {
  readonly id: string;
  readonly sale_id: number;
  readonly user_id: string;
  readonly status: OrderStatus;
  readonly price_cents: number;
  readonly created_at: Date;
  readonly expires_at: Date;
  readonly paid_at: Date | null;
  readonly closed_at: Date | null;
}

export interface OrderTable {
  get(orderId: string): Promise<Order | null>;
  /** The customer's active order, or else the latest one. */
  ofUser(saleId: number, userId: string): Promise<Order | null>;
  /** The active order of each (sale, user) that has one; asked for many at once. */
  activeOf(
    customers: readonly { readonly saleId: number; readonly userId: string }[],
  ): Promise<readonly Order[]>;
  /** Every customer of a sale with an active order, in pages, for rebuilding what Redis lost. */
  buyers(saleId: number, pageSize: number): AsyncIterable<readonly { userId: string; orderId: string }[]>;
}

export function orderTable({ pool }: PostgresStore): OrderTable {
  return {
    async get(orderId) {
      const { rows } = await pool.query<OrderRow>(`SELECT ${COLUMNS} FROM orders WHERE id = $1`, [orderId]);
      return rows[0] === undefined ? null : toOrder(rows[0]);
    },
    async ofUser(saleId, userId) {
      const { rows } = await pool.query<OrderRow>(
        `SELECT ${COLUMNS} FROM orders WHERE sale_id = $1 AND user_id = $2
         ORDER BY (${ACTIVE}) DESC, created_at DESC, id DESC LIMIT 1`,
        [saleId, userId],
      );
      return rows[0] === undefined ? null : toOrder(rows[0]);
    },
    async activeOf(customers) {
      const { rows } = await pool.query<OrderRow>({
        name: 'active-orders',
        // LATERAL … LIMIT 1 leaves the planner one way: a look into the index for each customer. Joined otherwise, the
        // plan that is made while the table is empty reads all orders, and a prepared statement keeps it.
        text: `SELECT o.* FROM unnest($1::int[], $2::text[]) AS c (sale_id, user_id)
               CROSS JOIN LATERAL (
                 SELECT ${COLUMNS} FROM orders
                 WHERE orders.sale_id = c.sale_id AND orders.user_id = c.user_id AND ${ACTIVE} LIMIT 1
               ) AS o`,
        values: [customers.map((c) => c.saleId), customers.map((c) => c.userId)],
      });
      return rows.map(toOrder);
    },
    async *buyers(saleId, pageSize) {
      let after = '';
      for (;;) {
        const { rows } = await pool.query<{ user_id: string; id: string }>(
          `SELECT user_id, id FROM orders WHERE sale_id = $1 AND user_id > $2 AND ${ACTIVE} ORDER BY user_id LIMIT $3`,
          [saleId, after, pageSize],
        );
        const last = rows.at(-1);
        if (last === undefined) return;
        yield rows.map((row) => ({ userId: row.user_id, orderId: row.id }));
        after = last.user_id;
      }
    },
  };
}

function toOrder(row: OrderRow): Order {
  return {
    orderId: row.id,
    saleId: row.sale_id,
    userId: row.user_id,
    status: row.status,
    priceCents: row.price_cents,
    createdAt: row.created_at.toISOString(),
    expiresAt: row.expires_at.toISOString(),
    paidAt: row.paid_at?.toISOString() ?? null,
    closedAt: row.closed_at?.toISOString() ?? null,
  };
}
