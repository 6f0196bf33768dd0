/** Everything a report says comes from one value: what `results.json` holds. */
import type { Machine } from '../kit/machine.ts';
import type { BenchOptions } from '../options.ts';
import type { Contender } from '../plan.ts';
import type { TrialResult } from '../result.ts';
import type { Noise, SummaryRow } from '../summary.ts';

export interface Results {
  /** Grows when a field changes its meaning or goes. */
  readonly schema: 1;
  /** ISO 8601 UTC. */
  readonly startedAt: string;
  readonly finishedAt: string;
  /** True: interrupted or broken off; the trials that were finished are here. */
  readonly partial: boolean;
  readonly commit: string;
  readonly machine: Machine;
  readonly plan: BenchOptions & {
    readonly contenders: readonly Contender[];
    /** Trials that were planned. */
    readonly trials: number;
    /** Variables that were passed on to the service. */
    readonly serviceEnv: Readonly<Record<string, string>>;
  };
  readonly trials: readonly TrialResult[];
  readonly summary: readonly SummaryRow[];
  /** What the twin of the baseline says of this run's noise; null: it had none. */
  readonly noise: Noise | null;
  /** Why the run is not a success; empty: it is one. */
  readonly shortcomings: readonly string[];
}
