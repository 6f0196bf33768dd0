import { number, quantity } from '../kit/text.ts';
import { type CheckResult, type Counts, compareStores } from './check.ts';

/**
 * Compares `sales.sold` with the units of active orders, and what Redis would still sell with stock − sold; counts reservations that are never
 * acknowledged.
 */
export function drift(evidence: Counts): CheckResult {
  const { stock, sold } = evidence.postgres.sale;
  const { activeUnits: units } = evidence;
  const words = `sales.sold is ${number(sold)}, active orders have ${quantity(units, 'unit')}`;
  return compareStores(evidence, [Math.abs(sold - units), words], ({ remaining, unsettled }) => [
    [
      remaining === null ? 0 : driftOf(remaining, stock - sold),
      `Redis would sell ${number(remaining ?? 0)} more, Postgres ${number(stock - sold)}`,
    ],
    [unsettled, `${quantity(unsettled, 'reservation')} never settled`],
  ]);
}

/** Redis must have no unit of an oversold sale; how far below zero its count is does not matter. */
function driftOf(inRedis: number, free: number): number {
  return free < 0 ? Math.max(0, inRedis) : Math.abs(inRedis - free);
}
