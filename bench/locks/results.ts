/** Everything that a report says comes from one value: what locks.json holds. */
import type { Machine } from '../kit/machine.ts';
import type { Contender } from './contenders.ts';
import type { Numbers } from './numbers.ts';
import type { LocksOptions } from './options.ts';
import type { SummaryRow } from './summary.ts';

/** The three measurements of a lock: one contender; all waiters in one process; shared out to several. */
export const shapeNames = ['alone', 'together', 'apart'] as const;
export type ShapeName = (typeof shapeNames)[number];

/** One measurement of one lock in one round. */
export interface Measurement extends Numbers {
  readonly contender: string;
  /** Counted from 1. */
  readonly round: number;
  readonly shape: ShapeName;
  /** How busy the machine was with other work before the lock's turn, from 0 to 1. */
  readonly busyBefore: number;
}

/** A contender that could not be measured in a round. */
export interface Failure {
  readonly contender: string;
  readonly round: number;
  /** Why, and what to do. */
  readonly reason: string;
  /** Its servers could not be started: it is not at fault, and is left out of the rounds that follow. */
  readonly missing: boolean;
}

export interface LocksResults {
  /** Grows when a field changes its meaning or goes. */
  readonly schema: 1;
  /** ISO 8601 UTC. */
  readonly startedAt: string;
  readonly finishedAt: string;
  /** True: interrupted; the measurements that were finished are here. */
  readonly partial: boolean;
  readonly commit: string;
  readonly machine: Machine & { readonly zookeeper: string };
  readonly plan: Omit<LocksOptions, 'out' | 'canonical' | 'locks'> & {
    readonly contenders: readonly Contender[];
  };
  /** Whether this Redis counts the commands that scripts call; null: there was none. */
  readonly scriptCallsCounted: boolean | null;
  readonly measurements: readonly Measurement[];
  readonly summary: readonly SummaryRow[];
  readonly failures: readonly Failure[];
  /** Why the run is not a success; empty: it is one. */
  readonly shortcomings: readonly string[];
}
