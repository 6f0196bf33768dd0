/** A case: what a seed plays with a target. The same seed, in the same version, is the same schedule to the byte. */
import { seededRandom } from '../kit/random.ts';
import { byPriorities, type Choose, uniformly } from './choose.ts';
import { faultsOf } from './faults.ts';
import { type Target, usesRedis } from './process.ts';
import type { Plan } from './schedule.ts';
import { workloadOf } from './workload.ts';

/** Steps within which faults and change points are. */
const BUSY_STEPS = 150;
/** Of every three seeds, one is played by priorities. */
const BY_PRIORITIES = 3;

export interface Case {
  readonly plan: Plan;
  readonly choose: Choose;
}

export function caseOf(target: Target, seed: number): Case {
  const random = seededRandom(seed);
  const isReserving = usesRedis(target);
  const workload = workloadOf(random, isReserving);
  const faults = faultsOf(random, isReserving, BUSY_STEPS);
  const choose =
    seed % BY_PRIORITIES === 0
      ? byPriorities(random, 1 + Math.floor(random() * 4), BUSY_STEPS)
      : uniformly(random);
  return { plan: { ...target, workload, faults, seed }, choose };
}

/** `lua`, `lua accepted`, `global-lock, lock postgres-row`. */
export const nameOf = ({ strategy, confirm, lock }: Target): string =>
  `${strategy}${confirm === 'accepted' ? ' accepted' : ''}${lock === 'redis' ? '' : `, lock ${lock}`}`;
