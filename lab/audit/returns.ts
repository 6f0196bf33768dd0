import { number, quantity } from '../kit/text.ts';
import { type CheckResult, compareStores, type Evidence } from './check.ts';

/**
 * Units returned = cancelled + expired: the units and the customer of every closed order are free, in both stores. Counts
 * rows of units that closed orders still hold, units never published to Redis, and the difference between the units of
 * customers that Redis knows and those of active orders; an unpublished unit explains a difference of one. They are not
 * compared while there are unacknowledged reservations, which drift counts.
 */
export function returns(evidence: Evidence): CheckResult {
  const { heldUnits, unpublished } = evidence.postgres;
  const { activeUnits } = evidence;
  const held = `${quantity(heldUnits, 'unit is', 'units are')} still held by closed orders`;
  const units = quantity(unpublished, 'unit that was', 'units that were');
  return compareStores(evidence, [heldUnits, held], ({ unsettled, held: inRedis }) => {
    const known = unsettled > 0 ? activeUnits : (inRedis ?? activeUnits);
    return [
      [unpublished, `never published to Redis: ${units} returned or taken again`],
      [
        Math.max(0, Math.abs(known - activeUnits) - unpublished),
        `Redis knows customers with ${quantity(known, 'unit')}, active orders have ${number(activeUnits)}`,
      ],
    ];
  });
}
