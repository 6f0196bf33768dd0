/**
 * The invariants of a sale, read past the service: in Postgres at one instant, which may be any, and in Redis once no work is
 * left between the stores. Each violation is one sentence that begins with the promise it breaks:
 * P1 to P5 as in domain/guarantees.ts; P6: no answer turns out to be false.
 */
import type { Redis } from 'ioredis';
import type pg from 'pg';
import type { Ledger, Operation } from './ledger.ts';

export interface Order {
  readonly id: string;
  readonly user: string;
  readonly status: string;
  readonly createdMs: number;
  /** Points entries by their kind. */
  readonly entries: readonly { readonly kind: string; readonly points: number; readonly user: string }[];
  readonly tasks: readonly string[];
  readonly payments: readonly { readonly id: string; readonly result: string }[];
}

interface Sale {
  readonly stock: number;
  readonly sold: number;
  /** Points entries of this sale's customers for orders that do not exist. */
  readonly stray: number;
  readonly orders: readonly Order[];
}

/** One statement, so one instant. */
const SALE = `
  SELECT stock, sold,
    (SELECT count(*)::int FROM points_entries AS p WHERE p.user_id LIKE s.id || '-%'
      AND NOT EXISTS (SELECT FROM orders AS o WHERE o.id::text = p.source_id)) AS stray,
    (SELECT coalesce(json_agg(json_build_object('id', o.id, 'user', o.user_id, 'status', o.status,
      'createdMs', extract(epoch FROM o.created_at) * 1000,
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

/**
 * Violations in Postgres, and of answers that customers had before it was read.
 * @param saleId whose customers are named `<sale>-…`
 */
export async function violationsOf(sql: pg.Pool, saleId: number, ledger: Ledger): Promise<string[]> {
  const before = structuredClone(ledger.operations);
  const sale = (await sql.query<Sale>(SALE, [saleId])).rows[0]!;
  return [
    ...brokenCounts(sale),
    ...sale.orders.flatMap(brokenOrder),
    ...falseAnswers(before, sale.orders),
    ...unexplainedOrders(ledger.operations, sale.orders),
  ];
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
  if (stray > 0) yield `P5: ${stray} points entries for orders that do not exist`;
}

/** Of each status: its points entries, its tasks and the effects of its payments. */
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

/** Points, tasks and payments are those of the order's status, each once; and each surplus payment is owed back once. */
function brokenOrder(order: Order): string[] {
  const kinds = order.entries.map(({ kind }) => kind).sort();
  const surpluses = order.payments.filter(({ result }) => result === 'surplus');
  const owed = surpluses.map(({ id }) => `refund:${order.id}:${id}`);
  const tasks = order.tasks.filter((key) => !owed.includes(key));
  const effects = order.payments.map(({ result }) => result).filter((one) => !/^(none|surplus)$/.test(one));
  const found = [kinds.join(' '), tasks.map((key) => key.split(':')[0]).join(' '), effects.join(' ')];
  const balance = order.entries.reduce((sum, { points }) => sum + points, 0);
  const right =
    STATES[order.status]?.some((state) => state.join() === found.join()) === true &&
    order.tasks.length === tasks.length + owed.length &&
    tasks.every((key) => key.endsWith(`:${order.id}`)) &&
    order.entries.every(({ user }) => user === order.user) &&
    balance === (isActive(order) ? 5 : 0);
  return right
    ? []
    : [`P5: order ${order.id} is ${order.status} with ${balance} points, ${found.join(', ')}`];
}

const isPlaced = ({ action, status }: Operation) => action === 'purchase' && (status ?? 500) < 300;

const isNew = ({ status }: Operation) => status === 201 || status === 202;

/** The answers that each request may have. */
const ANSWERS: Record<Operation['action'], RegExp> = {
  purchase: /^(null|200|201|202|409 sold-out|503 (busy|unknown-outcome))$/,
  cancel: /^(null|200|409 invalid-transition|503 (busy|unknown-outcome))$/,
  pay: /^(null|200|503 (busy|unknown-outcome))$/,
  expire: /^null$/,
  restock: /^(null|200|409 (below-sold|invalid-transition)|503 (busy|unknown-outcome))$/,
};

/** Answers that the orders contradict. */
export function falseAnswers(operations: readonly Operation[], orders: readonly Order[]): string[] {
  const byId = new Map(orders.map((order) => [order.id, order]));
  return byUser(operations).flatMap(([userId, own]) => [
    ...falseTo(userId, own, byId),
    ...deniedToOwner(userId, own),
  ]);
}

function* falseTo(
  userId: string,
  operations: readonly Operation[],
  orders: ReadonlyMap<string, Order>,
): Generator<string> {
  const ids = operations.filter(isPlaced).map(({ orderId }) => orderId!);
  for (const id of new Set(ids)) {
    if (orders.get(id)?.user !== userId) yield `P2: ${userId} has no order ${id}`;
    const placed = count(operations, (one) => isNew(one) && one.orderId === id);
    if (placed > 1) yield `P3: ${userId} placed order ${id} ${placed} times`;
  }
  const keeps = !operations.some(({ action }) => action === 'cancel' || action === 'expire');
  if (keeps && new Set(ids).size > 1) yield `P3: ${userId} has the answers of ${new Set(ids).size} orders`;
  for (const { action, status, problem, orderId, notificationId, result } of operations) {
    const order = orders.get(orderId!);
    if (!ANSWERS[action].test(`${status} ${problem}`.trim()))
      yield `P6: ${userId}, ${action}: ${status} ${problem}`;
    if (status !== 200) continue;
    if (action === 'cancel' && !['cancelled', 'refund-due'].includes(order?.status ?? 'missing'))
      yield `order ${orderId} was cancelled, and is ${order?.status}`;
    if (action !== 'pay') continue;
    if (order?.status !== result) yield `payment of ${orderId} made it ${result}, and it is ${order?.status}`;
    if (order?.payments.some(({ id }) => id === notificationId) !== true)
      yield `payment ${notificationId} of ${orderId} was acknowledged, and is missing`;
  }
}

/** From an answer that names an order until its customer gives it up, no other answer may deny it. */
function* deniedToOwner(userId: string, operations: readonly Operation[]): Generator<string> {
  for (const placed of operations.filter(isPlaced)) {
    const givenUp = operations.filter(
      ({ action, orderId }) => (action === 'cancel' || action === 'expire') && orderId === placed.orderId,
    );
    const untilMs = Math.min(Number.POSITIVE_INFINITY, ...givenUp.map(({ invokedMs }) => invokedMs));
    for (const { action, status, problem, invokedMs, completedMs } of operations)
      if (action === 'purchase' && status === 409 && invokedMs > placed.completedMs && completedMs < untilMs)
        yield `P3: ${userId} has order ${placed.orderId}, and was answered ${problem}`;
  }
}

/** Within the `Retry-After` of an unknown outcome, it becomes known: a later repeat has the final answer. */
const UNKNOWN_MS = 4_000;

/** Orders of customers whose attempts were all answered otherwise. */
export function unexplainedOrders(operations: readonly Operation[], orders: readonly Order[]): string[] {
  const customers = new Map(byUser(operations));
  return orders.flatMap(({ id, user, status, createdMs }) => {
    const purchases = (customers.get(user) ?? []).filter(({ action }) => action === 'purchase');
    if (purchases.some((one) => one.status === null)) return [];
    const mentions = purchases.filter(({ orderId }) => orderId === id);
    if (mentions.some(isNew)) return [];
    const unknown = mentions.find(({ problem }) => problem === 'unknown-outcome');
    if (unknown === undefined)
      return [
        `P6: ${user}: order ${id} (${status}) was placed, and every attempt was answered otherwise: ${purchases.map(answerOf).join(', ')}`,
      ];
    const denied = purchases.find(
      (one) =>
        one.status === 409 && one.invokedMs > unknown.completedMs + UNKNOWN_MS && one.completedMs < createdMs,
    );
    return denied === undefined
      ? []
      : [`P6: ${user}: order ${id} was placed after a repeat had been answered ${denied.problem}`];
  });
}

const answerOf = ({ status, problem, orderId }: Operation) =>
  [status, problem, orderId].filter(Boolean).join(' ');

function byUser(operations: readonly Operation[]): (readonly [string, readonly Operation[]])[] {
  const users = [...new Set(operations.map(({ userId }) => userId))];
  return users.map((userId) => [userId, operations.filter((operation) => operation.userId === userId)]);
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

/** Changes of a sale that Postgres has and Redis does not have yet. */
export async function unpublished(sql: pg.Pool, saleId: number): Promise<number> {
  const count = 'SELECT count(*)::int AS n FROM mirror_outbox WHERE sale_id = $1';
  return (await sql.query<{ n: number }>(count, [saleId])).rows[0]!.n;
}

/** @returns what is left between the stores, a sentence each. @param redis null for a strategy that does not use it */
export async function pendingWork(sql: pg.Pool, redis: Redis | null, saleId: number): Promise<string[]> {
  const { rows } = await sql.query<{ stock: number; sold: number; epoch: number | null }>(
    'SELECT stock, sold, mirror_epoch AS epoch FROM sales WHERE id = $1',
    [saleId],
  );
  const { stock, sold, epoch } = rows[0]!;
  const changes = await unpublished(sql, saleId);
  const broken = changes === 0 ? [] : [`P4: ${changes} changes are not published to Redis`];
  if (redis === null) return broken;
  const { free, reservations, buyers } = await readRedis(redis, saleId);
  if (reservations !== 0) broken.push(`P4: ${reservations} reservations are left`);
  // A copy of another epoch decides nothing: the next attempt loads the sale.
  const loadedIn = await redis.hget(`stampede:{sale:${saleId}}:state`, 'epoch');
  if (epoch !== null && loadedIn !== String(epoch)) return broken;
  if (free !== stock - sold) broken.push(`P4: Redis has ${free} units free, Postgres ${stock - sold}`);
  if (buyers !== sold) broken.push(`P4: Redis has ${buyers} buyers, Postgres ${sold}`);
  return broken;
}
