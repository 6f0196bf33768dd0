import { groupBy } from '../kit/group-by.ts';
import { quantity } from '../kit/text.ts';
import {
  type CheckResult,
  type Evidence,
  type Fault,
  isActive,
  type OrderRow,
  type PointsRow,
  tally,
  wasOf,
} from './check.ts';

/** Faults of an order's entries; only the first fault found counts. */
const wrongs = {
  entry: 'not exactly one points entry',
  reversal: 'points that were reversed or revived more or less often than the status says',
  transfer: 'points that were moved to another customer otherwise than the order',
  sum: 'points that do not add up to what the status says',
};

/**
 * P5: orders whose points entries do not match their status, and entries that belong to no order of their customer. An order
 * earns once, by price and quantity; a closed order has one reversal, and its entries add up to 0; an order that had expired and was then paid
 * has one reversal and one revival more; any other has neither. The points of a transferred order are taken from the customer who placed it, whose
 * entries then add up to 0, and given to the other one.
 */
export function points({ postgres }: Evidence): CheckResult {
  const orders = new Map(postgres.orders.map((order) => [order.id, order]));
  const own = postgres.points.filter(({ sourceId, sourceType, userId }) => {
    const order = orders.get(sourceId);
    if (sourceType === 'order') return userId === (order?.transferredFrom ?? order?.userId);
    return order !== undefined && wasOf(order, userId);
  });
  const entries = groupBy(own, ({ sourceId }) => sourceId);
  const found = postgres.orders.map((order) => wrongOf(order, entries.get(order.id) ?? []));
  const ofOrders = Object.entries(wrongs).map(([wrong, words]): Fault => {
    const count = found.filter((other) => other === wrong).length;
    return [count, `${quantity(count, 'order has', 'orders have')} ${words}`];
  });
  const stray = postgres.points.length - own.length;
  const strays = quantity(stray, 'points entry belongs', 'points entries belong');
  return tally(...ofOrders, [stray, `${strays} to no order of that customer`]);
}

function wrongOf(order: OrderRow, entries: readonly PointsRow[]): keyof typeof wrongs | null {
  const of = (type: string): PointsRow[] => entries.filter(({ sourceType }) => sourceType === type);
  const [earned, ...more] = of('order');
  if (earned === undefined || more.length > 0) return 'entry';
  const closings = isActive(order) ? 0 : 1;
  const revivals = of('order-revival').length;
  if (revivals > (['paid', 'refund-due'].includes(order.status) ? 1 : 0)) return 'reversal';
  const reversals = of('order-reversal').length + of('order-revival-reversal').length;
  if (reversals !== revivals + closings) return 'reversal';
  const moved = of('order-transfer').map(({ userId, points }) => `${userId} ${points}`);
  const { transferredFrom, userId } = order;
  const expected = transferredFrom
    ? [`${transferredFrom} ${-earned.points}`, `${userId} ${earned.points}`]
    : [];
  if (moved.sort().join() !== expected.sort().join()) return 'transfer';
  // It may have expired, and been paid, before it was transferred.
  const ofFirst = entries.filter((entry) => entry.userId === transferredFrom);
  if (ofFirst.reduce((total, entry) => total + entry.points, 0) !== 0) return 'transfer';
  const sum = entries.reduce((total, entry) => total + entry.points, 0);
  return earned.points === order.earns && sum === (1 - closings) * earned.points ? null : 'sum';
}
