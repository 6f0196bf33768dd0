/**
 * Payment notifications: repeated, concurrent and late ones have one effect.
 *
 *   notification ──known id──▶ what it did the first time, or conflict when it says something else now
 *        └──new──▶ the order, its row held ──pending──▶ paid; shipping and points are told (tasks)
 *                       │ other amount: refused      ├──paid──▶ nothing more
 *                       │ no such order: refused     ├──expired──a unit is free, the customer has no other order──▶ paid
 *                       ▼                            │              └──otherwise──▶ refund-due; a task says so
 *                  nothing is written                ├──cancelled──▶ refund-due, the same way
 *                                                    └──refund-due──▶ nothing more
 *
 * All of it is one transaction, and the notification is written in it: what was acknowledged has happened. Where Redis
 * decides, the unit of an order that had expired is taken there first: what Postgres has free may be reserved. While Redis
 * cannot be asked, Postgres alone decides; with CONFIRM=accepted the answer is busy, as the unit may be that of a 202.
 */
import type pg from 'pg';
import type { Order, OrderStatus } from '../domain/order.ts';
import type { Instruments } from '../metrics/instruments.ts';
import { addTask } from '../store/postgres/add-task.ts';
import { afterWrite } from '../store/postgres/failures.ts';
import { ACTIVE, type OrderTable } from '../store/postgres/orders.ts';
import { classifyPostgresError, inTransaction, type PostgresStore, retried } from '../store/postgres/pool.ts';
import { EARNED } from '../store/postgres/purchases.ts';
import type { OutboxRelay } from './outbox-relay.ts';

export interface Notification {
  readonly notificationId: string;
  readonly orderId: string;
  readonly amountCents: number;
}

export type PaymentResult =
  | { readonly kind: 'done'; readonly order: Order }
  | { readonly kind: 'unknown-order' }
  | { readonly kind: 'amount-mismatch'; readonly expectedCents: number }
  /** The same id came before, for another order or amount. */
  | { readonly kind: 'conflict' }
  /** Nothing was changed; the notification is to be repeated. */
  | { readonly kind: 'busy'; readonly reason: string };

export interface PaymentsContext {
  readonly postgres: PostgresStore;
  readonly orders: OrderTable;
  readonly moves: OutboxRelay | null;
  readonly confirm: 'durable' | 'accepted';
  readonly instruments: Instruments;
}

export interface Payments {
  /** Takes one notification. @throws what Postgres throws; repeating it is safe */
  notify(notification: Notification): Promise<PaymentResult>;
}

interface Row {
  readonly saleId: number;
  readonly userId: string;
  readonly status: OrderStatus;
  readonly priceCents: number;
}

type Effect = 'paid' | 'revived' | 'refund-due' | 'none';
type Decision = Exclude<PaymentResult, { kind: 'done' }> | { readonly kind: 'done'; readonly effect: Effect };

export function createPayments(context: PaymentsContext): Payments {
  const { postgres, orders, moves, confirm, instruments } = context;

  async function decide(client: pg.PoolClient, given: Notification, claim: Claim): Promise<Decision> {
    const { notificationId, orderId, amountCents } = given;
    const order = await lockOrder(client, orderId);
    if (order === null) return { kind: 'unknown-order' };
    const before = await client.query<{ order_id: string; amount_cents: number }>(
      'SELECT order_id, amount_cents FROM payment_notifications WHERE id = $1',
      [notificationId],
    );
    const first = before.rows[0];
    if (first !== undefined) {
      const same = first.order_id === orderId && first.amount_cents === amountCents;
      return same ? { kind: 'done', effect: 'none' } : { kind: 'conflict' };
    }
    if (amountCents !== order.priceCents) return { kind: 'amount-mismatch', expectedCents: order.priceCents };
    const effect = await settle(client, given, order, claim);
    if (effect === 'busy') return { kind: 'busy', reason: 'redis-unreachable' };
    await client.query(
      'INSERT INTO payment_notifications (id, order_id, amount_cents, result) VALUES ($1, $2, $3, $4)',
      [notificationId, orderId, amountCents, effect],
    );
    return { kind: 'done', effect };
  }

  async function settle(
    client: pg.PoolClient,
    given: Notification,
    order: Row,
    claim: Claim,
  ): Promise<Effect | 'busy'> {
    const { orderId } = given;
    const { status } = order;
    if (status === 'paid' || status === 'refund-due') return 'none';
    if (status === 'pending') {
      await client.query(
        `UPDATE orders SET status = 'paid', paid_at = clock_timestamp() WHERE id = $1 AND status = 'pending'`,
        [orderId],
      );
      await tellOutside(client, orderId, order);
      return 'paid';
    }
    const isFree = status === 'expired' && (await takeUnit(order, claim));
    if (isFree === 'busy') return 'busy';
    if (isFree && (await revive(client, orderId, order, claim))) {
      await tellOutside(client, orderId, order);
      return 'revived';
    }
    await client.query(`UPDATE orders SET status = 'refund-due' WHERE id = $1 AND status = $2`, [
      orderId,
      status,
    ]);
    const { notificationId, amountCents } = given;
    await addTask(client, 'refund', orderId, {
      orderId,
      userId: order.userId,
      amountCents,
      paymentNotificationId: notificationId,
    });
    return 'refund-due';
  }

  /** Takes a unit in Redis. @returns false when none is free there */
  async function takeUnit({ saleId }: Row, claim: Claim): Promise<boolean | 'busy'> {
    if (moves === null) return true;
    const taken = await moves.take(saleId);
    if (taken === null && confirm === 'accepted') return 'busy';
    if (taken) claim.saleId = saleId;
    claim.direction = taken ? 'taken' : 'out';
    return taken !== false;
  }

  async function attempt(given: Notification): Promise<Decision> {
    const claim: Claim = { saleId: null, direction: null };
    let isUsed = false;
    const order = moves === null ? null : await orders.get(given.orderId);
    if (moves !== null && order?.status === 'expired') {
      // Not from within the transaction, which would wait for a second connection.
      await moves.load(order.saleId);
      await moves.tell([given.orderId]); // that the order's own unit came back
    }
    try {
      return await inTransaction(postgres.pool, async (client) => {
        const value = await decide(client, given, claim);
        isUsed = value.kind === 'done' && value.effect === 'revived';
        return { commit: value.kind === 'done', value };
      });
    } catch (error) {
      isUsed &&= isUnknown(error);
      throw error;
    } finally {
      if (claim.saleId !== null && !isUsed) await moves?.putBack(claim.saleId);
    }
  }

  return {
    async notify(given) {
      let decision: Decision;
      try {
        decision = await retried(() => attempt(given));
      } catch (error) {
        // The same id for two orders at once, or the customer bought again in this moment: the next look finds it.
        if (classifyPostgresError(error).kind !== 'refused') throw error;
        decision = await retried(() => attempt(given));
      }
      if (decision.kind !== 'done') return decision;
      if (decision.effect !== 'none') instruments.transitions.inc({ to: decision.effect });
      if (decision.effect === 'revived') await moves?.tell([given.orderId]);
      return { kind: 'done', order: (await afterWrite(orders.get(given.orderId)))! };
    },
  };
}

/** What one try to revive an order has done in Redis. */
interface Claim {
  /** Of which a unit was taken there; null: of none. */
  saleId: number | null;
  /** How Redis is told of the revival; null: it is not told. */
  direction: 'out' | 'taken' | null;
}

/** Whether it may have been committed. */
function isUnknown(error: unknown): boolean {
  try {
    return classifyPostgresError(error).kind === 'unknown';
  } catch {
    return false;
  }
}

async function lockOrder(client: pg.PoolClient, orderId: string): Promise<Row | null> {
  const { rows } = await client.query<Row>(
    `SELECT sale_id AS "saleId", user_id AS "userId", status, price_cents AS "priceCents"
     FROM orders WHERE id = $1 FOR UPDATE`,
    [orderId],
  );
  return rows[0] ?? null;
}

/** What happens outside when an order was paid; a task each, once. */
async function tellOutside(client: pg.PoolClient, orderId: string, order: Row): Promise<void> {
  const { saleId, userId, priceCents } = order;
  const points = Math.max(1, Math.trunc(priceCents / 100)); // EARNED
  await addTask(client, 'ship', orderId, { orderId, saleId, userId });
  await addTask(client, 'award', orderId, { orderId, userId, points });
}

/**
 * Takes a unit again for an order that had expired.
 * @returns false when none is free, or the customer has another order: nothing was changed
 */
async function revive(
  client: pg.PoolClient,
  orderId: string,
  order: Row,
  { direction }: Claim,
): Promise<boolean> {
  const { saleId, userId } = order;
  const other = await client.query(`SELECT FROM orders WHERE sale_id = $1 AND user_id = $2 AND ${ACTIVE}`, [
    saleId,
    userId,
  ]);
  if (other.rowCount !== 0) return false;
  const taken = await client.query(
    'UPDATE sales SET sold = sold + 1, version = version + 1 WHERE id = $1 AND sold < stock',
    [saleId],
  );
  if (taken.rowCount !== 1) return false;
  await client.query(
    `WITH revived AS (
       UPDATE orders SET status = 'paid', paid_at = clock_timestamp(), closed_at = NULL
       WHERE id = $1 AND status = 'expired' RETURNING id, sale_id, user_id, price_cents
     ), unit AS (
       SELECT sale_id, unit FROM stock_units WHERE sale_id = $2 AND order_id IS NULL
       ORDER BY unit LIMIT 1 FOR UPDATE SKIP LOCKED
     ), given AS (
       UPDATE stock_units AS s SET order_id = $1 FROM unit WHERE (s.sale_id, s.unit) = (unit.sale_id, unit.unit)
     ), earned AS (
       INSERT INTO points_entries (user_id, source_type, source_id, points)
       SELECT user_id, 'order-revival', id::text, ${EARNED} FROM revived
     )
     INSERT INTO unit_moves (order_id, sale_id, user_id, direction)
     SELECT id, sale_id, user_id, $3::text FROM revived WHERE $3 IS NOT NULL`,
    [orderId, saleId, direction],
  );
  return true;
}
