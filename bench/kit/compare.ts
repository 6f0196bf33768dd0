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
 * the change exceeds a margin. Of 1,500 simulated pairs of runs with five rounds and 3 % noise, 0.3 % of identical rows counted
 * as changed, and 95 % of those that became 15 % slower.
 */
import { isDeepStrictEqual } from 'node:util';
import { shortCommit } from './machine.ts';
import { terminalTable } from './report/index.ts';
import { figure } from './report/numbers.ts';
import type { Results } from './results.ts';
import { type Interval, meanOf, median, noiseFloor, quotientOfMedians, quotients } from './statistics.ts';
import type { MetricInfo, Verdict } from './suite.ts';
import { type GoalRow, ratesOf, type SummaryRow } from './summary.ts';
import { quantity } from './text.ts';

type Compared = Pick<MetricInfo, 'key' | 'title' | 'unit' | 'better'>;

/** A metric of a row in both runs. */
export interface Change {
  readonly metric: Compared;
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
  /** Metrics that both runs measured, the leading one first. */
  readonly changes: readonly Change[];
  /** The worst of all rounds, the control included: "pass", "pass → fail". */
  readonly audit: string;
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
  readonly rows: readonly RowChange[];
}

/** A row of one run, with what is compared of each metric. */
interface Sample {
  readonly name: string;
  readonly unsafe: boolean;
  readonly isBaseline: boolean;
  readonly verdict: Verdict;
  readonly figures: readonly Figure[];
}

interface Figure {
  readonly metric: Compared;
  /** As measured in each round. */
  readonly plain: readonly number[];
  /** Divided by the baseline of the same round, as far as there is one. */
  readonly divided: readonly number[];
  readonly noise: number;
}

export function compareResults(before: Results, after: Results, marginPercent: number): ComparisonReport {
  const runs = [before, after] as const;
  const { lead, columns } = after.layout;
  const metrics = [...new Set([lead, ...columns])].flatMap((key) =>
    after.metrics.filter((metric) => metric.key === key && metric.better !== null),
  );
  const hasCell = (name: string | null) => (run: Results) => run.summary.some(({ cell }) => cell === name);
  const baseline = runs.map(({ plan }) => plan.baseline).find((name) => runs.every(hasCell(name))) ?? null;
  const [old, now] = runs.map((run) => samplesOf(run, metrics, baseline)) as [Sample[], Sample[]];
  const names = ({ name }: Sample): string => name;
  const missing = (from: Sample[], to: Sample[], run: string): string[] => {
    const others = new Set(to.map(names));
    return from.flatMap(({ name }) => (others.has(name) ? [] : [`${name} is only in the run ${run}`]));
  };
  const rows = old.flatMap((sample) =>
    now.filter(({ name }) => name === sample.name).map((other) => changeOf(sample, other, marginPercent)),
  );
  const warnings = [
    ...differences(before, after),
    ...weaknesses('before', before),
    ...weaknesses('after', after),
    ...missing(old, now, 'before'),
    ...missing(now, old, 'after'),
    ...suspicions(rows, baseline),
  ];
  const text = ({ commit, startedAt }: Results): string => `${shortCommit(commit)} of ${startedAt}`;
  return { runs: [text(before), text(after)], marginPercent, warnings, baseline, rows };
}

function samplesOf(
  { summary, goals }: Results,
  metrics: readonly Compared[],
  baseline: string | null,
): Sample[] {
  const sampleOf = (row: SummaryRow): Sample => {
    const here = summary.filter(({ point }) => isDeepStrictEqual(point, row.point));
    const own = here.find(({ cell }) => cell === baseline);
    const control = here.find((other) => other.control);
    const isBaseline = row.cell === baseline;
    const figures = metrics.map((metric): Figure => {
      const values = ratesOf(row, metric.key);
      const [under, again] = [ratesOf(own, metric.key), ratesOf(control, metric.key)];
      const plain = [...values.values()];
      const divided = baseline === null || isBaseline ? plain : quotients(values, meanOf(under, again));
      return { metric, plain, divided, noise: noiseFloor(quotients(again, under)) };
    });
    const twin = isBaseline && control ? control.verdict : null;
    const verdict = badness(twin) > badness(row.verdict) ? twin : row.verdict;
    const point = Object.entries(row.point).map(([axis, value]) => `, ${axis} ${value}`);
    return { name: row.cell + point.join(''), unsafe: row.unsafe, isBaseline, verdict, figures };
  };
  return [...summary.filter(({ control }) => !control).map(sampleOf), ...goals.flatMap(ratioSample)];
}

/** A ratio that has a goal: both cells are of the same round, so nothing else has to be divided out. */
function ratioSample({ metric: key, of, over, at = {}, atLeast, atMost, byRound }: GoalRow): Sample[] {
  if (over === null) return [];
  const plain = byRound.map(([, value]) => value);
  const better = atLeast === null ? 'lower' : atMost === null ? 'higher' : null;
  const metric = { key, title: key, unit: '×', better } as const;
  const name = [`${of} ÷ ${over}, ${key}`, ...Object.entries(at).map(([axis, n]) => `${axis} ${n}`)].join(
    ', ',
  );
  const figures = [{ metric, plain, divided: plain, noise: 0 }];
  return [{ name, unsafe: false, isBaseline: false, verdict: null, figures }];
}

function changeOf(before: Sample, after: Sample, marginPercent: number): RowChange {
  const { name, isBaseline, unsafe } = before;
  const changes = before.figures.flatMap((old): Change[] => {
    const { metric } = old;
    const now = after.figures.find((other) => other.metric.key === metric.key);
    const bare = now === undefined ? null : quotientOfMedians(now.divided, old.divided);
    if (now === undefined || bare === null) return [];
    const noise = (old.noise + now.noise) / 2;
    const quotient = { ...bare, low: bare.low * (1 - noise), high: bare.high * (1 + noise) };
    const verdict = isBaseline ? 'tie' : judged(quotient, metric.better, marginPercent);
    return [{ metric, before: median(old.plain), after: median(now.plain), quotient, verdict }];
  });
  const texts = new Set([before.verdict ?? '–', after.verdict ?? '–']);
  const auditWorse = !unsafe && badness(after.verdict) > badness(before.verdict);
  return { name, isBaseline, changes, audit: [...texts].join(' → '), auditWorse };
}

function judged(quotient: Interval, better: Compared['better'], marginPercent: number): Change['verdict'] {
  const spansOne = quotient.low <= 1 && quotient.high >= 1;
  const small = Math.abs(quotient.median - 1) <= marginPercent / 100;
  if (better === null || quotient.rounds < 2 || spansOne || small) return 'tie';
  return quotient.median > 1 === (better === 'higher') ? 'better' : 'worse';
}

const badness = (verdict: Verdict): number => (verdict === 'fail' ? 2 : verdict === 'unknown' ? 1 : 0);

/** What became worse beyond noise, or whose audit did. */
export function regressions({ rows }: ComparisonReport): readonly RowChange[] {
  return rows.filter(
    ({ changes, auditWorse }) => auditWorse || changes.some(({ verdict }) => verdict === 'worse'),
  );
}

function differences(before: Results, after: Results): string[] {
  const facts = ({ suite, machine, generator, plan }: Results): Record<string, unknown> => {
    const { cells: _cells, trials: _trials, options, ...rest } = plan; // cells are compared row by row
    return { suite, ...machine, generator, ...rest, ...options };
  };
  const [old, now] = [facts(before), facts(after)];
  const text = (value: unknown): string =>
    typeof value === 'string' ? value : JSON.stringify(value ?? null);
  return Object.keys({ ...old, ...now })
    .filter((name) => !isDeepStrictEqual(old[name], now[name]))
    .map((name) => `${name} differs: ${text(old[name])} → ${text(now[name])}`);
}

/** Why a run says less than it could. */
function weaknesses(side: string, { partial, summary, commit, noise }: Results): string[] {
  const rounds = Math.max(0, ...summary.map(({ trials }) => trials));
  const invalid = summary.reduce((sum, row) => sum + row.invalid, 0);
  const texts = [
    partial && 'is partial',
    commit.endsWith('-dirty') && `had uncommitted changes (${shortCommit(commit)})`,
    rounds < 2 && 'has fewer than two rounds: only audits are compared',
    rounds > 1 &&
      noise === null &&
      'has no A/A control: its noise is unknown, and a tie may look like a change',
    invalid > 0 && `has ${quantity(invalid, 'result')} that do not count`,
  ];
  return texts.flatMap((text) => (text ? [`the run ${side} ${text}`] : []));
}

/** When every row moves alike, it is the baseline that moved. */
function suspicions(rows: readonly RowChange[], baseline: string | null): string[] {
  if (baseline === null)
    return ['there is no common baseline: the speed of the machine is in every change of a cell'];
  const others = rows.filter(({ isBaseline, changes }) => !isBaseline && changes.length > 0);
  const leading = new Set(others.map(({ changes }) => changes[0]?.verdict));
  if (others.length < 2 || leading.size > 1 || leading.has('tie')) return [];
  return [
    `every row changed the same way: rather ${baseline} became ${leading.has('worse') ? 'faster' : 'slower'}`,
  ];
}

/** For a terminal: warnings, the table, and the conclusion. */
export function comparisonText(report: ComparisonReport): string {
  const { runs, warnings, baseline, rows, marginPercent } = report;
  const body = rows.map((row) => {
    const [lead] = row.changes;
    const change = lead === undefined ? '–' : row.isBaseline ? 'baseline' : changeText(lead.quotient);
    const [before, after] = [lead?.before, lead?.after].map((value) =>
      lead === undefined || value === undefined ? '–' : figure(value, lead.metric.unit),
    );
    return [row.name, `${before} → ${after}`, change, row.audit, findings(row) || '–'];
  });
  const titles = ['', rows[0]?.changes[0]?.metric.title ?? '', 'change (95 %)', 'audit', 'finding'];
  const columns = titles.map((title, n) => [title, n === 1 || n === 2 ? 'right' : 'left'] as const);
  const paragraphs = [
    `before: ${runs[0]}\nafter:  ${runs[1]}`,
    warnings.map((warning) => `! ${warning}`).join('\n'),
    terminalTable({ columns, rows: body }),
    baseline === null
      ? ''
      : `Values as measured; changes of the quotients to ${baseline} of the same round. A change counts when its interval, widened by the noise of the A/A controls, does not span 1, and it exceeds ${marginPercent} %.`,
    conclusion(report),
  ];
  return paragraphs.filter((text) => text !== '').join('\n\n');
}

const changeText = ({ median, low, high, rounds }: Interval): string =>
  rounds < 2 ? percent(median) : `${percent(median)} (${percent(low)} … ${percent(high)})`;

/** 0.85 → "−15 %". */
function percent(quotient: number): string {
  const change = Math.round((quotient - 1) * 100);
  return `${change > 0 ? '+' : change < 0 ? '−' : '±'}${Math.abs(change)} %`;
}

function findings({ changes, auditWorse }: RowChange): string {
  const beyond = changes.filter(({ verdict }) => verdict !== 'tie');
  const texts = beyond.map((one) => `${one.metric.title} ${one.verdict}: ${percent(one.quotient.median)}`);
  return [...(auditWorse ? ['audit worse'] : []), ...texts].join(', ');
}

function conclusion(report: ComparisonReport): string {
  const worse = regressions(report);
  const better = report.rows.filter((row) => !worse.includes(row) && findings(row) !== '');
  if (worse.length + better.length === 0) return 'Nothing changed beyond noise.';
  const list = (rows: readonly RowChange[]): string =>
    rows.map((row) => `${row.name} (${findings(row)})`).join('; ');
  const first = worse.length === 0 ? 'No regression.' : `Regression: ${list(worse)}.`;
  return better.length === 0 ? first : `${first}\nBetter: ${list(better)}.`;
}
