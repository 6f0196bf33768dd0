import { groupBy } from '../kit/group-by.ts';
import { quantity } from '../kit/text.ts';
import { type CheckResult, type Evidence, tally } from './check.ts';

/** The tasks of an order, each once, by order status; one that was paid before its refund has both. Others have none. */
const kindsOf: Readonly<Record<string, readonly string[]>> = {
  paid: ['award', 'ship'],
  'refund-due': ['refund'],
};

/**
 * No task lost or done twice. Counts missing tasks that an order's status, or a surplus payment, requires, tasks beyond the
 * required ones, and dead tasks, which are not retried. The state of other tasks does not matter: they will be done.
 */
export function tasks({ postgres: { orders, payments, tasks: all } }: Evidence): CheckResult {
  const surpluses = payments.filter(({ result }) => result === 'surplus');
  const paymentsOf = groupBy(surpluses, ({ orderId }) => orderId);
  const ordersWith = (...results: string[]) =>
    new Set(payments.filter(({ result }) => results.includes(result)).map(({ orderId }) => orderId));
  const [late, inTime] = [ordersWith('refund-due'), ordersWith('paid', 'revived')];
  const byOrder = groupBy(all, ({ orderId }) => orderId);
  let lost = 0;
  let matched = 0;
  for (const { id, status } of orders) {
    const owed = (paymentsOf.get(id) ?? []).map((payment) => payment.id);
    const present = new Set(
      byOrder
        .get(id)
        ?.map(({ kind, payment }) => (owed.includes(payment ?? '') ? `${kind} ${payment}` : kind)),
    );
    // An administrator refunded it after it was paid.
    const wasPaid =
      status === 'refund-due' &&
      (inTime.has(id) || !late.has(id)) &&
      kindsOf.paid!.some((kind) => present.has(kind));
    const asked = [
      ...(wasPaid ? kindsOf.paid! : []),
      ...(kindsOf[status] ?? []),
      ...owed.map((payment) => `refund ${payment}`),
    ];
    const found = asked.filter((task) => present.has(task)).length;
    matched += found;
    lost += asked.length - found;
  }
  const surplus = all.length - matched;
  const dead = all.filter(({ state }) => state === 'dead').length;
  return tally(
    [lost, `${quantity(lost, 'task is', 'tasks are')} lost`],
    [surplus, `${quantity(surplus, 'task')} would be done twice, or for nothing`],
    [dead, `${quantity(dead, 'task is', 'tasks are')} dead`],
  );
}
