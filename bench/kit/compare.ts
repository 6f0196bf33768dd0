/**
 * `npm run bench -- --compare`: did a change make something faster or slower, beyond noise? From two results of one suite.
 *
 * Two runs were made at different times, when a shared machine was not equally fast. So each row is divided by the baseline of
 * its own run, round by round, and the quotients are compared:
 *
 *   before: row ÷ baseline of each round ─▶ median ┐
 *                                                  ├─▶ after ÷ before, with a 95 % interval by the bootstrap of both
 *   after:  row ÷ baseline of each round ─▶ median ┘
 *
 * The interval is widened by the mean noise of both A/A controls. A change counts when the wider interval does not span 1 and
 * the change exceeds a margin. In 1,500 simulated pairs of runs with five rounds and 3 % noise in each trial, 0.3 % of identical
 * rows counted as changed, and 95 % of those that became 15 % slower. Rejected: an interval that is not widened (2 % of
 * identical rows, which is one in every other run with a dozen rows), and one widened by the sum of both noises (80 % of the
 * slower ones).
 */
import { isDeepStrictEqual } from 'node:util';
import { shortCommit } from './machine.ts';
import { terminalTable } from './report/index.ts';
import { figure, quantity, when } from './report/numbers.ts';
import { axisOf, axisValues, metricOf } from './report/rows.ts';
import type { Column } from './report/table.ts';
import { goalName } from './report/words.ts';
import type { Results } from './results.ts';
import { type Interval, meanOf, median, noiseFloor, quotientOfMedians, quotients } from './statistics.ts';
import type { MetricInfo, Unit, Verdict } from './suite.ts';
import type { GoalRow, SummaryRow } from './summary.ts';
import { number } from './text.ts';

/** A metric of a row in both runs. */
export interface Change {
  readonly metric: string;
  /** Of both values; a ratio has none of its metric. */
  readonly unit: Unit;
  /** Medians over the rounds, as they were measured. */
  readonly before: number;
  readonly after: number;
  /** after ÷ before, of the quotients to the baseline where there is one. */
  readonly quotient: Interval;
  readonly verdict: 'better' | 'worse' | 'tie';
}

/** A cell at a point, or a ratio that has a goal, in both runs. */
export interface RowChange {
  readonly name: string;
  /** What the others are divided by: its own changes say how fast the machine was, and never count. */
  readonly isBaseline: boolean;
  /** Null: it is in both runs. */
  readonly onlyIn: 'before' | 'after' | null;
  /** Metrics that both runs measured, the leading one first. */
  readonly changes: readonly Change[];
  /** The worst of all rounds, the control included. */
  readonly verdict: { readonly before: Verdict; readonly after: Verdict };
  /** From passed to anything else, or from unknown to failed; never of a cell that must fail. */
  readonly auditWorse: boolean;
}

export interface ComparisonReport {
  /** Commit and start of each run. */
  readonly runs: readonly [before: string, after: string];
  readonly marginPercent: number;
  /** What makes the two runs less comparable. */
  readonly warnings: readonly string[];
  /** Null: nothing is divided, and the speed of the machine is in every change. */
  readonly baseline: string | null;
  readonly metrics: readonly MetricInfo[];
  readonly rows: readonly RowChange[];
}

type Side = 'before' | 'after';
type Runs = Readonly<Record<Side, Results>>;

/** A row of one run, with what is compared of each metric. */
interface Sample {
  readonly unsafe: boolean;
  readonly isBaseline: boolean;
  readonly verdict: Verdict;
  readonly figures: readonly Figure[];
}

interface Figure {
  readonly metric: Pick<MetricInfo, 'key' | 'unit' | 'better'>;
  /** As measured in each round. */
  readonly plain: readonly number[];
  /** Divided by the baseline of the same round, as far as there is one. */
  readonly divided: readonly number[];
  readonly noise: number;
}

export function compareResults(before: Results, after: Results, marginPercent: number): ComparisonReport {
  const runs: Runs = { before, after };
  const { layout } = after;
  const keys = [...new Set([layout.lead, ...layout.columns])];
  const metrics = keys.map((key) => metricOf(after, key)).filter(({ better }) => better !== null);
  const baseline =
    [before.plan.baseline, after.plan.baseline].find((name) =>
      [before, after].every(({ summary }) => summary.some(({ cell }) => cell === name)),
    ) ?? null;
  const nameOf = namer(before, after);
  const [old, now] = [before, after].map((run) => samplesOf(run, metrics, baseline, nameOf));
  const names = [...new Set([...(old?.keys() ?? []), ...(now?.keys() ?? [])])];
  const rows = names.map((name) => changeOf(name, old?.get(name), now?.get(name), marginPercent));
  return {
    runs: [runText(before), runText(after)],
    marginPercent,
    warnings: [...warningsOf(runs), ...suspicions(rows, baseline)],
    baseline,
    metrics,
    rows,
  };
}

/** A cell with its point, as far as the runs have several values of an axis. */
function namer(before: Results, after: Results): (row: SummaryRow) => string {
  const axes = Object.keys({ ...before.summary[0]?.point, ...after.summary[0]?.point });
  const several = axes.filter(
    (axis) => new Set([before, after].flatMap((results) => axisValues(results, axis))).size > 1,
  );
  const place = (axis: string, value = 0): string => `, ${number(value)} ${axisOf(after, axis).title}`;
  return ({ cell, point }) => cell + several.map((axis) => place(axis, point[axis])).join('');
}

function samplesOf(
  { summary, goals }: Results,
  metrics: readonly MetricInfo[],
  baseline: string | null,
  nameOf: (row: SummaryRow) => string,
): ReadonlyMap<string, Sample> {
  const cells = summary.filter(({ control }) => !control);
  const samples = cells.map((row): readonly [string, Sample] => {
    const here = summary.filter(({ point }) => isDeepStrictEqual(point, row.point));
    const own = here.find(({ cell }) => cell === baseline);
    const control = here.find((other) => other.control);
    const isBaseline = row.cell === baseline;
    const verdicts = [row.verdict, (isBaseline && control?.verdict) || null];
    const verdict = verdicts.sort((a, b) => badness(b) - badness(a))[0] ?? row.verdict;
    const figures = metrics.map((metric): Figure => {
      const [values, under, again] = [row, own, control].map(
        (one) => new Map(one?.values[metric.key]?.byRound ?? []),
      ) as [Map<number, number>, Map<number, number>, Map<number, number>];
      const plain = [...values.values()];
      const divided = baseline === null || isBaseline ? plain : quotients(values, meanOf(under, again));
      return { metric, plain, divided, noise: noiseFloor(quotients(again, under)) };
    });
    return [nameOf(row), { unsafe: row.unsafe, isBaseline, verdict, figures }];
  });
  return new Map([...samples, ...goals.flatMap(ratioSample)]);
}

/** A ratio that has a goal: both cells are of the same round, so nothing else has to be divided out. */
function ratioSample(goal: GoalRow): (readonly [string, Sample])[] {
  if (goal.over === null) return [];
  const better = goal.atLeast === null ? 'lower' : goal.atMost === null ? 'higher' : null;
  const plain = goal.byRound.map(([, value]) => value);
  const figure = {
    metric: { key: goal.metric, unit: '×', better },
    plain,
    divided: plain,
    noise: 0,
  } as const;
  return [[goalName(goal), { unsafe: false, isBaseline: false, verdict: null, figures: [figure] }]];
}

function changeOf(
  name: string,
  before: Sample | undefined,
  after: Sample | undefined,
  marginPercent: number,
): RowChange {
  const verdict = { before: before?.verdict ?? null, after: after?.verdict ?? null };
  const { isBaseline, unsafe } = before ?? after ?? { isBaseline: false, unsafe: false };
  if (!before || !after) {
    const onlyIn = before ? 'before' : 'after';
    return { name, isBaseline, onlyIn, changes: [], verdict, auditWorse: false };
  }
  const changes = before.figures.flatMap((old): Change[] => {
    const { metric } = old;
    const now = after.figures.find((figure) => figure.metric.key === metric.key);
    const bare = now === undefined ? null : quotientOfMedians(now.divided, old.divided);
    if (now === undefined || bare === null) return [];
    const noise = (old.noise + now.noise) / 2;
    const quotient = { ...bare, low: bare.low * (1 - noise), high: bare.high * (1 + noise) };
    return [
      {
        ...{ metric: metric.key, unit: metric.unit, quotient },
        ...{ before: median(old.plain), after: median(now.plain) },
        verdict:
          isBaseline || metric.better === null ? 'tie' : judged(quotient, metric.better, marginPercent),
      },
    ];
  });
  const auditWorse = !unsafe && badness(verdict.after) > badness(verdict.before);
  return { name, isBaseline, onlyIn: null, changes, verdict, auditWorse };
}

function judged(quotient: Interval, better: 'higher' | 'lower', marginPercent: number): Change['verdict'] {
  const spansOne = quotient.low <= 1 && quotient.high >= 1;
  const small = Math.abs(quotient.median - 1) <= marginPercent / 100;
  if (quotient.rounds < 2 || spansOne || small) return 'tie';
  return quotient.median > 1 === (better === 'higher') ? 'better' : 'worse';
}

const badness = (verdict: Verdict): number => ({ unknown: 1, fail: 2 })[verdict as string] ?? 0;

/** What became worse beyond noise, or whose audit did. */
export function regressions({ rows }: ComparisonReport): readonly RowChange[] {
  return rows.filter(
    ({ changes, auditWorse }) => auditWorse || changes.some(({ verdict }) => verdict === 'worse'),
  );
}

function warningsOf({ before, after }: Runs): string[] {
  return [
    ...(before.suite === after.suite ? [] : [`the suites differ: ${before.suite} → ${after.suite}`]),
    ...different('machines', before.machine, after.machine),
    ...different('plans', planFacts(before), planFacts(after)),
    ...different('generators', { load: before.generator }, { load: after.generator }),
    ...weaknesses('before', before),
    ...weaknesses('after', after),
  ];
}

/** Cells are compared row by row. */
function planFacts({ plan: { cells: _cells, trials: _trials, options, ...rest } }: Results): object {
  return { ...rest, ...options };
}

function different(what: string, before: object, after: object): string[] {
  const [old, now] = [new Map(Object.entries(before)), new Map(Object.entries(after))];
  const text = (value: unknown): string =>
    typeof value === 'string' ? value : JSON.stringify(value ?? null);
  const parts = [...new Set([...old.keys(), ...now.keys()])]
    .filter((name) => text(old.get(name)) !== text(now.get(name)))
    .map((name) => `${name} ${text(old.get(name))} → ${text(now.get(name))}`);
  return parts.length === 0 ? [] : [`the ${what} differ: ${parts.join(', ')}`];
}

/** Why a run says less than it could. */
function weaknesses(side: Side, { partial, summary, plan, commit, noise }: Results): string[] {
  const rounds = Math.max(0, ...summary.map(({ trials }) => trials));
  const invalid = summary.reduce((sum, row) => sum + row.invalid, 0);
  const texts = [
    partial ? `is partial: ${rounds} of ${quantity(plan.rounds, 'round')} began` : '',
    commit.endsWith('-dirty') ? `had uncommitted changes (${shortCommit(commit)})` : '',
    rounds < 2 ? 'has fewer than two rounds: only audits are compared' : '',
    rounds > 1 && noise === null
      ? 'has no A/A control: its noise is unknown, and a tie may look like a change'
      : '',
    invalid > 0 ? `has ${quantity(invalid, 'result')} that do not count` : '',
  ];
  return texts.filter((text) => text !== '').map((text) => `the run ${side} ${text}`);
}

/** When every row moves alike, it is the baseline that moved. */
function suspicions(rows: readonly RowChange[], baseline: string | null): string[] {
  const missing = rows.flatMap(({ name, onlyIn }) =>
    onlyIn ? [`${name} is only in the run ${onlyIn}`] : [],
  );
  if (baseline === null)
    return [
      ...missing,
      'there is no common baseline: the speed of the machine is in every change but those of ratios',
    ];
  const leading = rows.flatMap(({ isBaseline, changes }) => (isBaseline ? [] : (changes[0]?.verdict ?? [])));
  const alike =
    leading.length > 1 && leading[0] !== 'tie' && leading.every((verdict) => verdict === leading[0]);
  const other = leading[0] === 'worse' ? 'faster' : 'slower';
  return alike ? [...missing, `every row changed the same way: rather ${baseline} became ${other}`] : missing;
}

const runText = ({ commit, startedAt }: Results): string => `${shortCommit(commit)} of ${when(startedAt)}`;

/** For a terminal: warnings, the table, and the conclusion. */
export function comparisonText(report: ComparisonReport): string {
  const { runs, warnings, baseline, metrics, rows, marginPercent } = report;
  const [lead] = metrics;
  const columns: Column[] = [
    ['', 'left'],
    [lead?.title ?? '', 'right'],
    ['change (95 %)', 'right'],
    ['audit', 'left'],
    ['finding', 'left'],
  ];
  const body = rows.map((row) => {
    const first = row.changes.find(({ metric }) => metric === lead?.key);
    const values =
      first === undefined ? '–' : `${figure(first.before, first.unit)} → ${figure(first.after, first.unit)}`;
    const { before, after } = row.verdict;
    const audit = before === after ? (after ?? '–') : `${before} → ${after}`;
    return [
      ...[row.name, values, changeText(first, row.isBaseline)],
      ...[row.onlyIn === null ? audit : `only ${row.onlyIn}`, finding(row, metrics)],
    ];
  });
  const how =
    baseline === null
      ? ''
      : `Values as measured; changes of the quotients to ${baseline} of the same round. Compared: ${metrics.map(({ title }) => title).join(', ')}. A change counts when its interval, widened by the noise of the A/A controls, does not span 1, and it exceeds ${marginPercent} %.`;
  return [
    `before: ${runs[0]}\nafter:  ${runs[1]}`,
    warnings.map((warning) => `! ${warning}`).join('\n'),
    terminalTable({ columns, rows: body }),
    how,
    conclusion(report),
  ]
    .filter((text) => text !== '')
    .join('\n\n');
}

function changeText(change: Change | undefined, isBaseline: boolean): string {
  if (isBaseline) return 'baseline';
  if (change === undefined) return '–';
  const { median: middle, low, high, rounds } = change.quotient;
  return rounds < 2 ? percent(middle) : `${percent(middle)} (${percent(low)} … ${percent(high)})`;
}

/** 0.85 → "−15 %". */
function percent(quotient: number): string {
  const change = Math.round((quotient - 1) * 100);
  return `${change > 0 ? '+' : change < 0 ? '−' : '±'}${Math.abs(change)} %`;
}

function finding({ changes, auditWorse }: RowChange, metrics: readonly MetricInfo[]): string {
  const beyond = changes.filter(({ verdict }) => verdict !== 'tie');
  const title = (key: string): string => metrics.find((metric) => metric.key === key)?.title ?? key;
  const parts = beyond.map(
    ({ metric, verdict, quotient }) => `${title(metric)} ${verdict}: ${percent(quotient.median)}`,
  );
  return [...(auditWorse ? ['audit worse'] : []), ...parts].join(', ') || '–';
}

function conclusion(report: ComparisonReport): string {
  const list = (rows: readonly RowChange[]): string =>
    rows.map((row) => `${row.name} (${finding(row, report.metrics)})`).join('; ');
  const worse = regressions(report);
  const better = report.rows.filter(
    (row) => !worse.includes(row) && row.changes.some(({ verdict }) => verdict === 'better'),
  );
  if (worse.length + better.length === 0) return 'Nothing changed beyond noise.';
  return [
    worse.length === 0 ? 'No regression.' : `Regression: ${list(worse)}.`,
    ...(better.length === 0 ? [] : [`Better: ${list(better)}.`]),
  ].join('\n');
}
