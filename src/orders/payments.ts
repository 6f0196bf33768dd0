/**
 * Payment notifications: repeated, concurrent and late ones have one effect.
 *
 *   notification ──known id──▶ the first effect again, or conflict when order or amount differ
 *        └──new──▶ the order, its row locked ──pending──▶ paid; tasks ship it and award its points
 *                       │ other amount: rejected     ├──paid──▶ nothing more
 *                       │ no such order: rejected    ├──expired──a unit is free, the customer has no other order──▶ paid
 *                       ▼                            │              └──otherwise──▶ refund-due, with a task
 *                  nothing is written                ├──cancelled──▶ refund-due, the same way
 *                                                    └──refund-due──▶ nothing more
 *
 * All of it is one transaction, which also inserts the notification: an acknowledged notification has taken effect. Where Redis
 * decides, the unit of an expired order is taken there first, because a unit that is free in Postgres may be reserved. While
 * Redis is unavailable, Postgres alone decides; with CONFIRM=accepted the answer is busy, because the unit may belong to a 202.
 */
import type pg from 'pg';
import type { Order, OrderStatus } from '../domain/order.ts';
import type { Instruments } from '../metrics/instruments.ts';
import type { OutboxRelay } from '../store/outbox-relay.ts';
import { addTask } from '../store/postgres/add-task.ts';
import { addAuditEvent } from '../store/postgres/audit-log.ts';
import { afterWrite, classifyPostgresError, UNREAD } from '../store/postgres/failures.ts';
import { ACTIVE, type OrderTable } from '../store/postgres/orders.ts';
import { inTransaction, type PostgresStore, retried } from '../store/postgres/pool.ts';
import type { SaleTable } from '../store/postgres/sales.ts';

export interface Notification {
  readonly notificationId: string;
  readonly orderId: string;
  readonly amountCents: number;
  /** Who reported it, for the audit log. */
  readonly actor?: string;
}

export type PaymentResult =
  | { readonly kind: 'done'; readonly order: Order }
  | { readonly kind: 'unknown-order' }
  | { readonly kind: 'amount-mismatch' }
  /** The same id was used before, for another order or amount. */
  | { readonly kind: 'conflict' }
  /** Nothing was changed; repeat the notification. */
  | { readonly kind: 'busy'; readonly reason: string }
  /** The payment took effect, but the order cannot be read. */
  | { readonly kind: 'unknown'; readonly reason: string };

export interface PaymentsContext {
  readonly postgres: PostgresStore;
  readonly orders: OrderTable;
  readonly sales: SaleTable;
  /** Null for a strategy that decides in Postgres. */
  readonly outbox: OutboxRelay | null;
  readonly confirm: 'durable' | 'accepted';
  readonly instruments: Instruments;
  readonly onError: (doing: string, error: unknown) => void;
  /** Logs what an operator should look at. */
  readonly warn: (message: string, details: object) => void;
}

export interface Payments {
  /** Processes one notification. Idempotent. @throws what Postgres throws */
  notify(notification: Notification): Promise<PaymentResult>;
}

interface Row {
  readonly saleId: number;
  readonly userId: string;
  readonly status: OrderStatus;
  readonly priceCents: number;
  readonly points: number;
}

type Effect = 'paid' | 'revived' | 'refund-due' | 'none';
type Decision = Exclude<PaymentResult, { kind: 'done' }> | { readonly kind: 'done'; readonly effect: Effect };

export function createPayments(context: PaymentsContext): Payments {
  const { postgres, orders, outbox, confirm, instruments } = context;

  async function decide(client: pg.PoolClient, given: Notification, unit: MirrorUnit): Promise<Decision> {
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
    if (amountCents !== order.priceCents) {
      const details = { ...given, expectedCents: order.priceCents };
      context.warn('Payment notification with a wrong amount: nothing was changed', details);
      return { kind: 'amount-mismatch' };
    }
    const effect = await apply(client, given, order, unit);
    if (effect === 'busy') return { kind: 'busy', reason: 'redis-unreachable' };
    await client.query(
      'INSERT INTO payment_notifications (id, order_id, amount_cents, result) VALUES ($1, $2, $3, $4)',
      [notificationId, orderId, amountCents, effect],
    );
    const action = effect === 'none' ? 'payment.repeated' : `payment.${effect}`;
    const { actor = 'service' } = given;
    await addAuditEvent(client, {
      actor,
      action,
      subject: `order ${orderId}`,
      details: { notificationId, amountCents },
    });
    return { kind: 'done', effect };
  }

  async function apply(
    client: pg.PoolClient,
    given: Notification,
    order: Row,
    unit: MirrorUnit,
  ): Promise<Effect | 'busy'> {
    const { orderId } = given;
    const { status } = order;
    if (status === 'paid' || status === 'refund-due') return 'none';
    if (status === 'pending') {
      await client.query(
        `UPDATE orders SET status = 'paid', paid_at = clock_timestamp() WHERE id = $1 AND status = 'pending'`,
        [orderId],
      );
      await addTasks(client, orderId, order);
      return 'paid';
    }
    const isFree = status === 'expired' && (await takeUnit(order, unit));
    if (isFree === 'busy') return 'busy';
    if (isFree && (await revive(client, orderId, order, unit))) {
      await addTasks(client, orderId, order);
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

  /** Takes a free unit in Redis for an order that is about to be revived. @returns false when none is free there */
  async function takeUnit({ saleId }: Row, unit: MirrorUnit): Promise<boolean | 'busy'> {
    if (outbox === null) return true;
    const taken = await outbox.mirror.restock(saleId, -1).catch((error) => {
      context.onError('take-unit', error);
      return null;
    });
    if (taken === null && confirm === 'accepted') return 'busy';
    if (taken) unit.takenFrom = saleId;
    unit.change = taken ? 'record' : 'take';
    return taken !== 0;
  }

  /** Prepares Redis to revive an expired order: loads the sale, and publishes that the order's own unit was released. */
  async function prepareMirror({ mirror, publish }: OutboxRelay, { orderId, saleId }: Order): Promise<void> {
    try {
      if ((await mirror.snapshot(saleId)) === null) {
        const sale = await context.sales.get(saleId);
        if (sale !== null) await mirror.load(sale);
      }
    } catch (error) {
      context.onError('load-sale', error);
    }
    await publish([orderId]);
  }

  /** Returns a unit that was taken but not used. If Redis does not receive it, the reaper repairs the sale. */
  async function returnUnit(saleId: number): Promise<void> {
    await outbox?.mirror.restock(saleId, 1).catch((error) => context.onError('return-unit', error));
  }

  async function attempt(given: Notification): Promise<Decision> {
    const unit: MirrorUnit = { takenFrom: null, change: null };
    let isUsed = false;
    // Before the transaction, which would otherwise wait for a second connection.
    const order = outbox === null ? null : await orders.get(given.orderId);
    if (outbox !== null && order?.status === 'expired') await prepareMirror(outbox, order);
    try {
      return await inTransaction(postgres.pool, async (client) => {
        const value = await decide(client, given, unit);
        isUsed = value.kind === 'done' && value.effect === 'revived';
        return { commit: value.kind === 'done', value };
      });
    } catch (error) {
      isUsed &&= classifyPostgresError(error).kind === 'unknown'; // it may be committed
      throw error;
    } finally {
      if (unit.takenFrom !== null && !isUsed) await returnUnit(unit.takenFrom);
    }
  }

  return {
    async notify(given) {
      let decision: Decision;
      try {
        decision = await retried(() => attempt(given));
      } catch (error) {
        // The same id for two orders at once, or a concurrent new order of the customer: the second try finds it.
        if (classifyPostgresError(error).kind !== 'rejected') throw error;
        decision = await retried(() => attempt(given));
      }
      const { kind } = decision;
      instruments.paymentNotifications.inc({ result: decision.kind === 'done' ? decision.effect : kind });
      if (decision.kind !== 'done') return decision;
      if (decision.effect !== 'none') instruments.transitions.inc({ to: decision.effect });
      if (decision.effect === 'revived') await outbox?.publish([given.orderId]);
      const order = await afterWrite(orders.get(given.orderId));
      return order === UNREAD ? { kind: 'unknown', reason: order } : { kind: 'done', order: order! };
    },
  };
}

/** What one try to revive an order has done in Redis. */
interface MirrorUnit {
  /** The sale from which a unit was taken there; null: none was. */
  takenFrom: number | null;
  /** How the outbox publishes the revival to Redis; null: it does not. */
  change: 'take' | 'record' | null;
}

async function lockOrder(client: pg.PoolClient, orderId: string): Promise<Row | null> {
  const { rows } = await client.query<Row>(
    `SELECT sale_id AS "saleId", user_id AS "userId", status, price_cents AS "priceCents",
       points_earned(price_cents) AS points
     FROM orders WHERE id = $1 FOR UPDATE`,
    [orderId],
  );
  return rows[0] ?? null;
}

/** Adds the tasks that follow from a payment, each once. */
async function addTasks(client: pg.PoolClient, orderId: string, order: Row): Promise<void> {
  const { saleId, userId, points } = order;
  await addTask(client, 'ship', orderId, { orderId, saleId, userId });
  await addTask(client, 'award', orderId, { orderId, userId, points });
}

/**
 * Gives a unit to an expired order.
 * @returns false when none is free, or the customer has another order: nothing was changed
 */
async function revive(
  client: pg.PoolClient,
  orderId: string,
  order: Row,
  { change }: MirrorUnit,
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
       SELECT user_id, 'order-revival', id::text, points_earned(price_cents) FROM revived
     )
     INSERT INTO mirror_outbox (sale_id, change, order_id, user_id)
     SELECT sale_id, $3::text, id, user_id FROM revived WHERE $3 IS NOT NULL`,
    [orderId, saleId, change],
  );
  return true;
}
