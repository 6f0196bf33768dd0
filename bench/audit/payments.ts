import { quantity } from '../kit/text.ts';
import { type CheckResult, counted, type Evidence, groupBy, listed } from './check.ts';

/** What one notification of an order has done, by the order's status; in any other status none has done anything. */
const effectsOf: Readonly<Record<string, readonly string[]>> = {
  paid: ['paid', 'revived'],
  'refund-due': ['refund-due'],
};

/**
 * One effect for each payment, however often it was notified: orders that are paid, or to be refunded, without exactly one
 * notification that made them so; others with one that did anything; and notifications for orders that do not exist.
 */
export function payments({ postgres }: Evidence): CheckResult {
  const known = new Set(postgres.orders.map(({ id }) => id));
  const stray = postgres.payments.filter(({ orderId }) => !known.has(orderId)).length;
  const effects = groupBy(
    postgres.payments.filter(({ result }) => result !== 'none'),
    ({ orderId }) => orderId,
  );
  let without = 0;
  let wrong = 0;
  for (const { id, status } of postgres.orders) {
    const possible = effectsOf[status] ?? [];
    const results = (effects.get(id) ?? []).map(({ result }) => result);
    if (results.length === 0) without += possible.length > 0 ? 1 : 0;
    else if (results.length > 1 || results.some((result) => !possible.includes(result))) wrong += 1;
  }
  const findings = [
    without > 0 ? `${quantity(without, 'order has', 'orders have')} no payment that explains the status` : '',
    wrong > 0
      ? `${quantity(wrong, 'order has', 'orders have')} payments with more or other effects than the status says`
      : '',
    stray > 0
      ? `${quantity(stray, 'payment names an order that does', 'payments name orders that do')} not exist`
      : '',
  ];
  return counted(without + wrong + stray, listed(findings));
}
