/**
 * Payment notifications: repeated, concurrent and late ones have one effect.
 *
 *   notification ──known id──▶ the first effect again, or unmatched (conflict) when order or amount differ
 *        └──new──▶ the order, its row locked ──pending──▶ paid; tasks ship it and award its points
 *                       │ other amount: unmatched    ├──paid──▶ another payment: a task refunds it
 *                       │ no such order: unmatched   ├──expired──the units are free, the customer has no other order and may have it──▶ paid
 *                       ▼                            │              └──otherwise──▶ refund-due, with a task
 *                  recorded as unmatched             ├──cancelled──▶ refund-due, the same way
 *                                                    └──refund-due──▶ another payment: a task refunds it
 *
 * So each payment is kept once, or refunded once; docs/reference/api.md, "Payments", says what is repeated, and what is unmatched. The row of a
 * notification is kept as long as its order; an id that a provider's name was added to, or taken from, is the same id; and a payment of an
 * order of which no effective notification is known (an earlier version deleted it) counts as a repeat. A payment of an order that is
 * reserved and not committed yet is answered busy.
 *
 * All of an effect is one transaction, which also inserts the notification. Where Redis decides, the units and the customer of an expired order
 * are taken there first, in one step (docs/explanation/consistency.md, "From Postgres to Redis: the outbox"). The transaction locks the order's
 * changes in the outbox before: a release that is published after that step would free the units again. Units that a try took and did not use
 * are released through the outbox, unless another try has revived the order with them. While Redis is unavailable, Postgres alone decides; with
 * CONFIRM=accepted the answer is busy, because the units may belong to a 202.
 */
import type pg from 'pg';
import type { Attempt, Order, OrderStatus } from '../domain/order.ts';
import {
  idOf,
  isRepeat,
  type KnownNotification,
  type NotificationName,
} from '../domain/payment-notification.ts';
import type { UnmatchedReason } from '../domain/unmatched-payment.ts';
import type { Instruments } from '../metrics/instruments.ts';
import { afterWrite, classifyPostgresError, isBeyondLimit, UNREAD } from '../store/failures/postgres.ts';
import type { OutboxRelay } from '../store/outbox-relay.ts';
import { addAuditEvent } from '../store/postgres/audit-log.ts';
import { ACTIVE, type OrderTable } from '../store/postgres/orders.ts';
import { inTransaction, type PostgresStore, retried } from '../store/postgres/pool.ts';
import type { SaleTable } from '../store/postgres/sales.ts';
import { addTask } from '../store/postgres/task-table.ts';
import { deleteUnmatched, unmatchedPaymentTable } from '../store/postgres/unmatched-payments.ts';
import type { LocksFirst } from '../strategies/strategy.ts';
import type { UncommittedOrders } from './uncommitted-orders.ts';

export interface Notification extends NotificationName {
  readonly orderId: string;
  readonly amountCents: number;
  /** Who reported it, for the audit log. */
  readonly actor?: string;
}

export type PaymentResult =
  | { readonly kind: 'done'; readonly order: Order }
  /** It changed no order, and is recorded. */
  | { readonly kind: 'unmatched'; readonly reason: UnmatchedReason }
  /** Nothing was changed; repeat the notification. */
  | { readonly kind: 'busy'; readonly reason: 'order-not-committed' | 'redis-unreachable' }
  /** The payment took effect, but the order cannot be read. */
  | { readonly kind: 'unknown'; readonly reason: string };

export interface PaymentsContext {
  readonly postgres: PostgresStore;
  readonly orders: OrderTable;
  readonly sales: SaleTable;
  readonly uncommitted: Pick<UncommittedOrders, 'has'>;
  readonly strategy: { readonly locksFirst: LocksFirst };
  /** Null for a strategy that decides in Postgres. */
  readonly outbox: OutboxRelay | null;
  readonly confirm: 'durable' | 'accepted';
  readonly instruments: Instruments;
  readonly onError: (doing: string, error: unknown) => void;
  /** Logs what an operator should look at. */
  readonly warn: (message: string, details: object) => void;
}

export interface Payments {
  /** Processes one notification. Idempotent. @throws what the stores throw */
  notify(notification: Notification): Promise<PaymentResult>;
}

interface Row {
  readonly saleId: number;
  readonly userId: string;
  readonly status: OrderStatus;
  readonly quantity: number;
  readonly amountCents: number;
  readonly points: number;
}

type Effect = 'paid' | 'revived' | 'refund-due' | 'surplus' | 'none';

/** A notification that was processed before. */
interface Earlier extends KnownNotification {
  readonly orderId: string;
  readonly amountCents: number;
  readonly result: Effect;
}
type Decision =
  | Extract<PaymentResult, { kind: 'busy' }>
  | { readonly kind: 'unmatched'; readonly reason: UnmatchedReason; readonly expectedCents?: number }
  | { readonly kind: 'done'; readonly effect: Effect };

export function createPayments(context: PaymentsContext): Payments {
  const { orders, outbox, instruments } = context;
  return {
    async notify(given) {
      let decision: Decision;
      try {
        decision = await retried(() => attempt(context, given));
      } catch (error) {
        // The same id for two orders at once, or a concurrent new order of the customer: the second try finds it.
        if (classifyPostgresError(error).kind !== 'rejected') throw error;
        decision = await retried(() => attempt(context, given));
      }
      if (decision.kind === 'unmatched') return withoutEffect(context, given, decision);
      instruments.paymentNotifications.inc({
        result: decision.kind === 'done' ? decision.effect : decision.kind,
      });
      if (decision.kind !== 'done') return decision;
      if (decision.effect !== 'none' && decision.effect !== 'surplus')
        instruments.transitions.inc({ to: decision.effect });
      if (decision.effect === 'revived' || decision.effect === 'refund-due')
        await outbox?.publish([given.orderId]);
      const order = await afterWrite(orders.get(given.orderId));
      // The standby that was promoted meanwhile may lack both the order and the payment.
      if (order === UNREAD || order === null) return { kind: 'unknown', reason: UNREAD };
      return { kind: 'done', order };
    },
  };
}

async function decide(
  context: PaymentsContext,
  client: pg.PoolClient,
  given: Notification,
  units: TakenUnits,
): Promise<Decision> {
  const { orderId, amountCents } = given;
  const notificationId = idOf(given);
  const order = await lockOrder(client, orderId);
  if (order === null) return { kind: 'unmatched', reason: 'unknown-order' };
  const { rows: before } = await client.query<Earlier>(
    `SELECT id, provider, order_id AS "orderId", amount_cents AS "amountCents", result FROM payment_notifications
     WHERE id = $1 OR order_id = $2`,
    [notificationId, orderId],
  );
  const ofOrder = before.filter((one) => one.orderId === orderId);
  const repeated = ofOrder.find((earlier) => isRepeat(earlier, given));
  if (repeated?.amountCents === amountCents) {
    await deleteUnmatched(client, given); // recorded by a try that began before the effect
    return { kind: 'done', effect: 'none' };
  }
  if (repeated !== undefined || before.some(({ id }) => id === notificationId))
    return { kind: 'unmatched', reason: 'conflict' };
  if (amountCents !== order.amountCents)
    return { kind: 'unmatched', reason: 'amount-mismatch', expectedCents: order.amountCents };
  const isFirst = ofOrder.every(({ result }) => result === 'none');
  const effect = await apply(context, client, given, order, units, isFirst);
  if (effect === 'busy') return { kind: 'busy', reason: 'redis-unreachable' };
  await deleteUnmatched(client, given);
  await client.query(
    `INSERT INTO payment_notifications (id, order_id, amount_cents, result, provider) VALUES ($1, $2, $3, $4, $5)`,
    [notificationId, orderId, amountCents, effect, given.provider ?? ''],
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
  context: PaymentsContext,
  client: pg.PoolClient,
  given: Notification,
  order: Row,
  units: TakenUnits,
  isFirst: boolean,
): Promise<Effect | 'busy'> {
  const { orderId, amountCents } = given;
  const { status, userId } = order;
  const refund = { orderId, userId, amountCents, paymentNotificationId: idOf(given) };
  if (status === 'paid' || status === 'refund-due') {
    if (isFirst) return 'none';
    await addTask(client, 'refund', orderId, refund, idOf(given));
    return 'surplus';
  }
  if (status === 'pending') {
    await client.query(
      `UPDATE orders SET status = 'paid', paid_at = clock_timestamp() WHERE id = $1 AND status = 'pending'`,
      [orderId],
    );
    await addTasks(client, orderId, order);
    return 'paid';
  }
  const isFree = status === 'expired' && (await takeUnits(context, client, { ...order, orderId }, units));
  if (isFree === 'busy') return 'busy';
  if (isFree && (await revive(client, orderId, order, context.strategy.locksFirst))) {
    if (context.outbox !== null) await publishLater(client, orderId);
    await addTasks(client, orderId, order);
    return 'revived';
  }
  await client.query(`UPDATE orders SET status = 'refund-due' WHERE id = $1 AND status = $2`, [
    orderId,
    status,
  ]);
  await addTask(client, 'refund', orderId, refund);
  if (units.areTaken) await releaseLater(client, orderId);
  return 'refund-due';
}

/** Takes the units in Redis for an order that is about to be revived, and its customer. @returns false when Redis refuses */
async function takeUnits(
  { outbox, confirm, onError }: PaymentsContext,
  client: pg.PoolClient,
  order: Attempt,
  units: TakenUnits,
): Promise<boolean | 'busy'> {
  if (outbox === null) return true;
  await client.query('SELECT FROM mirror_outbox WHERE order_id = $1 FOR UPDATE', [order.orderId]);
  const reply = await outbox.mirror.revive(order).catch((error) => {
    onError('take-units', error);
    return null;
  });
  if (reply === null && confirm === 'accepted') return 'busy';
  units.areTaken = reply === 'taken';
  return reply !== 'refused';
}

/** Prepares Redis to revive an expired order: loads the sale, and publishes that the order's own units were released. */
async function prepareMirror(
  { sales, onError }: PaymentsContext,
  { mirror, publish }: OutboxRelay,
  { orderId, saleId }: Order,
): Promise<void> {
  try {
    if ((await mirror.digest(saleId)).free === null) {
      const sale = await sales.get(saleId);
      if (sale !== null) await mirror.load(sale);
    }
  } catch (error) {
    onError('load-sale', error);
  }
  await publish([orderId]);
}

/** One try. If it fails, and the units that it took cannot be released, the reaper repairs the sale. */
async function attempt(context: PaymentsContext, given: Notification): Promise<Decision> {
  const { postgres, orders, outbox, onError } = context;
  const units: TakenUnits = { areTaken: false };
  // Before the transaction, which would otherwise wait for a second connection.
  const order = outbox === null ? null : await orders.get(given.orderId);
  if (outbox !== null && order?.status === 'expired') await prepareMirror(context, outbox, order);
  try {
    return await inTransaction(postgres.pool, async (client) => {
      const value = await decide(context, client, given, units);
      return { commit: value.kind === 'done', value };
    });
  } catch (error) {
    if (units.areTaken)
      await releaseLater(postgres.pool, given.orderId).catch((error) => onError('release-units', error));
    throw error;
  }
}

/** Records a payment without an effect, unless its order is only not committed yet. */
async function withoutEffect(
  { postgres, uncommitted, instruments, warn }: PaymentsContext,
  given: Notification,
  { reason, ...more }: Extract<Decision, { kind: 'unmatched' }>,
): Promise<PaymentResult> {
  if (reason === 'unknown-order' && (await uncommitted.has(given.orderId, null))) {
    instruments.paymentNotifications.inc({ result: 'busy' });
    return { kind: 'busy', reason: 'order-not-committed' };
  }
  const { actor = 'service' } = given;
  await retried(() => unmatchedPaymentTable(postgres).record({ ...given, actor, reason }));
  instruments.paymentNotifications.inc({ result: reason });
  warn('Payment that changed no order: see GET /payments/unmatched', { ...given, ...more, reason });
  return { kind: 'unmatched', reason };
}

/** Whether one try to revive an order has taken its units in Redis. */
interface TakenUnits {
  areTaken: boolean;
}

async function lockOrder(client: pg.PoolClient, orderId: string): Promise<Row | null> {
  const { rows } = await client.query<Row>(
    `SELECT sale_id AS "saleId", user_id AS "userId", status, quantity, price_cents * quantity AS "amountCents",
       points_earned(price_cents * quantity) AS points
     FROM orders WHERE id = $1 FOR UPDATE`,
    [orderId],
  );
  return rows[0] ?? null;
}

/** Adds the tasks that follow from a payment, each once. */
async function addTasks(client: pg.PoolClient, orderId: string, order: Row): Promise<void> {
  const { saleId, userId, quantity, points } = order;
  await addTask(client, 'ship', orderId, { orderId, saleId, userId, quantity });
  await addTask(client, 'award', orderId, { orderId, userId, points });
}

const revived = (after = '') => `revived AS (
    UPDATE orders SET status = 'paid', paid_at = clock_timestamp(), closed_at = NULL ${after}
    WHERE orders.id = $1 AND status = 'expired' RETURNING orders.id, user_id, price_cents * quantity AS amount_cents
  )`;
const counted = (after = '') => `counted AS (
    UPDATE sales SET sold = sold + $3, version = version + 1 ${after}
    WHERE sales.id = $2 AND sold + $3 <= stock RETURNING sales.id
  )`;
/** @param locking the parts that lock, the second one after the first */
const reviveBy = (...locking: readonly string[]) => `
  WITH ${locking.join(', ')}, unit AS (
    SELECT sale_id, unit FROM stock_units WHERE sale_id = $2 AND order_id IS NULL
    ORDER BY unit LIMIT $3 FOR UPDATE SKIP LOCKED
  ), given AS (
    UPDATE stock_units AS s SET order_id = $1 FROM unit WHERE (s.sale_id, s.unit) = (unit.sale_id, unit.unit)
  ), earned AS (
    INSERT INTO points_entries (user_id, source_type, source_id, points)
    SELECT user_id, 'order-revival', id::text, points_earned(amount_cents) FROM revived
  )
  SELECT FROM counted`;
/** By what is locked first. */
const REVIVE: Readonly<Record<LocksFirst, string>> = {
  sale: reviveBy(counted(), revived('FROM counted')),
  customer: reviveBy(revived(), counted('FROM revived')),
};

/**
 * Gives its units to an expired order.
 * @returns false when too few are free, the customer has another order or as many units as the sale allows, or all orders of the sale were
 *   refunded since: nothing was changed
 */
async function revive(
  client: pg.PoolClient,
  orderId: string,
  { saleId, userId, quantity }: Row,
  first: LocksFirst,
): Promise<boolean> {
  const other = await client.query(
    `SELECT FROM orders WHERE sale_id = $1 AND user_id = $2 AND ${ACTIVE}
     UNION ALL SELECT FROM orders AS o JOIN sale_refunds AS r USING (sale_id) WHERE o.id = $3 AND o.created_at <= r.requested_at`,
    [saleId, userId, orderId],
  );
  if (other.rowCount !== 0) return false;
  await client.query('SAVEPOINT revival');
  const isRevived = await client.query(REVIVE[first], [orderId, saleId, quantity]).then(
    ({ rowCount }) => rowCount === 1,
    (error) => {
      if (isBeyondLimit(error)) return false;
      throw error;
    },
  );
  if (!isRevived) await client.query('ROLLBACK TO SAVEPOINT revival');
  return isRevived;
}

/**
 * Replaces the order's changes in the outbox, which were perhaps published, by one that gives it its units if it has none there. A transfer
 * stays before it: the former customer leaves.
 */
async function publishLater(client: pg.PoolClient, orderId: string): Promise<void> {
  await client.query(`DELETE FROM mirror_outbox WHERE order_id = $1 AND change <> 'transfer'`, [orderId]);
  await client.query(
    `INSERT INTO mirror_outbox (sale_id, change, order_id, user_id, units) SELECT sale_id, 'take', id, user_id, quantity FROM orders WHERE id = $1`,
    [orderId],
  );
}

/** Adds the release of the order's units in Redis to the outbox, unless a try that revived it has committed; waits for one in progress. */
async function releaseLater(db: Pick<pg.PoolClient, 'query'>, orderId: string): Promise<void> {
  await db.query(
    `INSERT INTO mirror_outbox (sale_id, change, order_id, user_id, units)
     SELECT sale_id, 'release', id, user_id, quantity FROM orders WHERE id = $1 AND status <> 'paid' FOR UPDATE`,
    [orderId],
  );
}
