import { quantity } from '../kit/text.ts';
import {
  type CheckResult,
  counted,
  type Evidence,
  groupBy,
  isActive,
  listed,
  type OrderRow,
  type PointsRow,
} from './check.ts';

/** What is wrong with an order's entries, the first that is found. */
type Fault = 'entry' | 'reversal' | 'sum';

/**
 * P5: orders whose entries in their customer's points are not those of their status, and entries for orders that do not
 * exist. An order earns once; a closed one has one reversal, and nothing is left of what it earned; a paid one that had
 * expired has one reversal and one revival; any other has neither.
 */
export function points({ postgres }: Evidence): CheckResult {
  const customerOf = new Map(postgres.orders.map(({ id, userId }) => [id, userId]));
  const own = postgres.points.filter(({ sourceId, userId }) => customerOf.get(sourceId) === userId);
  const entries = groupBy(own, ({ sourceId }) => sourceId);
  const faults = postgres.orders
    .map((order) => faultOf(order, entries.get(order.id) ?? []))
    .filter((fault) => fault !== null);
  const stray = postgres.points.length - own.length;
  const say = (fault: Fault, words: string): string => {
    const count = faults.filter((other) => other === fault).length;
    return count === 0 ? '' : `${quantity(count, 'order has', 'orders have')} ${words}`;
  };
  const findings = [
    say('entry', 'not exactly one points entry'),
    say('reversal', 'points that were reversed or revived more or less often than the status says'),
    say('sum', 'points that do not add up to what the status says'),
    stray > 0
      ? `${quantity(stray, 'points entry belongs', 'points entries belong')} to no order of that customer`
      : '',
  ];
  return counted(faults.length + stray, listed(findings));
}

function faultOf(order: OrderRow, entries: readonly PointsRow[]): Fault | null {
  const of = (type: string): PointsRow[] => entries.filter(({ sourceType }) => sourceType === type);
  const [earned, ...more] = of('order');
  if (earned === undefined || more.length > 0) return 'entry';
  const active = isActive(order);
  const reversals = of('order-reversal').length;
  const revivals = of('order-revival').length;
  if (revivals > (order.status === 'paid' ? 1 : 0) || reversals !== revivals + (active ? 0 : 1)) {
    return 'reversal';
  }
  const sum = entries.reduce((total, entry) => total + entry.points, 0);
  return earned.points > 0 && sum === (active ? earned.points : 0) ? null : 'sum';
}
