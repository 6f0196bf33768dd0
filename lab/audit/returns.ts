import { number, quantity } from '../kit/text.ts';
import { type CheckResult, compareStores, type Evidence } from './check.ts';

/**
 * Units returned = cancelled + expired: the unit and the customer of every closed order are free, in both stores. Counts
 * rows of units that closed orders still hold, units never published to Redis, and the difference between the customers
 * that Redis knows and the active orders; an unpublished unit explains a difference of one. Customers are not compared
 * while there are unacknowledged reservations, which drift counts.
 */
export function returns(evidence: Evidence): CheckResult {
  const { heldUnits, unpublished } = evidence.postgres;
  const orders = evidence.active.length;
  const held = `${quantity(heldUnits, 'unit is', 'units are')} still held by closed orders`;
  const units = quantity(unpublished, 'unit that was', 'units that were');
  return compareStores(evidence, [heldUnits, held], ({ unsettled, buyers }) => {
    const known = unsettled > 0 ? orders : (buyers ?? orders);
    return [
      [unpublished, `never published to Redis: ${units} returned or taken again`],
      [
        Math.max(0, Math.abs(known - orders) - unpublished),
        `Redis knows ${quantity(known, 'customer')}, active orders are ${number(orders)}`,
      ],
    ];
  });
}
