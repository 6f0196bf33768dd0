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

export const lockTrials = ({ subject, outcomes }: FaultResult): LockTrial[] | null =>
  subject === 'lock'
    ? (Object.values(outcomes).filter((one) => typeof one !== 'string') as LockTrial[])
    : null;

export const strategyTrials = ({ subject, outcomes }: FaultResult): StrategyTrial[] | null =>
  subject === 'strategy'
    ? (Object.values(outcomes).filter((one) => typeof one !== 'string') as StrategyTrial[])
    : null;
