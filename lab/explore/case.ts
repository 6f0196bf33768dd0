/** A case: what a seed plays with a target. The same seed, in the same version, is the same schedule to the byte. */
import { type Random, seededRandom } from '../kit/random.ts';
import { byHolding, byPriorities, type Choose, type ChooseOf, uniformly } from './choose.ts';
import { extrasRandom, withExtras } from './extras.ts';
import { type Fault, faultsOf } from './faults.ts';
import { type Target, usesRedis } from './process.ts';
import type { Plan } from './schedule.ts';
import { workloadOf } from './workload.ts';

/** Sales of one world, one after the other: its processes are started once. */
export const SALES = 6;
/** Steps of a sale within which faults and change points are. */
const BUSY_STEPS = 80;

export interface Case {
  readonly plan: Plan;
  readonly choose: ChooseOf;
}

function wayOf(random: Random, faults: readonly Fault[]): Choose {
  const way = random();
  if (way < 0.3) return uniformly(random);
  if (way < 0.6) return byPriorities(random, 1 + Math.floor(random() * 4), BUSY_STEPS);
  return byHolding(
    random,
    BUSY_STEPS,
    faults.map(({ step }) => step),
  );
}

/** A world of several sales; each is a schedule, with other faults and another way to choose. */
export function caseOf(target: Target, seed: number): Case {
  const random = seededRandom(seed);
  const isReserving = usesRedis(target);
  const isSynchronous = random() < 0.25;
  const processes = random() < 0.85 ? 2 : 3;
  const sales = Array.from({ length: SALES }, (_, n) => ({
    n: n + 1,
    workload: workloadOf(random, n + 1, processes, isReserving),
    faults: faultsOf(random, { isReserving, isSynchronous }, BUSY_STEPS),
  }));
  const ways = sales.map(({ faults }) => wayOf(random, faults));
  const plan = { ...target, processes, isSynchronous, sales, seed };
  const choose: ChooseOf = (sale) => ways[sale - 1]!;
  const extras = extrasRandom(seed);
  if (extras === null) return { plan, choose };
  const where = { seed, processes, isReserving, confirm: target.confirm, steps: BUSY_STEPS };
  const more = sales.map((sale) => withExtras(extras, sale, where));
  return { plan: { ...plan, sales: more, hasExtras: true }, choose };
}

/** `lua`, `lua accepted`, `global-lock, lock postgres-row`. */
export const nameOf = ({ strategy, confirm, lock }: Target): string =>
  `${strategy}${confirm === 'accepted' ? ' accepted' : ''}${lock === 'redis' ? '' : `, lock ${lock}`}`;
