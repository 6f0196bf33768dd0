/** Trials become rows: rank, ratios with interval, noise and verdict. Pure. */
import type { Comparison, Interval } from './statistics.ts';
import type { Goal, Point, Verdict } from './suite.ts';

/** A metric of a row over the rounds that count. */
export interface MetricSummary extends Interval {
  readonly byRound: readonly (readonly [round: number, value: number])[];
}

/** The leading metric at the step of the ladder where the cell does best. */
export interface Best {
  readonly point: Point;
  readonly value: Interval;
  /** Among all cells, each at its best. */
  readonly rank: number | null;
  readonly tie: boolean;
}

/** One cell at one point. */
export interface SummaryRow {
  readonly cell: string;
  readonly unsafe: boolean;
  /** The A/A control; its `cell` is the baseline's name with ", again". */
  readonly control: boolean;
  readonly point: Point;
  /** Rounds that were finished. */
  readonly trials: number;
  /** Results that do not count. */
  readonly invalid: number;
  /** By the metric's key; absent: it was not measured in any round that counts. */
  readonly values: Readonly<Record<string, MetricSummary>>;
  /** The leading metric ÷ that of the baseline (the mean of it and its control) in the same round; null for the baseline. */
  readonly toBaseline: Interval | null;
  /** What `toBaseline` says, given the noise of the control. */
  readonly comparison: Comparison | null;
  /** Null: there is no ladder, or this is not the row of the leading point. */
  readonly best: Best | null;
  /** Of the round in the middle, by the curve's key. */
  readonly curves: Readonly<Record<string, readonly (readonly [x: number, y: number])[]>>;
  /** The worst round's count of each check; null: it could be made in no round. */
  readonly checks: Readonly<Record<string, number | null>>;
  /** The worst of all results. */
  readonly verdict: Verdict;
  /** By the median of the leading metric among those that passed, from 1; null: no passed audit, or the control. */
  readonly rank: number | null;
  /** The rounds do not tell it from the first of the same rank. */
  readonly tie: boolean;
  /** What went wrong, with the round in front. */
  readonly findings: readonly string[];
}

/** How far apart two identical rows of a run are. */
export interface Noise {
  readonly baseline: string;
  /** The control's leading metric ÷ that of the baseline; null: no round has both. */
  readonly control: Interval | null;
  /** The typical distance of such a quotient from 1. Differences within it are ties. */
  readonly floor: number;
}

export interface GoalRow extends Goal {
  /** Null: not measured. */
  readonly value: Interval | null;
  readonly byRound: readonly (readonly [round: number, value: number])[];
  /** By the median. */
  readonly verdict: 'reached' | 'missed' | 'not measured';
}
