import { quantity } from '../kit/text.ts';
import { type CheckResult, type Evidence, tally } from './check.ts';

/**
 * Orders that no answer could have named: their customer has neither an `ok` nor an `info` in the history. A refused customer
 * with an order pays for what was refused.
 */
export function phantom({ history, active, closed }: Evidence): CheckResult {
  const mayHave = new Set(history.flatMap(({ result, userId }) => (result === 'fail' ? [] : [userId])));
  const count = [...active, ...closed].filter(
    ({ userId, transferredFrom }) => !mayHave.has(transferredFrom ?? userId),
  ).length;
  const orders = quantity(count, 'order exists', 'orders exist');
  return tally([count, `${orders} for customers who were refused or never asked`]);
}
