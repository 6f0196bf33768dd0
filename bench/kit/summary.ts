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
  Goal,
  Metric,
  Planned,
  Point,
  TrialBase,
  Verdict,
} from './suite.ts';

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

/** What the summary needs of a suite. */
export interface Judged<Result extends TrialBase> {
  readonly metrics: readonly Metric<Result>[];
  readonly curves: readonly Curve<Result>[];
  readonly checks: readonly CheckInfo<Result>[];
  verdict(result: Result, cell: CellBase): Verdict;
  readonly report: { readonly lead: string };
}

/** Ranked rows first, then unfinished audits, then failed ones, then the control; point by point. */
export function summarize<Result extends TrialBase>(
  suite: Judged<Result>,
  planned: Pick<Planned<CellBase>, 'baseline' | 'ladder'> & { readonly cells: readonly CellBase[] },
  results: readonly Result[],
): { readonly rows: readonly SummaryRow[]; readonly noise: Noise | null } {
  const { lead } = suite.report;
  const groups = groupBy(results, ({ cell, point }) => `${cell} ${pointKey(point)}`);
  const bare = groups.map((group) => {
    const cell = planned.cells.find(({ name }) => name === group[0]?.cell);
    if (cell === undefined) throw new Error(`a result of ${group[0]?.cell}, which is not in the plan`);
    return rowOf(suite, cell, group);
  });
  const noise = noiseOf(bare, planned, lead);
  const byPoint = groupBy(bare, ({ point }) => pointKey(point));
  const floor = noise?.floor ?? 0;
  const ranks = byPoint.flatMap((rows) => ranked(compared(rows, planned.baseline, lead, floor), lead, floor));
  return { rows: withBest(ranks, planned.ladder, lead, floor), noise };
}

const pointKey = (point: Point): string => JSON.stringify(point);

function groupBy<T>(items: readonly T[], key: (item: T) => string): T[][] {
  const groups = new Map<string, T[]>();
  for (const item of items) groups.set(key(item), [...(groups.get(key(item)) ?? []), item]);
  return [...groups.values()];
}

function rowOf<Result extends TrialBase>(
  suite: Judged<Result>,
  cell: CellBase,
  results: readonly Result[],
): SummaryRow {
  const counted = results.filter(({ invalid }) => invalid.length === 0);
  const verdicts = results.map((result) => suite.verdict(result, cell));
  return {
    cell: cell.name,
    unsafe: cell.unsafe,
    control: cell.control,
    point: results[0]?.point ?? {},
    trials: new Set(results.map(({ round }) => round)).size,
    invalid: results.length - counted.length,
    values: valuesOf(suite.metrics, counted),
    toBaseline: null,
    comparison: null,
    best: null,
    curves: curvesOf(suite, counted),
    checks: Object.fromEntries(suite.checks.map(({ key, read }) => [key, worst(results.map(read))])),
    verdict: worstVerdict(verdicts, cell.unsafe),
    rank: null,
    tie: false,
    findings: results.flatMap(({ round, findings, invalid }) =>
      [...findings, ...invalid.map((why) => `not counted: ${why}`)].map((text) => `round ${round}: ${text}`),
    ),
  };
}

function valuesOf<Result extends TrialBase>(
  metrics: readonly Metric<Result>[],
  results: readonly Result[],
): Record<string, MetricSummary> {
  const values: Record<string, MetricSummary> = {};
  for (const { key, read } of metrics) {
    const rounds = new Map<number, number>();
    for (const result of results) {
      const value = read(result);
      if (value !== null) rounds.set(result.round, value);
    }
    const over = interval([...rounds.values()]);
    if (over !== null) values[key] = { ...over, byRound: [...rounds].sort(([a], [b]) => a - b) };
  }
  return values;
}

/** Of the result whose leading metric is in the middle, among those that have the curve. */
function curvesOf<Result extends TrialBase>(
  { metrics, curves, report }: Judged<Result>,
  results: readonly Result[],
): SummaryRow['curves'] {
  const lead = metrics.find(({ key }) => key === report.lead);
  return Object.fromEntries(
    curves.flatMap(({ key, read }) => {
      const drawn = results
        .map((result) => ({ points: read(result), value: lead?.read(result) ?? 0 }))
        .filter(({ points }) => points !== null && points.length > 0)
        .sort((a, b) => a.value - b.value);
      const points = drawn[(drawn.length - 1) >> 1]?.points;
      return points ? [[key, points]] : [];
    }),
  );
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

const ratesOf = ({ values }: SummaryRow, metric: string): ReadonlyMap<number, number> =>
  new Map(values[metric]?.byRound ?? []);

function noiseOf(
  rows: readonly SummaryRow[],
  { baseline, ladder }: Pick<Planned<CellBase>, 'baseline' | 'ladder'>,
  lead: string,
): Noise | null {
  const atLead = ({ point }: SummaryRow): boolean => ladder === null || point[ladder.axis] === ladder.lead;
  const control = rows.find((row) => row.control && atLead(row));
  const own = rows.find((row) => row.cell === baseline && atLead(row));
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
  const control = rows.find((row) => row.control);
  const ownRates = ratesOf(own, lead);
  const both = meanOf(ownRates, control && ratesOf(control, lead));
  return rows.map((row) => {
    if (row === own) return row;
    const toBaseline = interval(quotients(ratesOf(row, lead), row.control ? ownRates : both));
    return { ...row, toBaseline, comparison: toBaseline && compare(toBaseline, row.control ? 0 : floor) };
  });
}

/**
 * Ranks rows that passed by their median. A row that the rounds do not tell from the first row of a rank shares that rank.
 * One round alone tells nothing apart: then the figures as they are decide.
 */
function ranked(rows: readonly SummaryRow[], lead: string, floor: number): SummaryRow[] {
  const median = (row: SummaryRow): number => row.values[lead]?.median ?? Number.NEGATIVE_INFINITY;
  const place = ({ control, verdict }: SummaryRow): number => {
    if (control) return 3;
    return verdict === 'pass' || verdict === null ? 0 : verdict === 'unknown' ? 1 : 2;
  };
  const sorted = [...rows].sort((a, b) => place(a) - place(b) || median(b) - median(a));
  const rankable = sorted.filter((row) => place(row) === 0 && row.values[lead] !== undefined);
  const ranks = rankOf(
    rankable.map((row) => ratesOf(row, lead)),
    floor,
  );
  return sorted.map((row) => ({ ...row, ...(ranks[rankable.indexOf(row)] ?? { rank: null, tie: false }) }));
}

interface Rank {
  readonly rank: number;
  readonly tie: boolean;
}

/** @param rates of each row by round, the largest median first */
function rankOf(rates: readonly ReadonlyMap<number, number>[], floor: number): Rank[] {
  let leader = 0;
  const ranks = rates.map((own, index) => {
    const first = rates[leader];
    const quotient = index === 0 || first === undefined ? null : interval(quotients(own, first));
    const tied = quotient !== null && quotient.rounds > 1 && compare(quotient, floor) === 'tie';
    if (!tied) leader = index;
    return leader + 1;
  });
  return ranks.map((rank) => ({ rank, tie: ranks.filter((other) => other === rank).length > 1 }));
}

/** Adds to each row of the leading step where the cell does best, and its rank among all at their best. */
function withBest(
  rows: readonly SummaryRow[],
  ladder: Planned<CellBase>['ladder'],
  lead: string,
  floor: number,
): readonly SummaryRow[] {
  if (ladder === null || ladder.values.length < 2) return rows;
  const elsewhere = ({ point }: SummaryRow): string => pointKey({ ...point, [ladder.axis]: 0 });
  const roundsOf = (row: SummaryRow): number => row.values[lead]?.rounds ?? 0;
  // One lucky round is no best step where the leading one has more.
  const bestOf = (row: SummaryRow): SummaryRow | undefined =>
    rows
      .filter((other) => other.cell === row.cell && elsewhere(other) === elsewhere(row))
      .filter((other) => other.rank !== null && roundsOf(other) >= Math.min(2, roundsOf(row)))
      .sort((a, b) => (b.values[lead]?.median ?? 0) - (a.values[lead]?.median ?? 0))[0];
  const leading = rows.filter(({ point }) => point[ladder.axis] === ladder.lead);
  const passed = leading
    .flatMap((row) => (row.rank === null ? [] : [{ row, best: bestOf(row) }]))
    .sort((a, b) => (b.best?.values[lead]?.median ?? 0) - (a.best?.values[lead]?.median ?? 0));
  const ranks = rankOf(
    passed.map(({ best }) => (best ? ratesOf(best, lead) : new Map())),
    floor,
  );
  return rows.map((row) => {
    const best = leading.includes(row) ? bestOf(row) : undefined;
    if (best === undefined) return row;
    const { median, low, high, rounds } = best.values[lead]!;
    const own = ranks[passed.findIndex((other) => other.row === row)];
    const place = own ?? { rank: null, tie: false };
    return { ...row, best: { point: best.point, value: { median, low, high, rounds }, ...place } };
  });
}

/** A row for each goal of which a cell was planned; a ratio is taken within a round. */
export function goalRows(
  goals: readonly Goal[],
  rows: readonly SummaryRow[],
  { cells, ladder }: Pick<Planned<CellBase>, 'ladder'> & { readonly cells: readonly CellBase[] },
): GoalRow[] {
  const names = new Set(cells.map(({ name }) => name));
  const lead: Point = ladder === null ? {} : { [ladder.axis]: ladder.lead };
  const find = (cell: string, at: Point): SummaryRow | undefined =>
    rows.find(
      (row) => row.cell === cell && Object.entries(at).every(([axis, value]) => row.point[axis] === value),
    );
  const planned = goals.filter(({ of, over, at = {} }) => {
    const measured = Object.entries(at).every(
      ([axis, value]) => axis !== ladder?.axis || ladder.values.includes(value),
    );
    return measured && names.has(of) && (over === null || names.has(over));
  });
  return planned.map((goal) => {
    const { metric, of, over, atLeast, atMost, at = lead } = goal;
    const row = find(of, at);
    const by = over === null ? undefined : find(over, at);
    const usable = [row, by].every((one) => one === undefined || one.verdict !== 'fail');
    const own = row === undefined || !usable ? new Map<number, number>() : ratesOf(row, metric);
    const under = by === undefined ? new Map<number, number>() : ratesOf(by, metric);
    const byRound =
      over === null
        ? [...own]
        : [...own].flatMap(([round, value]): [number, number][] => {
            const divisor = under.get(round);
            return divisor ? [[round, value / divisor]] : [];
          });
    const value = interval(byRound.map(([, quotient]) => quotient));
    const isReached =
      value !== null &&
      (atLeast === null || value.median >= atLeast) &&
      (atMost === null || value.median <= atMost);
    return {
      ...goal,
      value,
      byRound,
      verdict: value === null ? 'not measured' : isReached ? 'reached' : 'missed',
    };
  });
}

/** Why a run is not a success; empty: every safe cell passed, and every unsafe one was seen to fail. */
export function failuresOf(
  rows: readonly SummaryRow[],
  broken: readonly {
    readonly cell: string;
    readonly round: number;
    readonly reason: string;
    readonly missing: boolean;
  }[],
): string[] {
  if (rows.length === 0) return ['nothing was measured'];
  const failed = broken
    .filter(({ missing }) => !missing)
    .map(({ cell, round, reason }) => `${cell}: the trial of round ${round} could not be run: ${reason}`);
  const cells = groupBy(rows, ({ cell }) => cell).flatMap((own) => {
    const [first] = own;
    const verdicts = own.map(({ verdict }) => verdict);
    if (first === undefined) return [];
    if (first.unsafe) {
      if (verdicts.includes('fail (expected)')) return [];
      return [`${first.cell} is declared unsafe, but this load did not show it`];
    }
    if (verdicts.includes('fail')) return [`${first.cell}: the audit failed`];
    return verdicts.includes('unknown') ? [`${first.cell}: the audit could not be finished`] : [];
  });
  return [...failed, ...cells];
}
