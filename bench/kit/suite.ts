/**
 * The interface of a suite. A suite is data and one function: the cells it compares, how to run one of them, what its
 * results mean, and which ratios it shows. The kit plans, rotates, measures noise, summarizes, writes and reports.
 *
 *   Suite.plan(options) ─▶ cells × points × rounds ─▶ Session.runTrial ─▶ results ─▶ summary ─▶ results.json, report.*
 *
 * A trial is one cell at one point in one round. It gives one result or several: one for each load, shape or step of a
 * ladder. The results of a cell at a point over all rounds are one row of the summary.
 */
import type { Chart } from './charts.ts';
import type { Environment } from './environment.ts';
import type { Optioned } from './options.ts';

/** What is compared: a row of the summary. */
export interface CellBase {
  /** Stable, unique within the suite: "lua", "global-lock (redis)", "sales-1000". */
  readonly name: string;
  /** One sentence for the legend; empty: the name says it. */
  readonly summary: string;
  /** Must be seen to fail: `unsafe`, or a lock that locks nothing. */
  readonly unsafe: boolean;
  /** The A/A control: the baseline measured a second time. It has no rank. */
  readonly control: boolean;
}

/** Where on the axes a trial is measured, such as `{ rttMs: 0, connections: 64 }`; empty: there are no axes. */
export type Point = Readonly<Record<string, number>>;

/** One trial to run; `number` and `round` count from 1. */
export interface Trial<Cell extends CellBase = CellBase> {
  readonly cell: Cell;
  readonly point: Point;
  readonly number: number;
  readonly round: number;
  /** The same for all cells of a round. */
  readonly seed: number;
}

/** Fields of every result of every suite. */
export interface TrialBase {
  readonly cell: string;
  readonly control: boolean;
  /** The point of the trial, or a step of the suite's ladder. */
  readonly point: Point;
  readonly round: number;
  readonly startedAt: string;
  /** How long the whole trial took, set-up and audit included. */
  readonly durationMs: number;
  /** Share of the machine that other work used right before the trial, 0 to 1; 0 without `--idle`. */
  readonly busyBefore: number;
  /** Why the figures do not count, such as a generator that was the bottleneck; empty: they count. */
  readonly invalid: readonly string[];
  /** What the audit found, and what was odd, in words. */
  readonly findings: readonly string[];
}

/** A result as a suite returns it, without what the kit adds. */
export type Bare<Result extends TrialBase> = Omit<
  Result,
  'cell' | 'control' | 'round' | 'startedAt' | 'durationMs' | 'busyBefore'
>;

/** What a suite says of a result. `null`: there is nothing to judge. `unknown`: a check could not be made. */
export type Judgement = 'pass' | 'fail' | 'unknown' | null;
/** The same where an unsafe cell is expected to fail. */
export type Verdict = Judgement | 'fail (expected)';

export type Unit = '/s' | 'ms' | 's' | 'µs' | 'MiB' | 'B' | '%' | '×' | '';

/** A metric as results.json keeps it: its key is stable, its title that of a column ("accepted/s", "p99 ms"). */
export interface MetricInfo {
  readonly key: string;
  readonly title: string;
  /** `%`: the value is a share from 0 to 1. */
  readonly unit: Unit;
  readonly better: 'higher' | 'lower' | null;
  /** One sentence: what it measures, from when to when. */
  readonly help: string;
}

export interface Metric<Result = TrialBase> extends MetricInfo {
  /** Null: this result does not have it. At most one result of a trial at a point has it. */
  read(result: Result): number | null;
}

interface Axis {
  readonly title: string;
  readonly unit: Unit;
}

export type CurvePoint = readonly [x: number, y: number];

/** A curve of a result, such as the units left over time. The summary keeps that of the median round. */
export interface Curve<Result = TrialBase> {
  readonly key: string;
  readonly title: string;
  readonly x: Axis;
  readonly y: Axis;
  read(result: Result): readonly CurvePoint[] | null;
}

/** A curve in results.json. */
export type CurveInfo = Omit<Curve, 'read'>;

/** A metric of one cell ÷ that of another in the same round. */
export interface Ratio {
  readonly metric: string;
  readonly of: string;
  readonly over: string;
  /** What it compares: "committed sales against fixed answers". */
  readonly what: string;
  /** Where on the axes; left out: at the leading point. */
  readonly at?: Point;
}

/** A count that must be 0, such as what an audit counts. */
export interface CheckInfo<Result = TrialBase> {
  readonly key: string;
  readonly title: string;
  /** One sentence for the glossary. */
  readonly help?: string;
  /** Null: it could not be counted. */
  read(result: Result): number | null;
}

/** Charts with a sentence or two above them. */
export interface Section {
  readonly title: string;
  readonly text: string;
  readonly charts: readonly Chart[];
}

/** What a report needs from a suite. results.json includes it, so that a report needs only that file. */
export interface ReportLayout {
  readonly title: string;
  /** The metric of the ranking and of the report's sentence; in words, "accepted attempts a second". */
  readonly lead: string;
  readonly leadText: string;
  /** What a cell is called: "strategy", "lock". */
  readonly noun: string;
  /** Metrics of the main table, from left to right. */
  readonly columns: readonly string[];
  /** The first one is the first screen. */
  readonly sections: readonly Section[];
  /** Paragraphs: what was measured and how to read it; what the measurement does not show. */
  readonly notes: readonly string[];
  readonly limits?: readonly string[];
  /** Noun of the audited cells, if not `noun`: "strategy". */
  readonly audited?: string;
  /** What a passed audit says: "sold exactly the stock". */
  readonly passed?: string;
  readonly axes?: Readonly<Record<string, Axis>>;
}

/** A table that only one suite has, such as the shares of a CPU profile. */
export interface ExtraTable {
  readonly title: string;
  readonly columns: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

/** What each row did under each column, such as each lock under each fault. */
export interface Matrix {
  readonly title: string;
  /** What a row is called. */
  readonly noun: string;
  /** What a row without a bad cell did: "kept one writer under every fault"; null: the audit says it. */
  readonly passed: string | null;
  readonly columns: readonly { readonly title: string; readonly help: string }[];
  readonly rows: readonly { readonly name: string; readonly cells: readonly MatrixCell[] }[];
}

export interface MatrixCell {
  /** `none`: there is nothing to judge. */
  readonly tone: 'good' | 'fair' | 'bad' | 'none';
  readonly word: string;
  /** Beside the word, such as a duration; empty: none. */
  readonly figure: string;
  /** A sentence: what happened, or why it was not tried. */
  readonly text: string;
  readonly picture: Lanes | null;
}

/** Who held what when, or what happened when, in ms. */
export interface Lanes {
  readonly endMs: number;
  /** When the fault lasted. */
  readonly band: readonly [from: number, to: number];
  /** Overlapping lanes are wrong. */
  readonly exclusive: boolean;
  readonly lanes: readonly {
    readonly name: string;
    readonly spans: readonly (readonly [from: number, to: number])[];
    readonly marks: readonly (readonly [at: number, what: string])[];
  }[];
}

/**
 * An axis along which one trial measures several values, such as connections: `values` are measured at each point, and all
 * cells are ranked at `lead`; each cell's best is also shown.
 */
export interface Ladder {
  readonly axis: string;
  readonly values: readonly number[];
  readonly lead: number;
}

/** The plan of a suite; the kit repeats it in rounds and adds the A/A control. */
export interface Planned<Cell extends CellBase = CellBase> {
  readonly cells: readonly Cell[];
  /** At least one; several are a sweep. */
  readonly points: readonly Point[];
  /** The cell by which the others are divided; null: nothing is divided. */
  readonly baseline: string | null;
  /** Whether the baseline is measured a second time in each round, as the A/A control. */
  readonly control: boolean;
  readonly ladder: Ladder | null;
  /** Options as results.json shows them. Never URLs: they may hold passwords. */
  readonly shown: Readonly<Record<string, unknown>>;
}

/** Open from before the first trial until after the last. */
export interface Session<Cell extends CellBase = CellBase, Result extends TrialBase = TrialBase> {
  runTrial(
    trial: Trial<Cell>,
    onStep: (step: string) => void,
  ): Promise<Bare<Result> | readonly Bare<Result>[]>;
  /** Ends what the suite opened for all trials; left out: nothing. */
  close?(): Promise<void>;
  /** Versions of servers the suite started by itself, for results.json. */
  readonly versions?: Readonly<Record<string, string>>;
  /** The load generator, and how it is pinned. */
  readonly generator: string;
}

export interface Suite<
  Options = unknown,
  Cell extends CellBase = CellBase,
  Result extends TrialBase = TrialBase,
> extends Optioned<Options> {
  readonly name: string;
  readonly title: string;
  /** Follows the options in `--help`. */
  readonly help: string;
  /** Rounds of a run that is no smoke run, which has one. */
  readonly rounds: number;
  /** @returns the plan, or every mistake in names */
  plan(
    options: Options,
    environment: Environment,
  ): Promise<Planned<Cell> | { readonly mistakes: readonly string[] }>;
  open(options: Options, environment: Environment): Promise<Session<Cell, Result>>;
  readonly metrics: readonly Metric<Result>[];
  readonly curves?: readonly Curve<Result>[];
  readonly checks?: readonly CheckInfo<Result>[];
  /** Left out: it shows none. */
  readonly ratios?: readonly Ratio[];
  verdict(result: Result, cell: CellBase): Judgement;
  readonly report: ReportLayout;
  tables?(results: readonly Result[]): readonly ExtraTable[];
  matrices?(results: readonly Result[]): readonly Matrix[];
}
