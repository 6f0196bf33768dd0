/** The one results format, schema 2: everything a report, a CSV file or `--compare` shows comes from this value. */
import type { Machine } from './machine.ts';
import type {
  CellBase,
  CheckInfo,
  CurveInfo,
  ExtraTable,
  MetricInfo,
  Point,
  ReportLayout,
  TrialBase,
} from './suite.ts';
import type { GoalRow, Noise, SummaryRow } from './summary.ts';

export interface Results<Result extends TrialBase = TrialBase> {
  /** Grows when a field changes its meaning or goes. */
  readonly schema: 2;
  /** "strategies", "locks", "limits", … */
  readonly suite: string;
  /** ISO 8601 UTC. */
  readonly startedAt: string;
  readonly finishedAt: string;
  /** Interrupted or broken off: the trials that were finished are here. */
  readonly partial: boolean;
  /** A smoke run: no report draws a ranking from it. */
  readonly smoke: boolean;
  /** With `-dirty` when files differ from it; `unknown` outside a repository. */
  readonly commit: string;
  readonly machine: Machine;
  /** What made the load, and how it was held to processors. */
  readonly generator: string;
  readonly plan: PlanInfo;
  readonly trials: readonly Result[];
  /** Ranked rows first, then unfinished audits, then failed ones, then the control; point by point. */
  readonly summary: readonly SummaryRow[];
  /** What the A/A control says of this run's noise; null: there is none. */
  readonly noise: Noise | null;
  readonly goals: readonly GoalRow[];
  readonly metrics: readonly MetricInfo[];
  readonly curves: readonly CurveInfo[];
  readonly checks: readonly Omit<CheckInfo<never>, 'read'>[];
  readonly layout: ReportLayout;
  readonly tables: readonly ExtraTable[];
  /** Trials that could not be run. */
  readonly broken: readonly {
    readonly cell: string;
    readonly round: number;
    readonly reason: string;
    readonly missing: boolean;
  }[];
  /** Why the run is not a success; empty: it is one. */
  readonly failures: readonly string[];
}

export interface PlanInfo {
  readonly rounds: number;
  readonly seed: number;
  /** Trials that were planned. */
  readonly trials: number;
  readonly cells: readonly CellBase[];
  readonly points: readonly Point[];
  readonly baseline: string | null;
  readonly ladder: {
    readonly axis: string;
    readonly values: readonly number[];
    readonly lead: number;
  } | null;
  /** The suite's own options. */
  readonly options: Readonly<Record<string, unknown>>;
}
