/** The cells of the suite, and the result of a trial. */
import type { LockCell } from '../../../lab/clients/lock-cells.ts';
import type { CellBase, TrialBase } from '../../kit/suite.ts';
import type { LockTrial } from './history.ts';
import type { StrategyTrial } from './sale-verdict.ts';

export interface StrategyCell extends CellBase {
  readonly subject: 'strategy';
  readonly strategy: string;
  /** The service's Redis; a fault may add Sentinels. */
  readonly redis: 'single' | 'replicated' | 'cluster';
  /** More environment variables of the service. */
  readonly env: Readonly<Record<string, string>>;
}

export type LabCell = StrategyCell | (LockCell & { readonly subject: 'lock' });

/** How a fault strikes a cell. */
export interface Order {
  readonly seed: number;
  readonly folder: string;
  /** The result of `buildClock`. */
  readonly clock: string | null;
  readonly signal: AbortSignal;
}

/** Why a fault could not be run, in an outcome. */
export const NOT_RUN = 'could not be run';

/** One lock or strategy in one round; `outcomes` by fault: the trial, or why there is none. */
export interface FaultResult extends TrialBase {
  readonly subject: LabCell['subject'];
  readonly outcomes: Readonly<Record<string, LockTrial | StrategyTrial | string>>;
}

/** The trials of a result; null: it is not one of these cells. */
const trialsOf =
  <Trial>(subject: LabCell['subject']) =>
  (result: FaultResult): Trial[] | null =>
    result.subject === subject
      ? (Object.values(result.outcomes).filter((one) => typeof one !== 'string') as Trial[])
      : null;
export const lockTrials = trialsOf<LockTrial>('lock');
export const strategyTrials = trialsOf<StrategyTrial>('strategy');
