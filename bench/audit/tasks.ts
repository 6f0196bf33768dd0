import { quantity } from '../kit/text.ts';
import { type CheckResult, counted, type Evidence, groupBy, listed } from './check.ts';

/** What must happen outside, once, by the order's status; for any other status nothing. */
const kindsOf: Readonly<Record<string, readonly string[]>> = {
  paid: ['award', 'ship'],
  'refund-due': ['refund'],
};

/**
 * No task lost or done twice: tasks that an order's status asks for and that are not there, those that are there beyond
 * them, and dead ones, which are not retried. The state of other tasks does not matter: they will be done.
 */
export function tasks({ postgres }: Evidence): CheckResult {
  const byOrder = groupBy(postgres.tasks, ({ orderId }) => orderId);
  let lost = 0;
  let matched = 0;
  for (const { id, status } of postgres.orders) {
    const there = new Set((byOrder.get(id) ?? []).map(({ kind }) => kind));
    for (const kind of kindsOf[status] ?? []) {
      if (there.has(kind)) matched += 1;
      else lost += 1;
    }
  }
  const surplus = postgres.tasks.length - matched;
  const dead = postgres.tasks.filter(({ state }) => state === 'dead').length;
  const findings = [
    lost > 0 ? `${quantity(lost, 'task is', 'tasks are')} lost` : '',
    surplus > 0 ? `${quantity(surplus, 'task')} would be done twice, or for nothing` : '',
    dead > 0 ? `${quantity(dead, 'task is', 'tasks are')} dead` : '',
  ];
  return counted(lost + surplus + dead, listed(findings));
}
