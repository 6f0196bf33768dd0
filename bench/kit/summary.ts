/** Trials become rows: rank, ratios with interval, noise and verdict. Pure. */
import { groupBy } from '../../lab/kit/group-by.ts';
import { compare, type Interval, interval, meanOf, noiseFloor, quotients, type Rates } from './statistics.ts';
import type { CellBase, CurvePoint, Planned, Point, Ratio, Suite, TrialBase, Verdict } from './suite.ts';

/** A value for each round, ascending. */
type ByRound = readonly (readonly [round: number, value: number])[];

/** One cell at one point; docs/reference/results-json.md has each field. */
export interface SummaryRow {
  readonly cell: string;
  readonly unsafe: boolean;
  readonly control: boolean;
  readonly point: Point;
  /** Rounds that were finished, and results that do not count. */
  readonly trials: number;
  readonly invalid: number;
  /** By the metric's key, over the rounds that count; absent: it was not measured in any. */
  readonly values: Readonly<Record<string, Interval & { readonly byRound: ByRound }>>;
  /** The leading metric ÷ that of the baseline (the mean of it and its control) in the same round; null for the baseline. */
  readonly toBaseline: Interval | null;
  /** What `toBaseline` says, given the noise of the control. */
  readonly comparison: ReturnType<typeof compare> | null;
  /** The step of the ladder where the cell does best, ranked among all at their best; null: this is not the leading step. */
  readonly best: (Place & { readonly point: Point; readonly value: Interval }) | null;
  /** The curves of the round with the median leading metric, by their keys. */
  readonly curves: Readonly<Record<string, readonly CurvePoint[]>>;
  /** The worst round's count of each check; null: it could be made in no round. */
  readonly checks: Readonly<Record<string, number | null>>;
  /** The worst of all results. */
  readonly verdict: Verdict;
  /** From 1, by the median of the leading metric; null: the audit did not pass, there is no such metric, or it is the control. */
  readonly rank: number | null;
  /** The rounds do not separate it from the first row of its rank. */
  readonly tie: boolean;
  /** What went wrong, with the round in front. */
  readonly findings: readonly string[];
}

type Rows = readonly SummaryRow[];
type Place = Pick<SummaryRow, 'rank' | 'tie'>;

/** How far apart two identical rows of a run are: the control's leading metric ÷ that of the baseline. */
export interface Noise {
  readonly baseline: string;
  /** Null: no round has both. */
  readonly control: Interval | null;
  /** The typical distance of such a quotient from 1. Differences within it are ties. */
  readonly floor: number;
}

export interface RatioRow extends Ratio {
  /** Null: not measured. */
  readonly value: Interval | null;
  readonly byRound: ByRound;
}

/** A trial that could not be run. `missing`: this machine does not have its servers, which is no failure. */
export interface Broken {
  readonly cell: string;
  readonly round: number;
  readonly reason: string;
  readonly missing: boolean;
}

/** What the summary needs from a suite. */
export type Judged = Pick<Suite, 'metrics' | 'curves' | 'checks' | 'verdict' | 'report'>;

/** What the summary needs from a plan; `cells` include the control. */
type Measured = Pick<Planned, 'cells' | 'baseline' | 'ladder'>;
/** The metric by which rows are ranked, and the noise within which they are ties. */
type Scale = Readonly<{ lead: string; floor: number }>;

/** Sorts rows at each point: passed audits, then unfinished ones, then failed ones, then the control. */
export function summarize(
  suite: Judged,
  { cells, baseline, ladder }: Measured,
  results: readonly TrialBase[],
): { readonly rows: Rows; readonly noise: Noise | null } {
  const { lead } = suite.report;
  const groups = groupBy(results, ({ cell, point }) => `${cell} ${pointKey(point)}`);
  const bare = [...groups.values()].map((group) => {
    const cell = cells.find(({ name }) => name === group[0]?.cell);
    if (cell === undefined) throw new Error(`${group[0]?.cell} has a result but is not in the plan`);
    return rowOf(suite, cell, group);
  });
  const leading = bare.filter(({ point }) => ladder === null || point[ladder.axis] === ladder.lead);
  const noise = noiseOf(leading, baseline, lead);
  const scale = { lead, floor: noise?.floor ?? 0 };
  const points = groupBy(bare, ({ point }) => pointKey(point));
  const rows = [...points.values()].flatMap((here) => ranked(compared(here, baseline, scale), scale));
  return { rows: withBest(rows, ladder, scale), noise };
}

const pointKey = (point: Point): string => JSON.stringify(point);

function rowOf(suite: Judged, cell: CellBase, results: readonly TrialBase[]): SummaryRow {
  const counted = results.filter(({ invalid }) => invalid.length === 0);
  const verdicts = results.map((result) => verdictOf(suite, result, cell));
  return {
    ...{ cell: cell.name, unsafe: cell.unsafe, control: cell.control },
    point: results[0]?.point ?? {},
    trials: new Set(results.map(({ round }) => round)).size,
    invalid: results.length - counted.length,
    values: valuesOf(suite, counted),
    ...{ toBaseline: null, comparison: null, best: null, rank: null, tie: false },
    curves: curvesOf(suite, counted),
    checks: Object.fromEntries((suite.checks ?? []).map(({ key, read }) => [key, worst(results.map(read))])),
    verdict: worstVerdict(verdicts, cell.unsafe),
    findings: results.flatMap(({ round, findings, invalid }) =>
      [...findings, ...invalid.map((why) => `not counted: ${why}`)].map((text) => `round ${round}: ${text}`),
    ),
  };
}

type Values = SummaryRow['values'];

function valuesOf({ metrics }: Judged, results: readonly TrialBase[]): Values {
  const values = metrics.flatMap((metric): [string, Values[string]][] => {
    const first = new Map<number, number>(); // of two loads that measure it, the first one counts
    for (const result of results) {
      const value = metric.read(result);
      if (value !== null && !first.has(result.round)) first.set(result.round, value);
    }
    const byRound = [...first];
    const over = interval(byRound.map(([, value]) => value));
    return over === null ? [] : [[metric.key, { ...over, byRound: byRound.sort(([a], [b]) => a - b) }]];
  });
  return Object.fromEntries(values);
}

/** Takes each curve from the result with the median leading metric, among those with that curve. */
function curvesOf({ metrics, curves, report }: Judged, results: readonly TrialBase[]): SummaryRow['curves'] {
  const lead = metrics.find(({ key }) => key === report.lead);
  const rate = (result: TrialBase): number => lead?.read(result) ?? 0;
  const drawn = (curves ?? []).flatMap((curve): [string, readonly CurvePoint[]][] => {
    const having = results.filter((result) => (curve.read(result) ?? []).length > 0);
    const middle = having.sort((a, b) => rate(a) - rate(b))[(having.length - 1) >> 1];
    return middle === undefined ? [] : [[curve.key, curve.read(middle) ?? []]];
  });
  return Object.fromEntries(drawn);
}

function worst(counts: readonly (number | null)[]): number | null {
  const known = counts.filter((count) => count !== null);
  return known.length === 0 ? null : Math.max(...known);
}

export function verdictOf(suite: Pick<Suite, 'verdict'>, result: TrialBase, cell: CellBase): Verdict {
  const verdict = suite.verdict(result, cell);
  return verdict === 'fail' && cell.unsafe ? 'fail (expected)' : verdict;
}

/** An unsafe cell must fail in one trial at least; any other cell fails if one trial does. */
function worstVerdict(verdicts: readonly Verdict[], unsafe: boolean): Verdict {
  const order: readonly Verdict[] = unsafe
    ? ['fail (expected)', 'fail', 'unknown', 'pass']
    : ['fail', 'unknown', 'pass', 'fail (expected)'];
  return order.find((verdict) => verdicts.includes(verdict)) ?? null;
}

/** A metric by round. */
export const ratesOf = (row: SummaryRow | undefined, metric: string): Rates =>
  new Map(row?.values[metric]?.byRound ?? []);

function noiseOf(rows: Rows, baseline: string | null, lead: string): Noise | null {
  const control = rows.find((row) => row.control);
  const own = rows.find(({ cell }) => cell === baseline);
  if (control === undefined || own === undefined) return null;
  const all = quotients(ratesOf(control, lead), ratesOf(own, lead));
  return { baseline: own.cell, control: interval(all), floor: noiseFloor(all) };
}

/** Divides each row by the baseline of its point, round by round. */
function compared(rows: Rows, baseline: string | null, { lead, floor }: Scale): Rows {
  const own = rows.find(({ cell }) => cell === baseline);
  if (own === undefined) return rows;
  const ownRates = ratesOf(own, lead);
  const control = rows.find((row) => row.control);
  const both = meanOf(ownRates, ratesOf(control, lead));
  return rows.map((row) => {
    if (row === own) return row;
    const toBaseline = interval(quotients(ratesOf(row, lead), row.control ? ownRates : both));
    return { ...row, toBaseline, comparison: toBaseline && compare(toBaseline, row.control ? 0 : floor) };
  });
}

/** Ranks rows that passed by their median. */
function ranked(rows: Rows, scale: Scale): SummaryRow[] {
  const group = ({ control, verdict }: SummaryRow): number =>
    control ? 3 : verdict === 'pass' || verdict === null ? 0 : verdict === 'unknown' ? 1 : 2;
  const sorted = rows.toSorted((a, b) => group(a) - group(b) || byMedian(scale)(a, b));
  const rankable = sorted.filter((row) => group(row) === 0 && row.values[scale.lead] !== undefined);
  const places = placesOf(rankable, scale);
  return sorted.map((row) => ({ ...row, ...places.get(row) }));
}

/** The largest first. */
const byMedian = ({ lead }: Scale): ((a: SummaryRow, b: SummaryRow) => number) => {
  return (a, b) => (b.values[lead]?.median ?? 0) - (a.values[lead]?.median ?? 0);
};

/**
 * A row that the rounds cannot separate from the first row of a rank shares that rank. A single round separates nothing: then the
 * medians decide.
 * @param rows the largest median first
 */
function placesOf(rows: Rows, { lead, floor }: Scale): ReadonlyMap<SummaryRow, Place> {
  let first = 0;
  const ranks = rows.map((row, index) => {
    const quotient = interval(quotients(ratesOf(row, lead), ratesOf(rows[first], lead)));
    const isTied = quotient !== null && quotient.rounds > 1 && compare(quotient, floor) === 'tie';
    if (!isTied) first = index;
    return first + 1;
  });
  const tie = (rank: number): boolean => ranks.filter((other) => other === rank).length > 1;
  return new Map(rows.map((row, index) => [row, { rank: ranks[index]!, tie: tie(ranks[index]!) }]));
}

/** Adds the cell's best step to each row of the leading step, with its rank among all best steps. */
function withBest(rows: Rows, ladder: Planned['ladder'], scale: Scale): Rows {
  if (ladder === null || ladder.values.length < 2) return rows;
  const { axis, lead } = ladder;
  const lane = ({ cell, point }: SummaryRow): string => `${cell} ${pointKey({ ...point, [axis]: 0 })}`;
  const roundsOf = (row: SummaryRow): number => row.values[scale.lead]?.rounds ?? 0;
  const leading = rows.filter(({ point }) => point[axis] === lead);
  const bests = new Map<SummaryRow, SummaryRow>();
  for (const row of leading) {
    // One lucky round does not beat a leading step with several.
    const counts = (other: SummaryRow): boolean => roundsOf(other) >= Math.min(2, roundsOf(row));
    const steps = rows.filter((other) => lane(other) === lane(row) && other.rank !== null && counts(other));
    const [best] = steps.sort(byMedian(scale));
    if (best !== undefined) bests.set(row, best);
  }
  const passed = leading.flatMap((row) => (row.rank === null ? [] : (bests.get(row) ?? [])));
  const places = placesOf(passed.sort(byMedian(scale)), scale);
  return rows.map((row) => {
    const best = bests.get(row);
    if (best === undefined) return row;
    const { byRound: _, ...value } = best.values[scale.lead]!;
    return { ...row, best: { rank: null, tie: false, ...places.get(best), point: best.point, value } };
  });
}

/** A row for each ratio whose cells and step were planned; it is taken within a round. */
export function ratioRows(
  ratios: readonly Ratio[],
  rows: Rows,
  { cells, ladder }: Omit<Measured, 'baseline'>,
): RatioRow[] {
  const names = new Set(cells.map(({ name }) => name));
  const lead: Point = ladder === null ? {} : { [ladder.axis]: ladder.lead };
  const planned = ratios.filter(({ of, over, at = {} }) => {
    const step = ladder === null ? undefined : at[ladder.axis];
    const isMeasured = step === undefined || ladder?.values.includes(step);
    return isMeasured && names.has(of) && names.has(over);
  });
  return planned.map((ratio) => {
    const { metric, of, over, at = lead } = ratio;
    const axes = Object.entries(at);
    const isAt = ({ point }: SummaryRow): boolean => axes.every(([axis, n]) => point[axis] === n);
    const [row, by] = [of, over].map((name) => rows.find((one) => one.cell === name && isAt(one)));
    const counts = ![row, by].some((one) => one?.verdict?.startsWith('fail'));
    const under = ratesOf(by, metric);
    const byRound = [...ratesOf(counts ? row : undefined, metric)].flatMap(
      ([round, rate]): [number, number][] => {
        const divisor = under.get(round);
        return divisor ? [[round, rate / divisor]] : [];
      },
    );
    return { ...ratio, value: interval(byRound.map(([, quotient]) => quotient)), byRound };
  });
}

/** Why a run is not a success; empty: every safe cell passed, and every unsafe one was seen to fail. */
export function failuresOf(rows: Rows, broken: readonly Broken[]): string[] {
  if (rows.length === 0) return ['nothing was measured'];
  const failed = broken.filter(({ missing }) => !missing);
  const judged = [...groupBy(rows, ({ cell }) => cell)].flatMap(([cell, own]) => {
    const { unsafe } = own[0]!;
    const has = (wanted: Verdict): boolean => own.some(({ verdict }) => verdict === wanted);
    if (unsafe && has('fail (expected)')) return [];
    if (unsafe) return [`${cell} is declared unsafe, but this load did not show it`];
    if (has('fail')) return [`${cell}: the audit failed`];
    return has('unknown') ? [`${cell}: the audit could not be finished`] : [];
  });
  const text = ({ cell, round, reason }: Broken): string =>
    `${cell}: the trial of round ${round} could not be run: ${reason}`;
  return [...failed.map(text), ...judged];
}
