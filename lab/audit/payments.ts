import { groupBy } from '../kit/group-by.ts';
import { quantity } from '../kit/text.ts';
import { type CheckResult, type Evidence, tally } from './check.ts';

/** The possible effects of an order's one effective notification, by order status; in other statuses no notification has any. */
const effectsOf: Readonly<Record<string, readonly string[]>> = {
  paid: ['paid', 'revived'],
  'refund-due': ['refund-due', 'paid', 'revived'], // an administrator refunds what was paid
};

/**
 * One effect per payment, however often it was notified. Counts orders that are paid, or to be refunded, without exactly one
 * notification that made them so; other orders with an effective one; and notifications for orders that do not exist.
 */
export function payments({ postgres: { orders, payments: all } }: Evidence): CheckResult {
  const byOrder = groupBy(all, ({ orderId }) => orderId);
  let without = 0;
  let wrong = 0;
  for (const { id, status } of orders) {
    const possible = effectsOf[status] ?? [];
    // A surplus payment changes only what is owed: see tasks.ts.
    const effects = (byOrder.get(id) ?? []).filter(({ result }) => !['none', 'surplus'].includes(result));
    byOrder.delete(id);
    if (effects.length === 0) without += possible.length > 0 ? 1 : 0;
    else if (effects.length > 1 || !possible.includes(effects[0]!.result)) wrong += 1;
  }
  const stray = [...byOrder.values()].flat().length;
  const of = (count: number): string => quantity(count, 'order has', 'orders have');
  const strays = quantity(stray, 'payment names an order that does', 'payments name orders that do');
  return tally(
    [without, `${of(without)} no payment that explains the status`],
    [wrong, `${of(wrong)} payments with more or other effects than the status says`],
    [stray, `${strays} not exist`],
  );
}
