import { quantity } from '../kit/text.ts';
import { type CheckResult, type Evidence, tally } from './check.ts';

/**
 * P3: active orders beyond one per (sale, user), and customers whose answers name two orders although the history does not show
 * that they gave one up.
 */
export function duplicates({ history, active, closed }: Evidence): CheckResult {
  const surplus = active.length - new Set(active.map(({ userId }) => userId)).size;
  // An order that was transferred may be cancelled for its second customer.
  const ownerOf = new Map([...active, ...closed].map(({ id, userId }) => [id, userId]));
  const gaveUp = new Set([
    ...history.flatMap(({ op, userId, orderId }) =>
      op === 'cancel' || op === 'expire' ? [userId, ownerOf.get(orderId ?? '') ?? userId] : [],
    ),
    ...[...active, ...closed].flatMap(({ transferredFrom }) => transferredFrom ?? []),
  ]);
  const named = new Map<string, string>();
  const withTwo = new Set<string>();
  for (const { result, orderId, userId } of history) {
    if (result !== 'ok' || orderId === null || gaveUp.has(userId)) continue;
    if ((named.get(userId) ?? orderId) !== orderId) withTwo.add(userId);
    else named.set(userId, orderId);
  }
  const customers = quantity(withTwo.size, 'customer was', 'customers were');
  return tally(
    [surplus, `${quantity(surplus, 'active order')} beyond one per customer`],
    [withTwo.size, `${customers} given two different orders`],
  );
}
