/** Which rows of the summary a report shows, and in which order. */
import { groupBy } from '../../../lab/kit/group-by.ts';
import type { Results } from '../results.ts';
import type { MetricInfo, Point, Unit } from '../suite.ts';
import type { SummaryRow } from '../summary.ts';

/** The rows of all cells at one point, at the leading step of the ladder. */
export interface Group {
  readonly point: Point;
  readonly rows: readonly SummaryRow[];
}

/** One group for each point of the plan; a sweep has several. */
export function groupsOf({ summary, plan: { ladder } }: Results): Group[] {
  const leading = summary.filter(
    ({ point }) => ladder === null || [undefined, ladder.lead].includes(point[ladder.axis]),
  );
  const groups = groupBy(leading, ({ point }) => JSON.stringify(Object.entries(point).sort()));
  return [...groups.values()].map((rows) => ({ point: rows[0]?.point ?? {}, rows }));
}

/** Rows in the order of the plan, for unranked runs. */
export function inPlanOrder(rows: readonly SummaryRow[], { plan }: Pick<Results, 'plan'>): SummaryRow[] {
  const place = ({ cell }: SummaryRow): number => plan.cells.findIndex(({ name }) => name === cell);
  return [...rows].sort((a, b) => place(a) - place(b));
}

/** Rows that charts and rankings compare: no A/A control, which only measures noise. */
export function compared(rows: readonly SummaryRow[]): SummaryRow[] {
  return rows.filter(({ control }) => !control);
}

/** Names of cells, each once. */
export const cellsIn = (rows: readonly SummaryRow[]): string[] => [...new Set(rows.map(({ cell }) => cell))];

/** Each finding once per cell, over all points; cells without findings are left out. */
export function findingsOf(rows: readonly SummaryRow[]): { cell: string; findings: string[] }[] {
  return cellsIn(rows).flatMap((cell) => {
    const findings = [...new Set(rows.flatMap((row) => (row.cell === cell ? row.findings : [])))];
    return findings.length === 0 ? [] : [{ cell, findings }];
  });
}

/** Whether its figures may be ranked: safe and passed, or nothing to judge. */
export function isCorrect({ verdict, unsafe }: SummaryRow): boolean {
  return (verdict === 'pass' && !unsafe) || verdict === null;
}

/** Whether the suite ranks its cells at all. */
export function hasRanking({ layout }: Pick<Results, 'layout'>): boolean {
  return layout.sections.some(({ charts }) => charts.some(({ kind }) => kind === 'ranking'));
}

/** Whether the run carries a ranking: one round cannot separate a difference from noise. */
export function isRanked(results: Results): boolean {
  const { smoke, summary, layout } = results;
  const isRepeated = ({ values }: SummaryRow): boolean => (values[layout.lead]?.rounds ?? 0) > 1;
  return hasRanking(results) && !smoke && summary.some((row) => row.rank !== null && isRepeated(row));
}

/** Names of all compared cells, first results first. The index is the cell's number in all charts. */
export function cellNames(all: readonly Results[]): string[] {
  return cellsIn(all.flatMap(({ summary }) => compared(summary)));
}

/** @throws when a layout names a metric that the suite does not have */
export function metricOf({ metrics, suite }: Pick<Results, 'metrics' | 'suite'>, key: string): MetricInfo {
  const metric = metrics.find((candidate) => candidate.key === key);
  if (metric === undefined) throw new Error(`the suite ${suite} has no metric ${key}`);
  return metric;
}

const usualAxes: Readonly<Record<string, { readonly title: string; readonly unit: Unit }>> = {
  rttMs: { title: 'ms added to each round trip', unit: 'ms' },
  connections: { title: 'connections', unit: '' },
  sales: { title: 'sales', unit: '' },
};

export function axisOf({ layout }: Pick<Results, 'layout'>, key: string): { title: string; unit: Unit } {
  return layout.axes?.[key] ?? usualAxes[key] ?? { title: key, unit: '' };
}

/** Values of an axis that a run measured, ascending. */
export function axisValues({ summary }: Pick<Results, 'summary'>, axis: string): number[] {
  return [...new Set(summary.flatMap(({ point }) => point[axis] ?? []))].sort((a, b) => a - b);
}

/** The results with the most values of the axis, for its chart; undefined: no run swept the axis. */
export function sweptBy(all: readonly Results[], axis: string): Results | undefined {
  const swept = all.filter((results) => axisValues(results, axis).length > 1);
  return swept.sort((a, b) => axisValues(b, axis).length - axisValues(a, axis).length)[0];
}
