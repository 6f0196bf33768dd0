import { number } from '../kit/text.ts';
import { type CheckResult, type Counts, tally } from './check.ts';

/** P1: active orders beyond the stock. */
export function oversold({ postgres: { sale }, active }: Counts): CheckResult {
  const count = Math.max(0, active.length - sale.stock);
  return tally([count, `sold ${number(active.length)} of ${number(sale.stock)}: ${number(count)} oversold`]);
}
