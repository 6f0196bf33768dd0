/**
 * The life of an order after it was placed: see domain/order.ts for the states. Each step is one conditional update that names
 * the old state, so one of two callers wins; there is no lock. Unit, customer and points change in the same transaction in
 * Postgres; where Redis decides, the outbox carries the change to it (store/outbox-relay.ts).
 *
 *   pending ──extend──▶ pending        an administrator's, while a payment runs: it expires later
 *      │  (transfer: an administrator passes it to another customer, once, also when it is paid)
 *      ├──cancel──▶ cancelled           the units and the customer are free, a reversal cancels the points
 *      └──expire, by the database's clock──▶ expired, the same way
 *
 * An administrator's refund does the same to a pending order, and makes a paid one refund-due: a task pays back what was paid.
 */

import type pg from 'pg';
import type { LoopHealth } from '../concurrency/loop-health.ts';
import { limits } from '../config/limits.ts';
import type { Order, OrderStatus } from '../domain/order.ts';
import type { CustomerLimit } from '../domain/outcome.ts';
import type { Instruments } from '../metrics/instruments.ts';
import { afterWrite, UNREAD } from '../store/failures/postgres.ts';
import type { OutboxRelay } from '../store/outbox-relay.ts';
import { type ClosedOrder, closeOrders } from '../store/postgres/close-orders.ts';
import { GroupDrain } from '../store/postgres/drain.ts';
import { extendOrder } from '../store/postgres/extend-order.ts';
import { type Effect, type IdempotencyKey, once } from '../store/postgres/idempotency.ts';
import type { OrderTable } from '../store/postgres/orders.ts';
import { type PostgresStore, retried } from '../store/postgres/pool.ts';
import type { LocksFirst } from '../strategies/strategy.ts';
import { type NoTransfer, transferOrder } from './transfer-order.ts';

/** For the metric: an administrator's refund is not that of a payment which came too late. */
export const transitionOf = ({ status }: Pick<Order, 'status'>): string =>
  status === 'refund-due' ? 'refunded' : status;

export interface LifecycleContext {
  readonly postgres: PostgresStore;
  readonly orders: OrderTable;
  /** Null for a strategy that decides in Postgres. */
  readonly outbox: OutboxRelay | null;
  readonly strategy: { readonly locksFirst: LocksFirst };
  readonly confirm: 'durable' | 'accepted';
  /** How long after it was placed an order may stay unpaid at most when it is extended, seconds. */
  readonly maxHoldS: number;
  readonly instruments: Instruments;
  /** The health of the loop that expires orders. */
  readonly health: LoopHealth;
}

export type NotChanged =
  | { readonly kind: 'unknown-order' }
  /** The order is in another status. */
  | { readonly kind: 'invalid-transition'; readonly order: Order };

export type CloseResult =
  | NotChanged
  /** The order as it was then. */
  | { readonly kind: 'closed'; readonly order: Order }
  /** The order may be closed: its status cannot be read. */
  | { readonly kind: 'unknown'; readonly reason: string };

export type ExtendResult =
  | NotChanged
  | { readonly kind: 'extended'; readonly order: Order }
  | { readonly kind: 'beyond-limit'; readonly latest: Date };

export type TransferResult =
  | NotChanged
  /** `unchanged`: the customer has it by an earlier request. */
  | { readonly kind: 'transferred' | 'unchanged'; readonly order: Order }
  | { readonly kind: Exclude<NoTransfer, 'unchanged'> }
  | CustomerLimit
  /** With CONFIRM=accepted the other customer may have a 202 for an order that is not committed yet. */
  | { readonly kind: 'not-supported' };

export interface Refund {
  /** False: the units leave the stock. */
  readonly returnUnits: boolean;
  /** For the audit log. */
  readonly actor: string;
}

export interface Lifecycle {
  /**
   * Cancels a pending order.
   * @param actor for the audit log
   * @param owner only if it is this customer's when it is closed
   * @throws what Postgres throws; the order may be cancelled then
   */
  cancel(orderId: string, actor: string, owner?: string | null): Promise<CloseResult>;
  /**
   * Cancels a pending order, or has a paid one paid back.
   * @param key of a request that has one: it happens once, and a repeat gets the same order
   * @throws KeyReusedError; what Postgres throws, and the order may be closed then
   */
  refund(orderId: string, how: Refund, key?: IdempotencyKey | null): Promise<CloseResult>;
  /**
   * Lets a pending order expire after `seconds` from now, and never earlier than before.
   * @param key as for `refund`
   * @returns `beyond-limit`: that is later than the latest deadline that it may have
   * @throws KeyReusedError; what Postgres throws, and the order may be extended then
   */
  extend(orderId: string, seconds: number, actor: string, key?: IdempotencyKey | null): Promise<ExtendResult>;
  /**
   * Passes an active order to another customer, once: see transfer-order.ts.
   * @param key as for `refund`
   * @throws KeyReusedError; what Postgres throws, and the order may be transferred then
   */
  transfer(
    orderId: string,
    toUserId: string,
    actor: string,
    key?: IdempotencyKey | null,
  ): Promise<TransferResult>;
  /**
   * Expires one batch of pending orders whose payment window has ended; several processes may do so at once. An order that
   * Postgres rejects is retried later (see metrics/loop-health.ts), and does not stop the others.
   * @returns 0 when no order is due that can be tried now
   * @throws what Postgres throws when it is unavailable
   */
  expireDue(): Promise<number>;
}

// now() is constant in a statement; with clock_timestamp(), Postgres would read every pending order.
const DUE = `
  SELECT sale_id AS "saleId", array_agg(id ORDER BY expires_at, id) AS ids, max(expires_at)::text AS "lastAt" FROM (
    SELECT id, sale_id, expires_at FROM orders WHERE status = 'pending' AND expires_at <= now()
      AND sale_id <> ALL($2::int[]) AND id <> ALL($3::uuid[]) AND NOT EXISTS (
        SELECT FROM unnest($4::int[], $5::timestamptz[], $6::uuid[]) AS tried (sale, at, last)
        WHERE sale = sale_id AND (expires_at, orders.id) <= (at, last))
    ORDER BY expires_at, id LIMIT $1
  ) AS due GROUP BY sale_id`;

interface DueOfSale {
  readonly saleId: number;
  /** In the order in which they are due. */
  readonly ids: readonly string[];
  /** When the last of them was due. */
  readonly lastAt: string;
}

/** Tries of one cancellation when the order was found not pending, and then pending. */
const CANCEL_TRIES = 3;

export function createLifecycle(context: LifecycleContext): Lifecycle {
  const { postgres, orders, outbox, strategy, confirm, maxHoldS, instruments, health } = context;
  const { pool } = postgres;

  const isMirrored = outbox !== null;
  const due = new GroupDrain<{ readonly at: string; readonly id: string }>({ health, kind: 'order' });

  /** Closes those that are still pending. */
  async function close(
    orderIds: readonly string[],
    to: 'cancelled' | 'expired',
    actor = 'service',
    owner: string | null = null,
  ): Promise<readonly ClosedOrder[]> {
    const closing = { from: ['pending'], to, returnUnits: true, isMirrored, actor, owner } as const;
    const closed = await retried(() => closeOrders(pool, orderIds, closing));
    instruments.transitions.inc({ to }, closed.length);
    return closed;
  }

  /** Expires orders of one sale: a batch that locks one sale's row never waits for another. @returns how many it expired, or tried */
  async function expire({ saleId, ids, lastAt }: DueOfSale): Promise<number> {
    const last = { at: lastAt, id: ids.at(-1)! };
    const { done, hasFailed } = await due.page(`sale ${saleId}`, ids, last, (some) => close(some, 'expired'));
    await outbox?.publish(done.map(({ id }) => id));
    return done.length + Number(hasFailed);
  }

  /**
   * Changes an order in one transaction, once for a key.
   * @param from the statuses in which it can be changed
   * @param effect its value is null when the order is in another status
   */
  async function change<R>(
    orderId: string,
    from: readonly OrderStatus[],
    key: IdempotencyKey | null,
    effect: (client: pg.PoolClient) => Promise<Effect<R | null>>,
  ): Promise<R | NotChanged> {
    for (let tries = 1; ; tries++) {
      const changed = await retried(() => once(postgres, key, effect));
      if (changed !== null) return changed;
      const before = postgres.timeline();
      const order = await orders.get(orderId);
      if (order === null) return { kind: 'unknown-order' };
      if (from.includes(order.status) && tries < CANCEL_TRIES) continue; // as in `cancel`
      await postgres.replicated(before);
      return { kind: 'invalid-transition', order };
    }
  }

  return {
    async cancel(orderId, actor, owner = null) {
      for (let tries = 1; ; tries++) {
        const closed = await close([orderId], 'cancelled', actor, owner);
        await outbox?.publish(closed.map(({ id }) => id));
        const before = postgres.timeline();
        const order = await afterWrite(orders.get(orderId));
        if (order === UNREAD) return { kind: 'unknown', reason: order };
        if (order === null) return { kind: 'unknown-order' };
        if (closed.length === 1) return { kind: 'closed', order };
        if (owner !== null && order.userId !== owner) return { kind: 'unknown-order' };
        // A pending order was committed between the two statements.
        if (order.status === 'pending' && tries < CANCEL_TRIES) continue;
        await postgres.replicated(before); // an earlier request, whose answer was lost, may have cancelled it
        return { kind: 'invalid-transition', order };
      }
    },
    async refund(orderId, how, key = null) {
      const closing = { from: ['pending', 'paid'], to: 'cancelled', isMirrored, ...how } as const;
      let isRepeat = true;
      const refunded = await change<Order>(orderId, closing.from, key, async (client) => {
        isRepeat = false;
        const closed = await closeOrders(client, [orderId], closing);
        const value = closed.length === 1 ? await orders.get(orderId, client) : null;
        return { commit: value !== null, value };
      });
      if ('kind' in refunded) return refunded;
      if (!isRepeat) instruments.transitions.inc({ to: transitionOf(refunded) });
      await outbox?.publish([orderId]);
      return { kind: 'closed', order: refunded };
    },
    extend: (orderId, seconds, actor, key = null) =>
      change<ExtendResult>(orderId, ['pending'], key, async (client) => {
        const asked = await extendOrder(client, orderId, { seconds, maxHoldS, actor });
        if (asked === null) return { commit: false, value: null };
        if (!asked.isExtended)
          return { commit: false, value: { kind: 'beyond-limit', latest: asked.latest } };
        return { commit: true, value: { kind: 'extended', order: (await orders.get(orderId, client))! } };
      }),
    async transfer(orderId, toUserId, actor, key = null) {
      if (isMirrored && confirm === 'accepted') return { kind: 'not-supported' };
      const how = { toUserId, locksFirst: strategy.locksFirst, isMirrored, actor };
      const result = await change<TransferResult>(orderId, ['pending', 'paid'], key, async (client) => {
        const kind = await transferOrder(client, orderId, how);
        if (kind === null || typeof kind === 'object') return { commit: false, value: kind };
        if (kind !== 'transferred' && kind !== 'unchanged') return { commit: false, value: { kind } };
        return { commit: true, value: { kind, order: (await orders.get(orderId, client))! } };
      });
      if (result.kind === 'transferred') await outbox?.publish([orderId]);
      return result;
    },
    async expireDue() {
      const places = [...due.places].map(([sale, place]) => ({ ...place, sale: sale.split(' ')[1]! }));
      const waiting = health.backingOff('sale');
      const { rows } = await pool.query<DueOfSale>({
        name: 'due-orders',
        text: DUE,
        values: [
          limits.expiryBatch,
          waiting,
          health.backingOff('order'),
          places.map(({ sale }) => sale),
          places.map(({ at }) => at),
          places.map(({ id }) => id),
        ],
      });
      // Behind its place no order of the sale is due: the next page begins with the first one.
      for (const { sale } of places)
        if (!waiting.includes(sale) && !rows.some(({ saleId }) => String(saleId) === sale))
          due.places.delete(`sale ${sale}`);
      let tried = 0;
      for (const ofSale of rows) tried += await expire(ofSale);
      return tried;
    },
  };
}
