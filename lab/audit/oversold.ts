import { number } from '../kit/text.ts';
import { type CheckResult, type Counts, tally } from './check.ts';

/** P1: units of active orders beyond the stock. */
export function oversold({ postgres: { sale }, activeUnits }: Counts): CheckResult {
  const count = Math.max(0, activeUnits - sale.stock);
  return tally([count, `sold ${number(activeUnits)} of ${number(sale.stock)}: ${number(count)} oversold`]);
}
