import { quantity } from '../kit/text.ts';
import { storyOf } from './answers.ts';
import { type CheckResult, type Evidence, tally, wasOf } from './check.ts';

/** P2: acknowledged orders that Postgres does not have, or has for another customer or sale: one to whom it was not transferred. */
export function lost({ history, postgres }: Evidence): CheckResult {
  const stored = new Map(postgres.orders.map((order) => [order.id, order]));
  const missing = new Set<string>();
  const elsewhere = new Set<string>();
  for (const { result, orderId, saleId, userId } of history) {
    if (result !== 'ok' || orderId === null) continue;
    const order = stored.get(orderId);
    if (order === undefined) missing.add(orderId);
    else if (!wasOf(order, userId) || order.saleId !== saleId) elsewhere.add(orderId);
  }
  const [first] = missing;
  const named = history.find(({ orderId }) => orderId === first);
  const own = history.filter(({ userId }) => userId === named?.userId);
  const absent = quantity(missing.size, 'acknowledged order is', 'acknowledged orders are');
  const foreign = quantity(elsewhere.size, 'acknowledged order belongs', 'acknowledged orders belong');
  return tally(
    [missing.size, `${absent} not in Postgres: ${named?.userId}, after ${storyOf(own)}`],
    [elsewhere.size, `${foreign} to another customer or sale`],
  );
}
