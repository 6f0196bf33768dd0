import { number } from '../kit/text.ts';
import { type CheckResult, counted, type Evidence } from './check.ts';

/** P1: active orders beyond the stock. */
export function oversold({ postgres, active }: Evidence): CheckResult {
  const { stock } = postgres.sale;
  const count = Math.max(0, active.length - stock);
  return counted(count, `sold ${number(active.length)} of ${number(stock)}: ${number(count)} oversold`);
}
