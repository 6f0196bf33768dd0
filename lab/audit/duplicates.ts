import { quantity } from '../kit/text.ts';
import { type CheckResult, type Evidence, tally } from './check.ts';

/** P3: active orders beyond one for a (sale, user), and customers with answers that name two orders. */
export function duplicates({ history, active }: Evidence): CheckResult {
  const surplus = active.length - new Set(active.map(({ userId }) => userId)).size;
  const named = new Map<string, string>();
  const withTwo = new Set<string>();
  for (const { result, orderId, userId } of history) {
    if (result !== 'ok' || orderId === null) continue;
    if ((named.get(userId) ?? orderId) !== orderId) withTwo.add(userId);
    else named.set(userId, orderId);
  }
  const customers = quantity(withTwo.size, 'customer was', 'customers were');
  return tally(
    [surplus, `${quantity(surplus, 'active order')} beyond one per customer`],
    [withTwo.size, `${customers} given two different orders`],
  );
}
