/** At which share of their own capacity strategies were rushed. */
import { isDeepStrictEqual } from 'node:util';
import { median } from '../../kit/statistics.ts';
import { label } from '../../plan.ts';
import type { Results } from '../results.ts';

/**
 * "70 %": how much of what a strategy accepted in the closed loop of the same round then came in the open loop. Null: no
 * round has both.
 */
export function ownShare({ trials }: Results): string | null {
  const closed = trials.filter(({ load, acceptedPerSecond }) => load === 'closed' && acceptedPerSecond > 0);
  const shares = trials.flatMap((trial) => {
    if (trial.rush?.rate !== 'share') return [];
    const before = closed.find(
      (other) =>
        other.round === trial.round &&
        label(other) === label(trial) &&
        isDeepStrictEqual(other.point, trial.point),
    );
    return before === undefined ? [] : [trial.rush.perSecond / before.acceptedPerSecond];
  });
  return shares.length === 0 ? null : `${Math.round(median(shares) * 100)}\u00a0%`;
}
