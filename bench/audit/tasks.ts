import { quantity } from '../kit/text.ts';
import { type CheckResult, type Evidence, groupBy, tally } from './check.ts';

/** The tasks of an order, each once, by the order's status; for any other status none. */
const kindsOf: Readonly<Record<string, readonly string[]>> = {
  paid: ['award', 'ship'],
  'refund-due': ['refund'],
};

/**
 * No task lost or done twice: tasks that an order's status asks for and that are missing, those that exist beyond
 * them, and dead ones, which are not retried. The state of other tasks does not matter: they will be done.
 */
export function tasks({ postgres: { orders, tasks: all } }: Evidence): CheckResult {
  const byOrder = groupBy(all, ({ orderId }) => orderId);
  let lost = 0;
  let matched = 0;
  for (const { id, status } of orders) {
    const kinds = new Set(byOrder.get(id)?.map(({ kind }) => kind));
    const wanted = kindsOf[status] ?? [];
    const present = wanted.filter((kind) => kinds.has(kind)).length;
    matched += present;
    lost += wanted.length - present;
  }
  const surplus = all.length - matched;
  const dead = all.filter(({ state }) => state === 'dead').length;
  return tally(
    [lost, `${quantity(lost, 'task is', 'tasks are')} lost`],
    [surplus, `${quantity(surplus, 'task')} would be done twice, or for nothing`],
    [dead, `${quantity(dead, 'task is', 'tasks are')} dead`],
  );
}
