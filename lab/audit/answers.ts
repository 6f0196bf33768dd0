import type { HistoryRecord } from '../history.ts';
import { groupBy } from '../kit/group-by.ts';
import { quantity } from '../kit/text.ts';
import { type CheckResult, type Evidence, isActive, type OrderRow, tally, wasOf } from './check.ts';

/** An unknown outcome becomes known within its `Retry-After`: a later repeat has the final answer. */
const UNKNOWN_US = 4_000_000;

const wrongs = {
  twice: ['order was placed by two answers', 'orders were placed by two answers'],
  denied: ['customer with an order was refused', 'customers with an order were refused'],
  unexplained: [
    'order exists that no answer to its customer explains',
    'orders exist that no answer to their customers explains',
  ],
  split: ['order has another quantity than its answer', 'orders have other quantities than their answers'],
  undone: ['cancellation was acknowledged and undone', 'cancellations were acknowledged and undone'],
  unpaid: ['payment was acknowledged and did nothing', 'payments were acknowledged and did nothing'],
} as const;
type Wrong = keyof typeof wrongs;

/**
 * P6: no answer turns out to be false. Counts answers to a customer that contradict one another, or the fate of the order that
 * they name. `phantom` counts orders of customers without any answer that could name an order, and `duplicates` two active
 * orders of a customer.
 */
export function answers({ history, postgres, active, closed }: Evidence): CheckResult {
  const ordersOf = groupBy([...active, ...closed], ({ userId }) => userId);
  const transferred = [...active, ...closed].filter(({ transferredFrom }) => transferredFrom);
  const paidBy = new Set(postgres.payments.map(({ id, orderId }) => `${orderId} ${id}`));
  const closings = groupBy(
    history.filter(({ op }) => op === 'cancel' || op === 'expire'),
    ({ orderId }) => orderId,
  );
  const found = [...groupBy(history, ({ userId }) => userId)].flatMap(([userId, own]) => {
    const orders = ordersOf.get(userId) ?? [];
    const earlier = transferred.filter((order) => wasOf(order, userId));
    return [...ofPurchases(own, orders, closings), ...ofChanges(own, [...orders, ...earlier], paidBy)];
  });
  const about = groupBy(found, ([wrong]) => wrong);
  return tally(
    ...Object.entries(wrongs).map(([wrong, [one, many]]) => {
      const all = about.get(wrong as Wrong) ?? [];
      return [all.length, `${quantity(all.length, one, many)}: ${all[0]?.[1]}`] as const;
    }),
  );
}

/** What a customer asked and was answered, with times in seconds. */
export function storyOf(own: readonly HistoryRecord[]): string {
  const at = (us: number | null) => (us === null ? '' : ((us - own[0]!.invokedUs) / 1e6).toFixed(3));
  const texts = own.map(
    ({ op, outcome, orderId, invokedUs, completedUs }) =>
      `${op} ${at(invokedUs)}–${at(completedUs)} ${outcome}${orderId === null ? '' : ` ${orderId}`}`,
  );
  return texts.join('; ');
}

type Found = readonly [Wrong, what: string];

/** The requests that may have closed each order, of any customer: a transferred order has had two. */
type Closings = ReadonlyMap<string | null, readonly HistoryRecord[]>;

function* ofPurchases(
  own: readonly HistoryRecord[],
  orders: readonly OrderRow[],
  closings: Closings,
): Generator<Found> {
  const purchases = own.filter(({ op }) => op === 'purchase');
  for (const order of orders) {
    const { id, userId } = order;
    const named = purchases.filter(({ orderId }) => orderId === id);
    const accepted = named.filter(({ outcome }) => outcome === 'accepted');
    const asked = accepted[0]?.units ?? order.quantity;
    if (asked !== order.quantity) yield ['split', `${userId}, order ${id}, ${asked} asked for`];
    if (accepted.length > 1) yield ['twice', `${userId}, order ${id}`];
    const closed = closings.get(id) ?? [];
    const untilUs = heldUntilUs(order, closed);
    const refused = denial(order, untilUs, purchases);
    if (refused !== undefined) yield ['denied', `${userId}, order ${id}, ${refused.outcome}`];
    else if (!isExplained(order, closed, untilUs, purchases) && !isDuplicate(order, orders, own))
      yield ['unexplained', `${userId}, order ${id}, after ${storyOf(own)}`];
  }
}

const REFUSALS: ReadonlySet<string> = new Set(['sold-out', 'not-enough-units', 'not-open', 'refused']);

/** Since when the customer may be refused; Infinity: an order that is kept; 0: it was closed at a time that the history does not have. */
function heldUntilUs(order: OrderRow, closings: readonly HistoryRecord[]): number {
  const givenUp = closings.filter(({ userId, result }) => userId === order.userId || result !== 'fail');
  if (givenUp.length === 0) return isActive(order) ? Number.POSITIVE_INFINITY : 0;
  return Math.min(...givenUp.map(({ invokedUs }) => invokedUs));
}

/** A refusal after an answer named the order and before the customer gave it up. */
function denial(
  order: OrderRow,
  untilUs: number,
  purchases: readonly HistoryRecord[],
): HistoryRecord | undefined {
  const named = purchases.filter(({ orderId, result }) => orderId === order.id && result === 'ok');
  const sinceUs = Math.min(...named.map(({ completedUs }) => completedUs!));
  return purchases.find(
    ({ outcome, invokedUs, completedUs }) =>
      REFUSALS.has(outcome) && invokedUs > sinceUs && completedUs! < untilUs,
  );
}

/**
 * Whether a purchase was in progress when an order of its customer was closed, and names another one: it may have placed the closed one,
 * without an answer from Redis, and then found the customer's next order.
 * @param closings requests that may have closed orders of this customer
 */
export const isOvertaken = (
  { op, outcome, orderId, invokedUs, completedUs }: HistoryRecord,
  closings: readonly HistoryRecord[],
): boolean =>
  op === 'purchase' &&
  outcome === 'replayed' &&
  closings.some(
    (one) => one.orderId !== orderId && one.invokedUs > invokedUs && one.invokedUs < completedUs!,
  );

function isExplained(
  order: OrderRow,
  closings: readonly HistoryRecord[],
  untilUs: number,
  purchases: readonly HistoryRecord[],
): boolean {
  if (order.transferredFrom || purchases.every(({ result }) => result === 'fail')) return true; // phantom
  if (purchases.some(({ result, orderId }) => result === 'info' && orderId === null)) return true;
  const named = purchases.filter(({ orderId }) => orderId === order.id);
  if (named.some(({ outcome }) => outcome === 'accepted')) return true;
  if (purchases.some((one) => isOvertaken(one, closings))) return true;
  const unknown = named.find(({ result }) => result === 'info');
  if (unknown === undefined) return false;
  const knownUs = unknown.completedUs! + UNKNOWN_US;
  return !purchases.some(
    ({ outcome, invokedUs, completedUs }) =>
      outcome === 'sold-out' && invokedUs > knownUs && completedUs! < untilUs,
  );
}

/** Counted by `duplicates`: two active orders, or two orders named to a customer who gave none up. */
function isDuplicate(order: OrderRow, orders: readonly OrderRow[], own: readonly HistoryRecord[]): boolean {
  if (isActive(order) && orders.filter(isActive).length > 1) return true;
  const named = own.flatMap(({ result, orderId }) => (result === 'ok' ? [orderId] : []));
  return new Set(named).size > 1 && own.every(({ op }) => op === 'purchase');
}

function* ofChanges(
  own: readonly HistoryRecord[],
  orders: readonly OrderRow[],
  paidBy: ReadonlySet<string>,
): Generator<Found> {
  for (const { op, result, userId, orderId, paymentId, orderStatus } of own) {
    if (result !== 'ok' || (op !== 'cancel' && op !== 'pay')) continue;
    const status = orders.find(({ id }) => id === orderId)?.status ?? 'missing';
    const words = `${userId}, order ${orderId} is ${status}`;
    if (op === 'cancel' && status !== 'cancelled' && status !== 'refund-due') yield ['undone', words];
    if (op === 'pay' && (status !== orderStatus || !paidBy.has(`${orderId} ${paymentId}`)))
      yield ['unpaid', words];
  }
}
