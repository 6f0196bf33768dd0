import { number, quantity } from '../kit/text.ts';
import { type CheckResult, counted, type Evidence, isUnreadable, listed, underWay } from './check.ts';

/**
 * Counters that disagree with the orders: `sales.sold` with the active orders, what Redis would still sell with
 * stock − sold, and reservations that are never settled. While changes are in flight nothing can be said.
 */
export function drift({ postgres, redis, active }: Evidence): CheckResult {
  const { stock, sold } = postgres.sale;
  const soldDrift = Math.abs(sold - active.length);
  const soldFinding = `sales.sold is ${number(sold)}, active orders are ${number(active.length)}`;
  if (isUnreadable(redis)) {
    if (soldDrift > 0) return { count: soldDrift, finding: soldFinding };
    return { count: null, finding: `Redis could not be read: ${redis.unreadable}` };
  }
  const tooEarly = underWay(postgres, redis);
  if (tooEarly !== null) return { count: null, finding: tooEarly };
  const redisDrift = redis.remaining === null ? 0 : driftOf(redis.remaining, stock - sold);
  const findings = [
    soldDrift > 0 ? soldFinding : '',
    redisDrift > 0
      ? `Redis would sell ${number(redis.remaining ?? 0)} more, Postgres ${number(stock - sold)}`
      : '',
    redis.unsettled > 0 ? `${quantity(redis.unsettled, 'reservation')} never settled` : '',
  ];
  return counted(soldDrift + redisDrift + redis.unsettled, listed(findings));
}

/** Of an oversold sale Redis has nothing to sell; how far below zero it counts says nothing. */
function driftOf(inRedis: number, free: number): number {
  return free < 0 ? Math.max(0, inRedis) : Math.abs(inRedis - free);
}
