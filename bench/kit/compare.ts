/**
 * `npm run bench -- --compare` says, from two results of one suite, what became faster or slower beyond noise.
 *
 * Two runs are made at different times, and the speed of a shared machine varies. So each row is divided by the baseline of
 * its own run, round by round, and the quotients are compared:
 *
 *   before: row ÷ baseline of each round ─▶ median ┐
 *                                                  ├─▶ after ÷ before, with a 95 % interval by the bootstrap of both
 *   after:  row ÷ baseline of each round ─▶ median ┘
 *
 * The interval is widened by the mean noise of both A/A controls. A change counts when the wider interval does not span 1 and
 * the change exceeds a margin. In 1,500 simulated pairs of runs with five rounds and 3 % noise, 0.3 % of identical rows counted
 * as changed, and 95 % of those that became 15 % slower.
 */
import { isDeepStrictEqual } from 'node:util';
import { shortCommit } from '../../lab/kit/machine.ts';
import { quantity } from '../../lab/kit/text.ts';
import { figure } from './report/numbers.ts';
import { terminalTable } from './report/text.ts';
import type { Results } from './results.ts';
import {
  type Interval,
  interval,
  meanOf,
  median,
  noiseFloor,
  quotientOfMedians,
  quotients,
} from './statistics.ts';
import type { MetricInfo, Point } from './suite.ts';
import { type RatioRow, ratesOf, type SummaryRow } from './summary.ts';

/** A metric of a cell at a point, or a ratio of two cells, in one run. */
interface Figure {
  /** "lua, connections 64", "lua ÷ bare". */
  readonly row: string;
  readonly metric: Pick<MetricInfo, 'key' | 'title' | 'unit' | 'better'>;
  readonly isBaseline: boolean;
  /** As measured in each round. */
  readonly plain: readonly number[];
  /** Divided by the baseline of the same round, if there is one. */
  readonly divided: readonly number[];
  readonly noise: number;
}

export type ComparisonReport = Readonly<ReturnType<typeof compareResults>>;
type Change = Readonly<ReturnType<ReturnType<typeof changeOf>>[number]>;

export function compareResults(before: Results, after: Results, marginPercent: number) {
  const runs = [before, after];
  const isCell = (name: string | null) =>
    runs.every(({ summary }) => summary.some(({ cell }) => cell === name));
  const baseline = runs.map(({ plan }) => plan.baseline).find(isCell) ?? null;
  const nameOf = namer(runs);
  const [old, now] = [figuresOf(before, baseline, nameOf), figuresOf(after, baseline, nameOf)];
  const same = (one: Figure) => (other: Figure) =>
    one.row === other.row && one.metric.key === other.metric.key;
  const changes = old.flatMap((figure) => now.filter(same(figure)).flatMap(changeOf(figure, marginPercent)));
  const only = (run: string, own: readonly Figure[], others: readonly Figure[]) =>
    own.filter((figure) => !others.some(same(figure))).map(({ row }) => `${row} is only in the run ${run}`);
  const missing = new Set([...only('before', old, now), ...only('after', now, old)]);
  const weak = [...weaknesses('before', before), ...weaknesses('after', after)];
  const suspicion = baseline === null ? ['there is no common baseline'] : suspicions(baseline, changes);
  const warnings = [...differences(before, after), ...weak, ...suspicion, ...missing];
  return {
    ...{ marginPercent, changes },
    /** Null: nothing is divided, and every change includes the machine's speed. */
    baseline,
    /** What makes the two runs less comparable. */
    warnings,
    audits: auditsOf(before, after, nameOf),
  };
}

const at = (point: Point): string =>
  Object.entries(point)
    .map(([axis, value]) => `, ${axis} ${value}`)
    .join('');
type NameOf = (row: SummaryRow) => string;

/** Names a row: its cell, and the axes that have several values in the runs. */
function namer(runs: readonly Results[]): NameOf {
  const points = runs.flatMap(({ summary }) => summary.map(({ point }) => point));
  const isSwept = (axis: string): boolean => new Set(points.map((point) => point[axis])).size > 1;
  return ({ cell, point }) =>
    cell + at(Object.fromEntries(Object.entries(point).filter(([axis]) => isSwept(axis))));
}

function figuresOf(run: Results, baseline: string | null, nameOf: NameOf): Figure[] {
  const { summary, ratios, metrics, layout } = run;
  const keys = [...new Set([layout.lead, ...layout.columns])];
  const shown = keys.flatMap((key) => metrics.filter((one) => one.key === key && one.better !== null));
  const ofCells = summary.flatMap((row): Figure[] => {
    if (row.control) return [];
    const here = summary.filter(({ point }) => isDeepStrictEqual(point, row.point));
    const own = here.find(({ cell }) => cell === baseline);
    const control = here.find((other) => other.control);
    const isBaseline = row.cell === baseline;
    return shown.map((metric) => {
      const rates = ratesOf(row, metric.key);
      const [under, again] = [ratesOf(own, metric.key), ratesOf(control, metric.key)];
      const plain = [...rates.values()];
      const divided = baseline === null || isBaseline ? plain : quotients(rates, meanOf(under, again));
      const noise = noiseFloor(quotients(again, under));
      return { row: nameOf(row), metric, isBaseline, plain, divided, noise };
    });
  });
  const ofRatios = ratios.map((ratio) => {
    const better = metrics.find(({ key }) => key === ratio.metric)?.better ?? null;
    return ratioOf(ratio, better);
  });
  return [...ofCells, ...ofRatios];
}

/** Both cells of a ratio are of the same round, so nothing else has to be divided out. */
function ratioOf({ metric: key, of, over, at: point = {}, byRound }: RatioRow, better: Better): Figure {
  const plain = byRound.map(([, value]) => value);
  const metric = { key, title: key, unit: '×', better } as const;
  const row = `${of} ÷ ${over}${at(point)}`;
  return { row, metric, isBaseline: false, plain, divided: plain, noise: 0 };
}
type Better = MetricInfo['better'];

/** Where no round had any before, and an interval above 0 has some now, it is more beyond measure; null: it is not, or no figure. */
function fromNothing(now: readonly number[], old: readonly number[]): Interval | null {
  const isNothing = old.length > 0 && old.every((value) => value === 0);
  if (!isNothing || (interval(now)?.low ?? 0) <= 0) return null;
  return { median: Infinity, low: Infinity, high: Infinity, rounds: Math.min(now.length, old.length) };
}

/**
 * A figure in both runs: its medians over the rounds, and the quotient after ÷ before. The baseline's own changes say how fast the
 * machine was, and never count.
 */
const changeOf = (old: Figure, marginPercent: number) => (now: Figure) => {
  const bare = quotientOfMedians(now.divided, old.divided) ?? fromNothing(now.divided, old.divided);
  if (bare === null) return [];
  const { row, metric, isBaseline } = old;
  const noise = (old.noise + now.noise) / 2;
  const quotient = { ...bare, low: bare.low * (1 - noise), high: bare.high * (1 + noise) };
  const spansOne = quotient.low <= 1 && quotient.high >= 1;
  const isSmall = Math.abs(quotient.median - 1) <= marginPercent / 100;
  const counts = !isBaseline && metric.better !== null && quotient.rounds > 1 && !spansOne && !isSmall;
  const isBetter = quotient.median > 1 === (metric.better === 'higher');
  const verdict: 'better' | 'worse' | 'tie' = counts ? (isBetter ? 'better' : 'worse') : 'tie';
  return [
    { row, metric, isBaseline, before: median(old.plain), after: median(now.plain), quotient, verdict },
  ];
};

/** Rows whose audit became worse: "lua (audit pass → fail)"; cells that must fail are left out. The control runs the baseline, so it counts. */
function auditsOf(before: Results, after: Results, nameOf: NameOf): string[] {
  const badness = (row: SummaryRow): number => ['unknown', 'fail'].indexOf(row.verdict ?? '') + 1;
  return before.summary.flatMap((old) => {
    const now = after.summary.find((row) => nameOf(row) === nameOf(old));
    if (now === undefined || old.unsafe || badness(now) <= badness(old)) return [];
    return [`${nameOf(old)} (audit ${old.verdict} → ${now.verdict})`];
  });
}

/** Rows that became worse beyond noise, or whose audit did, as text. */
export function regressions({ changes, audits }: ComparisonReport): readonly string[] {
  return [...audits, ...inWords(changes, 'worse')];
}

const inWords = (changes: readonly Change[], wanted: Change['verdict']): string[] =>
  changes.flatMap(({ row, metric, verdict, quotient }) =>
    verdict === wanted ? [`${row} (${metric.title} ${percent(quotient.median)})`] : [],
  );

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

/** What makes a run weaker evidence. */
function weaknesses(side: string, { partial, summary, commit, noise }: Results): string[] {
  const rounds = Math.max(0, ...summary.map(({ trials }) => trials));
  const invalid = summary.reduce((sum, row) => sum + row.invalid, 0);
  const texts = [
    partial && 'is partial',
    commit.endsWith('-dirty') && `had uncommitted changes (${shortCommit(commit)})`,
    rounds < 2 && 'has fewer than two rounds: only audits are compared',
    rounds > 1 && noise === null && 'has no A/A control: a tie may look like a change',
    invalid > 0 && `has ${quantity(invalid, 'result')} that do not count`,
  ];
  return texts.flatMap((text) => (text ? [`the run ${side} ${text}`] : []));
}

/** When every row moves alike, it is the baseline that moved. */
function suspicions(baseline: string, changes: readonly Change[]): string[] {
  const [first, second, ...more] = changes.filter((one) => !one.isBaseline && isLeading(one, changes));
  const isAlike =
    second !== undefined && [second, ...more].every(({ verdict }) => verdict === first?.verdict);
  if (!isAlike || first?.verdict === 'tie') return [];
  const how = first?.verdict === 'worse' ? 'faster' : 'slower';
  return [`every row changed the same way: probably ${baseline} became ${how}`];
}

const isLeading = ({ metric }: Change, [first]: readonly Change[]): boolean =>
  metric.key === first?.metric.key || metric.unit === '×';

/** For a terminal: warnings, the leading metric, other metrics that changed, and the conclusion. */
export function comparisonText(report: ComparisonReport): string {
  const { warnings, baseline, changes, marginPercent } = report;
  const shown = changes.filter((one) => isLeading(one, changes) || one.verdict !== 'tie');
  const rows = shown.map(({ row, metric, before, after, quotient, isBaseline, verdict }) => [
    row,
    metric.title,
    `${figure(before, metric.unit)} → ${figure(after, metric.unit)}`,
    ...(isBaseline ? ['baseline', ''] : [changeText(quotient), verdict]),
  ]);
  const titles = ['', 'metric', 'before → after', 'change (95 %)', 'verdict'];
  const columns = titles.map((title, n) => [title, n === 2 || n === 3 ? 'right' : 'left'] as const);
  const how = `Each change is that of row ÷ ${baseline} in the same round. It counts when its interval, widened by the noise of the A/A controls, does not span 1, and it exceeds ${marginPercent} %.`;
  const [worse, better] = [regressions(report), inWords(changes, 'better')];
  const none = better.length > 0 ? 'No regression.' : 'Nothing changed beyond noise.';
  const conclusion = [worse.length > 0 ? `Regression: ${worse.join('; ')}.` : none];
  if (better.length > 0) conclusion.push(`Better: ${better.join('; ')}.`);
  const notes = warnings.map((warning) => `! ${warning}`).join('\n');
  const parts = [
    notes,
    terminalTable({ columns, rows }),
    baseline === null ? '' : how,
    conclusion.join('\n'),
  ];
  return parts.filter((text) => text !== '').join('\n\n');
}

const changeText = ({ median, low, high, rounds }: Interval): string =>
  rounds < 2 || !Number.isFinite(median)
    ? percent(median)
    : `${percent(median)} (${percent(low)} … ${percent(high)})`;

/** 0.85 → "−15 %". */
function percent(quotient: number): string {
  if (!Number.isFinite(quotient)) return 'from 0';
  const change = Math.round((quotient - 1) * 100);
  return `${change > 0 ? '+' : change < 0 ? '−' : '±'}${Math.abs(change)} %`;
}
