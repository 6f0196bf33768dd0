/** Trials become rows: rank, ratios with interval, noise and verdict. Pure. */
import {
  type Comparison,
  compare,
  type Interval,
  interval,
  meanOf,
  noiseFloor,
  quotients,
} from './statistics.ts';
import type {
  CellBase,
  CheckInfo,
  Curve,
  CurvePoint,
  Goal,
  Ladder,
  Metric,
  Point,
  TrialBase,
  Verdict,
} from './suite.ts';

/** A metric of a row over the rounds that count. */
export interface MetricSummary extends Interval {
  readonly byRound: readonly (readonly [round: number, value: number])[];
}

interface Place {
  /** By the median of the leading metric among those that passed, from 1; null: no passed audit, or the control. */
  readonly rank: number | null;
  /** The rounds do not tell it from the first of the same rank. */
  readonly tie: boolean;
}

/** The leading metric at the step of the ladder where the cell does best, ranked among all cells at their best. */
export interface Best extends Place {
  readonly point: Point;
  readonly value: Interval;
}

/** One cell at one point. */
export interface SummaryRow extends Place {
  readonly cell: string;
  readonly unsafe: boolean;
  /** The A/A control; its `cell` is "<baseline>, A/A control". */
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
  readonly curves: Readonly<Record<string, readonly CurvePoint[]>>;
  /** The worst round's count of each check; null: it could be made in no round. */
  readonly checks: Readonly<Record<string, number | null>>;
  /** The worst of all results. */
  readonly verdict: Verdict;
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
  readonly byRound: MetricSummary['byRound'];
  /** By the median. */
  readonly verdict: 'reached' | 'missed' | 'not measured';
}

/** What the summary needs of a suite. */
export interface Judged {
  readonly metrics: readonly Metric[];
  readonly curves: readonly Curve[];
  readonly checks: readonly CheckInfo[];
  verdict(result: TrialBase, cell: CellBase): Verdict;
  readonly report: { readonly lead: string };
}

/** What the summary needs of a plan; the cells with the control. */
interface Measured {
  readonly cells: readonly CellBase[];
  readonly baseline: string | null;
  readonly ladder: Ladder | null;
}

/** Ranked rows first, then unfinished audits, then failed ones, then the control; point by point. */
export function summarize(
  suite: Judged,
  { cells, baseline, ladder }: Measured,
  results: readonly TrialBase[],
): { readonly rows: readonly SummaryRow[]; readonly noise: Noise | null } {
  const { lead } = suite.report;
  const bare = groupBy(results, ({ cell, point }) => `${cell} ${pointKey(point)}`).map((group) => {
    const cell = cells.find(({ name }) => name === group[0]?.cell);
    if (cell === undefined) throw new Error(`a result of ${group[0]?.cell}, which is not in the plan`);
    return rowOf(suite, cell, group);
  });
  const leading = bare.filter(({ point }) => ladder === null || point[ladder.axis] === ladder.lead);
  const noise = noiseOf(leading, baseline, lead);
  const floor = noise?.floor ?? 0;
  const rows = groupBy(bare, ({ point }) => pointKey(point)).flatMap((here) =>
    ranked(compared(here, baseline, lead, floor), lead, floor),
  );
  return { rows: withBest(rows, ladder, lead, floor), noise };
}

const pointKey = (point: Point): string => JSON.stringify(point);

function groupBy<T>(items: readonly T[], key: (item: T) => string): T[][] {
  const groups = new Map<string, T[]>();
  for (const item of items) groups.set(key(item), [...(groups.get(key(item)) ?? []), item]);
  return [...groups.values()];
}

function rowOf(suite: Judged, cell: CellBase, results: readonly TrialBase[]): SummaryRow {
  const counted = results.filter(({ invalid }) => invalid.length === 0);
  return {
    cell: cell.name,
    unsafe: cell.unsafe,
    control: cell.control,
    point: results[0]?.point ?? {},
    trials: new Set(results.map(({ round }) => round)).size,
    invalid: results.length - counted.length,
    values: Object.fromEntries(suite.metrics.flatMap((metric) => valueOver(metric, counted))),
    ...{ toBaseline: null, comparison: null, best: null, rank: null, tie: false },
    curves: curvesOf(suite, counted),
    checks: Object.fromEntries(suite.checks.map(({ key, read }) => [key, worst(results.map(read))])),
    verdict: worstVerdict(
      results.map((result) => suite.verdict(result, cell)),
      cell.unsafe,
    ),
    findings: results.flatMap(({ round, findings, invalid }) =>
      [...findings, ...invalid.map((why) => `not counted: ${why}`)].map((text) => `round ${round}: ${text}`),
    ),
  };
}

function valueOver({ key, read }: Metric, results: readonly TrialBase[]): [string, MetricSummary][] {
  const all = results.map((result) => [result.round, read(result)] as const);
  const known = new Map(all.filter((one): one is [number, number] => one[1] !== null));
  const over = interval([...known.values()]);
  return over === null ? [] : [[key, { ...over, byRound: [...known].sort(([a], [b]) => a - b) }]];
}

/** Of the result whose leading metric is in the middle, among those that have the curve. */
function curvesOf({ metrics, curves, report }: Judged, results: readonly TrialBase[]): SummaryRow['curves'] {
  const lead = metrics.find(({ key }) => key === report.lead);
  const ofCurve = ({ key, read }: Curve): [string, readonly CurvePoint[]][] => {
    const drawn = results
      .map((result) => ({ points: read(result) ?? [], value: lead?.read(result) ?? 0 }))
      .filter(({ points }) => points.length > 0)
      .sort((a, b) => a.value - b.value);
    const middle = drawn[(drawn.length - 1) >> 1];
    return middle === undefined ? [] : [[key, middle.points]];
  };
  return Object.fromEntries(curves.flatMap(ofCurve));
}

function worst(counts: readonly (number | null)[]): number | null {
  const known = counts.filter((count) => count !== null);
  return known.length === 0 ? null : Math.max(...known);
}

/** An unsafe cell has to be seen to fail once; elsewhere one failure is a failure. */
function worstVerdict(verdicts: readonly Verdict[], unsafe: boolean): Verdict {
  const order: readonly Verdict[] = unsafe
    ? ['fail (expected)', 'fail', 'unknown', 'pass']
    : ['fail', 'unknown', 'pass', 'fail (expected)'];
  return order.find((verdict) => verdicts.includes(verdict)) ?? null;
}

/** A metric by round. */
export const ratesOf = (row: SummaryRow | undefined, metric: string): ReadonlyMap<number, number> =>
  new Map(row?.values[metric]?.byRound ?? []);

function noiseOf(rows: readonly SummaryRow[], baseline: string | null, lead: string): Noise | null {
  const control = rows.find((row) => row.control);
  const own = rows.find(({ cell }) => cell === baseline);
  if (control === undefined || own === undefined) return null;
  const all = quotients(ratesOf(control, lead), ratesOf(own, lead));
  return { baseline: own.cell, control: interval(all), floor: noiseFloor(all) };
}

/** Divides each row by the baseline of its point, round by round. */
function compared(
  rows: readonly SummaryRow[],
  baseline: string | null,
  lead: string,
  floor: number,
): readonly SummaryRow[] {
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
function ranked(rows: readonly SummaryRow[], lead: string, floor: number): SummaryRow[] {
  const group = ({ control, verdict }: SummaryRow): number =>
    control ? 3 : verdict === 'pass' || verdict === null ? 0 : verdict === 'unknown' ? 1 : 2;
  const sorted = rows.toSorted((a, b) => group(a) - group(b) || byMedian(lead)(a, b));
  const rankable = sorted.filter((row) => group(row) === 0 && row.values[lead] !== undefined);
  const places = placesOf(rankable, lead, floor);
  return sorted.map((row) => ({ ...row, ...places.get(row) }));
}

/** The largest first. */
const byMedian = (lead: string) => (a: SummaryRow | undefined, b: SummaryRow | undefined) =>
  (b?.values[lead]?.median ?? 0) - (a?.values[lead]?.median ?? 0);

/**
 * A row that the rounds do not tell from the first row of a rank shares that rank. One round alone tells nothing apart: then
 * the figures as they are decide.
 * @param rows the largest median first
 */
function placesOf(rows: readonly SummaryRow[], lead: string, floor: number): ReadonlyMap<SummaryRow, Place> {
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

/** Adds to each row of the leading step where the cell does best, and its rank among all at their best. */
function withBest(
  rows: readonly SummaryRow[],
  ladder: Ladder | null,
  lead: string,
  floor: number,
): readonly SummaryRow[] {
  if (ladder === null || ladder.values.length < 2) return rows;
  const { axis } = ladder;
  const roundsOf = (row: SummaryRow): number => row.values[lead]?.rounds ?? 0;
  // One lucky round is no best step where the leading one has more.
  const bestOf = (row: SummaryRow): SummaryRow | undefined =>
    rows
      .filter(
        ({ cell, point }) =>
          cell === row.cell && pointKey({ ...point, [axis]: 0 }) === pointKey({ ...row.point, [axis]: 0 }),
      )
      .filter((other) => other.rank !== null && roundsOf(other) >= Math.min(2, roundsOf(row)))
      .sort(byMedian(lead))[0];
  const leading = rows.filter(({ point }) => point[axis] === ladder.lead);
  const bests = new Map(leading.map((row) => [row, bestOf(row)]));
  const passed = leading.flatMap((row) => (row.rank === null ? [] : (bests.get(row) ?? [])));
  const places = placesOf(passed.sort(byMedian(lead)), lead, floor);
  return rows.map((row) => {
    const best = bests.get(row);
    if (best === undefined) return row;
    const { byRound: _, ...value } = best.values[lead]!;
    return { ...row, best: { rank: null, tie: false, ...places.get(best), point: best.point, value } };
  });
}

/** A row for each goal of which a cell was planned; a ratio is taken within a round. */
export function goalRows(
  goals: readonly Goal[],
  rows: readonly SummaryRow[],
  { cells, ladder }: Omit<Measured, 'baseline'>,
): GoalRow[] {
  const names = new Set(cells.map(({ name }) => name));
  const lead: Point = ladder === null ? {} : { [ladder.axis]: ladder.lead };
  const planned = goals.filter(({ of, over, at = {} }) => {
    const step = ladder === null ? undefined : at[ladder.axis];
    const isMeasured = step === undefined || ladder?.values.includes(step);
    return isMeasured && names.has(of) && (over === null || names.has(over));
  });
  return planned.map((goal) => {
    const { metric, of, over, atLeast, atMost, at = lead } = goal;
    const find = (name: string | null): SummaryRow | undefined =>
      rows.find(
        ({ cell, point }) => cell === name && Object.entries(at).every(([axis, n]) => point[axis] === n),
      );
    const [row, by] = [find(of), find(over)];
    const counts = row?.verdict !== 'fail' && by?.verdict !== 'fail';
    const under = ratesOf(by, metric);
    const byRound = [...(counts ? ratesOf(row, metric) : [])].flatMap(([round, own]): [number, number][] => {
      const divisor = over === null ? 1 : under.get(round);
      return divisor ? [[round, own / divisor]] : [];
    });
    const value = interval(byRound.map(([, quotient]) => quotient));
    if (value === null) return { ...goal, value, byRound, verdict: 'not measured' };
    const isReached =
      (atLeast === null || value.median >= atLeast) && (atMost === null || value.median <= atMost);
    return { ...goal, value, byRound, verdict: isReached ? 'reached' : 'missed' };
  });
}

/** A trial that could not be run. `missing`: this machine does not have its servers, which is no failure. */
export interface Broken {
  readonly cell: string;
  readonly round: number;
  readonly reason: string;
  readonly missing: boolean;
}

/** Why a run is not a success; empty: every safe cell passed, and every unsafe one was seen to fail. */
export function failuresOf(rows: readonly SummaryRow[], broken: readonly Broken[]): string[] {
  if (rows.length === 0) return ['nothing was measured'];
  const failed = broken.filter(({ missing }) => !missing);
  const judged = groupBy(rows, ({ cell }) => cell).flatMap((own) => {
    const { cell, unsafe } = own[0]!;
    const has = (wanted: Verdict): boolean => own.some(({ verdict }) => verdict === wanted);
    if (unsafe)
      return has('fail (expected)') ? [] : [`${cell} is declared unsafe, but this load did not show it`];
    if (has('fail')) return [`${cell}: the audit failed`];
    return has('unknown') ? [`${cell}: the audit could not be finished`] : [];
  });
  const text = ({ cell, round, reason }: Broken): string =>
    `${cell}: the trial of round ${round} could not be run: ${reason}`;
  return [...failed.map(text), ...judged];
}
