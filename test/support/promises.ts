/**
 * What section 1 of the design promises of a sale, looked at past the service: in Postgres at one instant, which may be
 * any, and in Redis when nothing is under way any more. Each promise that is broken is one sentence.
 */
import type { Redis } from 'ioredis';
import type pg from 'pg';
import type { Told } from './customers.ts';

interface Order {
  readonly id: string;
  readonly user: string;
  readonly status: string;
  /** Points entries by their kind. */
  readonly entries: readonly { readonly kind: string; readonly points: number; readonly user: string }[];
  readonly tasks: readonly string[];
  readonly payments: readonly { readonly id: string; readonly result: string }[];
}

interface Sale {
  readonly stock: number;
  readonly sold: number;
  /** Points of customers of this sale for orders that there are not. */
  readonly stray: number;
  readonly orders: readonly Order[];
}

/** One statement, so one instant. */
const SALE = `
  SELECT stock, sold,
    (SELECT count(*)::int FROM points_entries AS p WHERE p.user_id LIKE s.id || '-%'
      AND NOT EXISTS (SELECT FROM orders AS o WHERE o.id::text = p.source_id)) AS stray,
    (SELECT coalesce(json_agg(json_build_object('id', o.id, 'user', o.user_id, 'status', o.status,
      'entries', (SELECT coalesce(json_agg(json_build_object('kind', p.source_type, 'points', p.points, 'user',
        p.user_id)), '[]') FROM points_entries AS p WHERE p.source_id = o.id::text),
      'tasks', (SELECT coalesce(json_agg(t.key ORDER BY t.key), '[]') FROM tasks AS t
        WHERE t.payload->>'orderId' = o.id::text),
      'payments', (SELECT coalesce(json_agg(json_build_object('id', n.id, 'result', n.result)), '[]')
        FROM payment_notifications AS n WHERE n.order_id = o.id))), '[]')
     FROM orders AS o WHERE o.sale_id = s.id) AS orders
  FROM sales AS s WHERE id = $1`;

const isActive = ({ status }: { status: string }) => status === 'pending' || status === 'paid';
const count = <T>(all: readonly T[], is: (one: T) => boolean) => all.filter(is).length;

/** @returns what is broken in Postgres, or was told to customers before and is not so */
export async function brokenInPostgres(
  sql: pg.Pool,
  saleId: number,
  told: readonly Told[],
): Promise<string[]> {
  const toldBefore = structuredClone(told);
  const sale = (await sql.query<Sale>(SALE, [saleId])).rows[0]!;
  const broken = [...brokenCounts(sale), ...sale.orders.flatMap(brokenOrder)];
  const orders = new Map(sale.orders.map((order) => [order.id, order]));
  return [...broken, ...toldBefore.flatMap((customer) => [...brokenTo(customer, orders)])];
}

function* brokenCounts({ stock, sold, stray, orders }: Sale): Generator<string> {
  const active = orders.filter(isActive);
  if (active.length > stock) yield `P1: ${active.length} active orders for a stock of ${stock}`;
  if (sold !== active.length) yield `P1: ${sold} are sold, and ${active.length} orders active`;
  const customers = new Set(active.map(({ user }) => user)).size;
  if (customers !== active.length) yield `P3: ${active.length} active orders of ${customers} customers`;
  const entries = orders.flatMap((order) => order.entries);
  const [closed, again] = ['order-reversal', 'order-revival'].map((kind) =>
    count(entries, (entry) => entry.kind === kind),
  );
  if (sold !== orders.length - closed! + again!)
    yield `units: ${sold} sold of ${orders.length} orders, ${closed} closed, ${again} revived`;
  if (stray > 0) yield `P5: ${stray} points entries for orders that there are not`;
}

/** How often an order of a status was closed, and revived; what it told the outside; what its payments did, all told. */
const STATES: Record<string, readonly (readonly [entries: string, tasks: string, payment: string])[]> = {
  pending: [['order', '', '']],
  paid: [
    ['order', 'award ship', 'paid'],
    ['order order-reversal order-revival', 'award ship', 'revived'],
  ],
  cancelled: [['order order-reversal', '', '']],
  expired: [['order order-reversal', '', '']],
  'refund-due': [['order order-reversal', 'refund', 'refund-due']],
};

/** Points, tasks and payments are those of the order's status, each once. */
function brokenOrder(order: Order): string[] {
  const kinds = order.entries.map(({ kind }) => kind).sort();
  const effects = order.payments.map(({ result }) => result).filter((result) => result !== 'none');
  const found = [kinds.join(' '), order.tasks.map((key) => key.split(':')[0]).join(' '), effects.join(' ')];
  const balance = order.entries.reduce((sum, { points }) => sum + points, 0);
  const right =
    STATES[order.status]?.some((state) => state.join() === found.join()) === true &&
    order.tasks.every((key) => key.endsWith(`:${order.id}`)) &&
    order.entries.every(({ user }) => user === order.user) &&
    balance === (isActive(order) ? 5 : 0);
  return right
    ? []
    : [`P5: order ${order.id} is ${order.status} with ${balance} points, ${found.join(', ')}`];
}

/** What a customer was told is so. */
function* brokenTo(told: Told, orders: ReadonlyMap<string, Order>): Generator<string> {
  const { userId, placed, replayed, cancelled, payments } = told;
  const ids = new Set([...placed, ...replayed]);
  for (const id of ids) {
    if (orders.get(id)?.user !== userId) yield `P2: ${userId} has no order ${id}`;
    if (count(placed, (one) => one === id) > 1) yield `P3: ${userId} placed order ${id} twice`;
  }
  if (told.constant && ids.size > 1) yield `P3: ${userId} was told of ${ids.size} orders`;
  for (const id of cancelled) {
    const status = orders.get(id)?.status ?? 'missing';
    if (!['cancelled', 'refund-due'].includes(status)) yield `order ${id} was cancelled, and is ${status}`;
  }
  for (const { notificationId, orderId, status } of payments) {
    const order = orders.get(orderId);
    if (order?.status !== status) yield `payment of ${orderId} made it ${status}, and it is ${order?.status}`;
    if (order?.payments.some(({ id }) => id === notificationId) !== true)
      yield `payment ${notificationId} of ${orderId} was acknowledged, and is not there`;
  }
  for (const strange of told.strange) yield `P6: ${strange}`;
}

/** What Redis holds of a sale. */
export interface InRedis {
  readonly free: number;
  readonly reservations: number;
  readonly buyers: number;
}

export async function readRedis(redis: Redis, saleId: number): Promise<InRedis> {
  const prefix = `stampede:{sale:${saleId}}`;
  const segments = await redis.hvals(`${prefix}:segments`);
  const counters = segments.length > 0 ? segments : [await redis.hget(`${prefix}:state`, 'remaining')];
  return {
    free: counters.reduce((sum, units) => sum + Number(units), 0),
    reservations: await redis.zcard(`${prefix}:reservations`),
    buyers: await redis.hlen(`${prefix}:buyers`),
  };
}

/** @returns what is left between the stores; nothing is once all is settled */
export async function notSettled(sql: pg.Pool, redis: Redis | null, saleId: number): Promise<string[]> {
  const { rows } = await sql.query<{ stock: number; sold: number; moves: number }>(
    `SELECT stock, sold, (SELECT count(*)::int FROM mirror_outbox WHERE sale_id = s.id) AS moves
     FROM sales AS s WHERE id = $1`,
    [saleId],
  );
  const { stock, sold, moves } = rows[0]!;
  const broken = moves === 0 ? [] : [`P4: Redis has not heard of ${moves} units`];
  if (redis === null) return broken;
  const { free, reservations, buyers } = await readRedis(redis, saleId);
  if (reservations !== 0) broken.push(`P4: ${reservations} reservations are left`);
  if (free !== stock - sold) broken.push(`P4: Redis has ${free} units free, Postgres ${stock - sold}`);
  if (buyers !== sold) broken.push(`P4: Redis knows ${buyers} buyers, Postgres ${sold}`);
  return broken;
}
