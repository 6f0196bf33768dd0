import { number, quantity } from '../kit/text.ts';
import { type CheckResult, counted, type Evidence, isUnreadable, listed, underWay } from './check.ts';

/**
 * Units returned = cancelled + expired: the unit and the customer of every closed order are free, in both stores. Counts
 * rows of units that closed orders still hold, units never published to Redis, and customers whom Redis knows
 * beyond, or short of, those with an active order; an unpublished unit explains one of them. Customers are
 * not compared while there are unsettled reservations, which drift counts.
 */
export function returns({ postgres, redis, active }: Evidence): CheckResult {
  const { heldUnits, untold } = postgres;
  const held =
    heldUnits > 0 ? `${quantity(heldUnits, 'unit is', 'units are')} still held by closed orders` : '';
  if (isUnreadable(redis)) {
    if (heldUnits > 0) return { count: heldUnits, finding: held };
    return { count: null, finding: `Redis could not be read: ${redis.unreadable}` };
  }
  const tooEarly = underWay(postgres, redis);
  if (tooEarly !== null) return { count: null, finding: tooEarly };
  const known = redis.unsettled > 0 ? null : redis.buyers;
  const strange = known === null ? 0 : Math.max(0, Math.abs(known - active.length) - untold);
  const findings = [
    held,
    untold > 0
      ? `Redis was never told of ${quantity(untold, 'unit that was', 'units that were')} returned or taken again`
      : '',
    strange > 0
      ? `Redis knows ${quantity(known ?? 0, 'customer')}, active orders are ${number(active.length)}`
      : '',
  ];
  return counted(heldUnits + untold + strange, listed(findings));
}
