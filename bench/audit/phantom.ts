import { quantity } from '../kit/text.ts';
import { type CheckResult, counted, type Evidence } from './check.ts';

/**
 * Orders that no answer could have named: their customer has neither an `ok` nor an `info` in the
 * history. A customer with a refusal and an order pays for what was refused.
 */
export function phantom({ history, postgres }: Evidence): CheckResult {
  const { id } = postgres.sale;
  const mayHave = new Set<string>();
  for (const { result, saleId, userId } of history) {
    if (saleId === id && result !== 'fail') mayHave.add(userId);
  }
  const count = postgres.orders.filter(({ saleId, userId }) => saleId === id && !mayHave.has(userId)).length;
  return counted(
    count,
    `${quantity(count, 'order exists', 'orders exist')} for customers who were refused or never asked`,
  );
}
