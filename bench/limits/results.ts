/** Everything that a report says comes from one value: what results.json holds. */
import type { Machine } from '../kit/machine.ts';
import type { Spread } from '../summary.ts';
import type { Goal } from './cells.ts';
import type { LimitsOptions } from './options.ts';
import type { Layout } from './pin.ts';

/** One cell of one round. */
export interface CellResult {
  readonly cell: string;
  /** Counted from 1. */
  readonly round: number;
  /** What made the load, or the calls. */
  readonly how: string;
  /** Answers of the kind that is expected, deductions or orders. */
  readonly counted: number;
  readonly measuredMs: number;
  readonly perSecond: number;
  /** Answers of another kind: an attempt that was refused as busy, say. */
  readonly others: number;
  /** Requests without an answer. */
  readonly unanswered: number;
  /** As the generator tells them; null: there are none. */
  readonly latencyMs: { readonly p50: number; readonly p99: number } | null;
  /** How busy each processor was while it was measured, from 0 to 1. */
  readonly processors: readonly number[];
  /** How busy the machine was with other work before the cell's turn, from 0 to 1. */
  readonly busyBefore: number;
  /** What the audit found wrong, in words; empty: it passed. Null: there is nothing to audit. */
  readonly findings: readonly string[] | null;
}

/** A cell that could not be measured in a round. */
export interface Failure {
  readonly cell: string;
  readonly round: number;
  readonly reason: string;
}

export interface RatioRow extends Goal {
  /** Each round that has both cells, with rates that count. */
  readonly rounds: readonly { readonly round: number; readonly value: number }[];
  /** Null: there is no such round. */
  readonly spread: Spread | null;
  /** By the median. */
  readonly verdict: 'reached' | 'missed' | 'not measured';
}

export interface CellRow {
  readonly cell: string;
  readonly counts: string;
  readonly summary: string;
  readonly rounds: number;
  readonly perSecond: Spread;
  readonly latencyMs: { readonly p50: Spread; readonly p99: Spread } | null;
  /** Medians over the rounds. */
  readonly processors: readonly number[];
  readonly others: number;
  readonly unanswered: number;
  readonly how: string;
  /** Null: there is nothing to audit. */
  readonly audit: 'pass' | 'fail' | null;
}

/** What every run of this bench says of itself. */
export interface RunHeader {
  /** Grows when a field changes its meaning or goes. */
  readonly schema: 1;
  /** ISO 8601 UTC. */
  readonly startedAt: string;
  readonly finishedAt: string;
  /** True: interrupted; what was finished is here. */
  readonly partial: boolean;
  readonly commit: string;
  readonly machine: Machine;
  readonly generator: string;
  readonly pin: Layout;
}

export interface CellsResults extends RunHeader {
  readonly kind: 'ratios' | 'flat';
  readonly plan: Pick<LimitsOptions, 'rounds' | 'durationMs' | 'warmupMs' | 'connections' | 'restMs'> & {
    readonly cells: readonly string[];
  };
  readonly results: readonly CellResult[];
  readonly ratios: readonly RatioRow[];
  readonly cells: readonly CellRow[];
  readonly failures: readonly Failure[];
  /** Rates that do not count, in words. */
  readonly notes: readonly string[];
  /** Goals that were missed, in words; empty: none was. */
  readonly missed: readonly string[];
  /** Why the run is not valid; empty: it is. */
  readonly shortcomings: readonly string[];
}

/** The service's resident memory after so many attempts. */
export interface Reading {
  readonly attempts: number;
  readonly residentBytes: number;
  /** Since the load began. */
  readonly atMs: number;
}

export interface MemoryResults extends RunHeader {
  readonly kind: 'memory';
  readonly plan: Pick<LimitsOptions, 'attempts' | 'variant' | 'connections'> & { readonly stock: number };
  /** One before the load, then one after each step. */
  readonly readings: readonly Reading[];
  readonly accepted: number;
  readonly refused: number;
  readonly attemptsPerSecond: number;
  /** From the first step to the last; null: there are not two. */
  readonly growth: { readonly bytes: number; readonly share: number; readonly flat: boolean } | null;
  readonly missed: readonly string[];
  readonly shortcomings: readonly string[];
}

export type LimitsResults = CellsResults | MemoryResults;
