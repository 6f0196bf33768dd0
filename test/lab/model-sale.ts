/** A model of a correct sale: whatever is done to it, its answers, rows and counters agree. */
import fc from 'fast-check';
import type { OrderRow, PaymentRow, PointsRow, TaskRow } from '../../lab/audit/check.ts';
import { isActive, unitsOf, wasOf } from '../../lab/audit/check.ts';
import { type AttemptOutcome, type HistoryRecord, resultOf } from '../../lab/history.ts';

export interface Order extends OrderRow {
  saleId: number;
  userId: string;
  transferredFrom?: string;
  status: string;
  quantity: number;
  earns: number;
}

/** A sale as mutable data, to plant faults in. */
export interface World {
  history: HistoryRecord[];
  orders: Order[];
  points: PointsRow[];
  payments: PaymentRow[];
  tasks: TaskRow[];
  sale: { id: number; stock: number; sold: number };
  unpublished: number;
  heldUnits: number;
  remaining: number | null;
  held: number | null;
  unsettled: number;
}

const saleId = 7;
/** Points per unit. */
export const earned = 10;

const own = ({ orders }: World): Order[] => orders.filter((order) => order.saleId === saleId);
const freeUnits = (world: World): number => world.sale.stock - unitsOf(active(world));
export const active = (world: World): Order[] => own(world).filter(isActive);
export const closed = (world: World): Order[] => own(world).filter((order) => !isActive(order));

/** @param laterUs delay of the start that its place in the history gives @param asked for units, and what is left of them */
export function record(
  world: World,
  userId: string,
  outcome: AttemptOutcome,
  orderId: string | null,
  laterUs = 0,
  asked: Pick<HistoryRecord, 'units' | 'remaining'> = {},
): void {
  const id = world.history.length;
  const invokedUs = id * 10 + laterUs;
  const silent = outcome === 'unknown';
  world.history.push({
    id,
    op: 'purchase',
    saleId,
    userId,
    invokedUs,
    completedUs: silent ? null : invokedUs + 500,
    result: resultOf[outcome],
    outcome,
    orderId,
    status: silent ? null : 201,
    ...asked,
  });
}

export function addPoints(
  world: World,
  { id, userId }: Pick<Order, 'id' | 'userId'>,
  sourceType: string,
  points: number,
): void {
  world.points.push({ userId, sourceType, sourceId: id, points });
}

export function addPayment(world: World, { id }: Pick<Order, 'id'>, result: string): string {
  const payment = `payment-${world.payments.length}`;
  world.payments.push({ id: payment, orderId: id, result });
  return payment;
}

/** Adds a live or done task. */
export function addTask(
  world: World,
  { id }: Pick<Order, 'id'>,
  kind: string,
  payment: string | null = null,
): void {
  const states = ['waiting', 'queued', 'processing', 'retry', 'done'];
  world.tasks.push({ kind, orderId: id, state: states[world.tasks.length % states.length]!, payment });
}

export function place(world: World, userId: string, quantity = 1): string {
  const ids = { id: `order-${world.orders.length}`, saleId, userId };
  const order = { ...ids, status: 'pending', quantity, earns: earned * quantity };
  world.orders.push(order);
  addPoints(world, order, 'order', order.earns);
  return order.id;
}

/** What an attempt meets besides the stock: nothing, a busy lock, a reply lost before or after the attempt takes effect. */
type Luck = 'fine' | 'busy' | 'lost-before' | 'lost-after';

function attempt(world: World, buyer: number, luck: Luck, units: number): void {
  const userId = `buyer-${buyer}`;
  const existing = world.orders.find((order) => wasOf(order, userId));
  // A customer who buys again after an order was closed has answers with two orders, which the audit counts as an error.
  if (existing !== undefined && (!isActive(existing) || existing.userId !== userId)) return;
  const free = freeUnits(world);
  if (luck === 'busy') record(world, userId, 'busy', null);
  else if (luck === 'lost-before') record(world, userId, 'unknown', null);
  else if (existing === undefined && free === 0) record(world, userId, 'sold-out', null, 0, { units });
  else if (existing === undefined && free < units)
    record(world, userId, 'not-enough-units', null, 0, { units, remaining: free });
  else {
    const orderId = existing?.id ?? place(world, userId, units);
    const answer = existing === undefined ? 'accepted' : 'replayed';
    const isFine = luck === 'fine';
    record(world, userId, isFine ? answer : 'unknown', isFine ? orderId : null, 0, { units });
  }
}

function close(world: World, order: Order, status: string): void {
  if (order.status !== 'pending') return;
  order.status = status;
  addPoints(world, order, 'order-reversal', -order.earns);
}

function pay(world: World, order: Order): void {
  const revived = order.status === 'expired' && order.quantity <= freeUnits(world);
  if (order.status === 'pending' || revived) {
    if (revived) addPoints(world, order, 'order-revival', order.earns);
    order.status = 'paid';
    addPayment(world, order, revived ? 'revived' : 'paid');
    addTask(world, order, 'ship');
    addTask(world, order, 'award');
  } else if (order.status === 'cancelled' || order.status === 'expired') {
    order.status = 'refund-due';
    addTask(world, order, 'refund', addPayment(world, order, 'refund-due'));
  } else addTask(world, order, 'refund', addPayment(world, order, 'surplus'));
}

/** An administrator refunds a paid order. */
function refund(world: World, order: Order): void {
  if (order.status !== 'paid') return;
  const { id } = order;
  const wasRevived = world.points.some((one) => one.sourceId === id && one.sourceType === 'order-revival');
  order.status = 'refund-due';
  addPoints(world, order, wasRevived ? 'order-revival-reversal' : 'order-reversal', -order.earns);
  addTask(world, order, 'refund');
}

/** An administrator passes an order to another customer. */
function transfer(world: World, order: Order): void {
  if (!isActive(order) || order.transferredFrom !== undefined) return;
  addPoints(world, order, 'order-transfer', -order.earns);
  order.transferredFrom = order.userId;
  order.userId = `friend-of-${order.userId}`;
  addPoints(world, order, 'order-transfer', order.earns);
}

/** Sets the counters to match the orders. */
export function recount(world: World): void {
  const units = unitsOf(active(world));
  world.sale.sold = units;
  if (world.remaining !== null) world.remaining = world.sale.stock - units;
  if (world.held !== null) world.held = units;
}

const changes = ['cancelled', 'expired', 'pay', 'refund', 'transfer'] as const;

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 2,
    arbitrary: fc.tuple(
      fc.constant('attempt' as const),
      fc.nat(15),
      fc.constantFrom<Luck>('fine', 'fine', 'fine', 'busy', 'lost-before', 'lost-after'),
      fc.integer({ min: 1, max: 3 }),
    ),
  },
  { weight: 1, arbitrary: fc.tuple(fc.constantFrom(...changes), fc.nat(11)) },
);

/** An attempt by a buyer, or an event of an order, which its index names. */
export type Step =
  | readonly ['attempt', buyer: number, luck: Luck, units?: number]
  | readonly [what: (typeof changes)[number], order: number];

/** A sale after some steps. @param inRedis whether Redis counts its units */
export function saleAfter(stock: number, inRedis: boolean, steps: readonly Step[]): World {
  const counter = inRedis ? 0 : null;
  const world: World = {
    ...{
      history: [],
      orders: [],
      points: [],
      payments: [],
      tasks: [],
      sale: { id: saleId, stock, sold: 0 },
    },
    ...{ unpublished: 0, heldUnits: 0, remaining: counter, held: counter, unsettled: 0 },
  };
  for (const [what, n, luck, units = 1] of steps) {
    const order = world.orders[n];
    if (what === 'attempt') attempt(world, n, luck!, units);
    else if (order === undefined) continue;
    else if (what === 'pay') pay(world, order);
    else if (what === 'refund') refund(world, order);
    else if (what === 'transfer') transfer(world, order);
    else close(world, order, what);
  }
  recount(world);
  return world;
}

/** Sales after random steps: two thirds are attempts, one third other events of an order. */
export const worlds = fc
  .record({ stock: fc.nat(12), inRedis: fc.boolean(), steps: fc.array(step, { maxLength: 60, size: 'max' }) })
  .map(({ stock, inRedis, steps }) => saleAfter(stock, inRedis, steps));

/** What can happen to an order: the final ones are pending, paid, cancelled, expired, revived and transferred, and to be refunded. */
export const goodSale = (): World =>
  saleAfter(8, true, [
    ...[0, 1, 2, 3, 4, 5].map((buyer) => ['attempt', buyer, 'fine'] as const),
    ['attempt', 6, 'lost-after'],
    ['attempt', 7, 'lost-before'],
    ['attempt', 7, 'busy'],
    ['attempt', 7, 'fine'],
    ['attempt', 0, 'fine'],
    ['attempt', 8, 'fine'],
    ['pay', 1],
    ['pay', 1],
    ['cancelled', 2],
    ['expired', 3],
    ['expired', 4],
    ['pay', 4],
    ['transfer', 4],
    ['cancelled', 5],
    ['pay', 5],
  ]);
