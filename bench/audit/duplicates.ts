import { quantity } from '../kit/text.ts';
import { type CheckResult, counted, type Evidence, listed } from './check.ts';

/** P3: active orders beyond one for a (sale, user), and customers with answers that name two orders. */
export function duplicates({ history, active }: Evidence): CheckResult {
  const surplus = active.length - new Set(active.map(({ userId }) => userId)).size;

  const told = new Map<string, string>();
  const toldTwo = new Set<string>();
  for (const { result, orderId, saleId, userId } of history) {
    if (result !== 'ok' || orderId === null) continue;
    const key = `${saleId} ${userId}`;
    const earlier = told.get(key);
    if (earlier === undefined) told.set(key, orderId);
    else if (earlier !== orderId) toldTwo.add(key);
  }
  const findings = [
    surplus > 0 ? `${quantity(surplus, 'active order')} beyond one per customer` : '',
    toldTwo.size > 0
      ? `${quantity(toldTwo.size, 'customer was', 'customers were')} given two different orders`
      : '',
  ];
  return counted(surplus + toldTwo.size, listed(findings));
}
