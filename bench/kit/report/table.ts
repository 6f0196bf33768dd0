/** The tables of a report as rows of text: the same cells on the terminal, in Markdown and in HTML. */
import type { Results } from '../results.ts';
import type { SummaryRow } from '../summary.ts';
import { number } from '../text.ts';
import { columnTitle, figure, quantity, range, withUnit } from './numbers.ts';
import { axisOf, axisValues, compared, groupsOf, inPlanOrder, isRanked, metricOf, sweptBy } from './rows.ts';
import { goalBound, goalName, goalUnit, pointText, rankText, worstCheck } from './words.ts';

/** A column of text, or of figures, which are aligned to the right. */
export type Column = readonly [title: string, align: 'left' | 'right'];

export interface Table {
  readonly title: string;
  readonly columns: readonly Column[];
  readonly rows: readonly (readonly string[])[];
}

/** A column with the text of each row. */
interface Field {
  readonly title: string;
  readonly align: 'left' | 'right';
  readonly text: (row: SummaryRow) => string;
}

const none = '–';

/** A column that says nothing is left out. */
function tableOf(title: string, fields: readonly Field[], rows: readonly SummaryRow[]): Table {
  const shown = fields.filter(({ text }) => rows.some((row) => text(row) !== none));
  return {
    title,
    columns: shown.map(({ title, align }) => [title, align]),
    rows: rows.map((row) => shown.map(({ text }) => text(row))),
  };
}

function value(results: Results, key: string): Field {
  const metric = metricOf(results, key);
  const text = ({ values }: SummaryRow): string =>
    values[key] === undefined ? none : figure(values[key].median, metric.unit);
  return { title: columnTitle(metric), align: 'right', text };
}

const cell = ({ layout }: Results): Field => ({ title: layout.noun, align: 'left', text: (row) => row.cell });

/**
 * The comparison: rank, the metrics that the layout chooses, the verdict.
 * @param columns the leading metric alone, for the first page of the project
 */
export function mainTable(
  results: Results,
  group: readonly SummaryRow[],
  columns: readonly string[] = results.layout.columns,
): Table {
  const { layout, plan } = results;
  const ranked = isRanked(results);
  const rows = inOrder(group, results);
  const lead = metricOf(results, layout.lead);
  const short = columns.length === 1;
  const fields = columns.flatMap((key): Field[] => {
    if (key !== layout.lead) return [value(results, key)];
    const interval: Field[] = [
      {
        title: '95 %',
        align: 'right',
        text: ({ values }) => (values[key] === undefined ? none : range(values[key], lead.unit)),
      },
      {
        title: `× ${plan.baseline}`,
        align: 'right',
        text: ({ toBaseline }) => (toBaseline === null ? none : figure(toBaseline.median, '×')),
      },
      { title: 'at its best', align: 'right', text: (row) => bestText(row, results) },
    ];
    return [value(results, key), ...interval.slice(short ? 1 : 0, ranked ? 3 : 1)];
  });
  const rank: Field = { title: 'rank', align: 'right', text: rankText };
  const audit: Field = {
    title: 'audit',
    align: 'left',
    text: (row) => [row.verdict ?? none, worstCheck(row, results)].filter((text) => text !== '').join(': '),
  };
  return tableOf(`The comparison`, [...(ranked ? [rank] : []), cell(results), ...fields, audit], rows);
}

/** "13,020 at 256": the leading metric where the cell does best on the ladder. */
export function bestText({ best }: SummaryRow, { layout, metrics, suite, plan }: Results): string {
  if (best === null || plan.ladder === null) return none;
  const { unit } = metricOf({ metrics, suite }, layout.lead);
  return `${figure(best.value.median, unit)} at ${number(best.point[plan.ladder.axis] ?? plan.ladder.lead)}`;
}

/** By rank, or in the order of the plan where nothing is ranked. */
function inOrder(rows: readonly SummaryRow[], results: Results): readonly SummaryRow[] {
  return isRanked(results) ? rows : inPlanOrder(rows, results);
}

/** Every metric of every row that the main table leaves out. */
export function otherFigures(results: Results, rows: readonly SummaryRow[]): Table {
  const others = results.metrics.filter(({ key }) => !results.layout.columns.includes(key));
  const fields = others.map(({ key }) => value(results, key));
  return tableOf('Other figures, medians', [cell(results), ...fields], inOrder(rows, results));
}

/** The leading metric, round by round. */
export function roundsTable(results: Results, rows: readonly SummaryRow[]): Table {
  const { layout } = results;
  const { title, unit } = metricOf(results, layout.lead);
  const found = new Set(
    rows.flatMap(({ values }) => values[layout.lead]?.byRound.map(([round]) => round) ?? []),
  );
  const fields = [...found]
    .sort((a, b) => a - b)
    .map(
      (round): Field => ({
        title: `round ${round}`,
        align: 'right',
        text: ({ values }) => {
          const own = values[layout.lead]?.byRound.find(([number]) => number === round);
          return own === undefined ? none : figure(own[1], unit);
        },
      }),
    );
  return tableOf(`${title} in every round`, [cell(results), ...fields], inOrder(rows, results));
}

export function goalsTable(results: Results): Table {
  return {
    title: 'Goals',
    columns: [
      ['goal', 'left'],
      ['bound', 'left'],
      ['median', 'right'],
      ['lowest … highest', 'right'],
      ['verdict', 'left'],
    ],
    rows: results.goals.map((goal) => {
      const unit = goalUnit(results, goal);
      const values = goal.byRound.map(([, value]) => value);
      const ends = [Math.min(...values), Math.max(...values)].map((end) => figure(end, unit)).join(' … ');
      return [
        goalName(goal),
        goalBound(goal, unit),
        goal.value === null
          ? none
          : goal.over === null
            ? withUnit(goal.value.median, unit)
            : figure(goal.value.median, unit),
        values.length < 2 ? none : ends,
        goal.verdict,
      ];
    }),
  };
}

/** One metric along an axis: a line for each cell, a column for each value. Null: the axis was not swept. */
export function sweepTable(all: readonly Results[], axis: string, key: string): Table | null {
  const results = sweptBy(all, axis);
  if (results === undefined) return null;
  const { title, unit } = metricOf(results, key);
  const rows = compared(results.summary);
  const values = axisValues(results, axis);
  const text = (name: string, at: number): string => {
    const row = rows.find(({ cell, point }) => cell === name && point[axis] === at);
    const found = row?.values[key];
    if (row === undefined || found === undefined) return none;
    const wrong = row.verdict === 'fail' || row.verdict === 'unknown' ? ` (${row.verdict})` : '';
    return `${figure(found.median, unit)}${wrong}`;
  };
  const rounds = Math.max(0, ...rows.map(({ values }) => values[key]?.rounds ?? 0));
  return {
    title: `${title} by ${axisOf(results, axis).title}, ${quantity(rounds, 'round')}`,
    columns: [[results.layout.noun, 'left'], ...values.map((value): Column => [number(value), 'right'])],
    rows: [...new Set(rows.map(({ cell }) => cell))].map((name) => [
      name,
      ...values.map((value) => text(name, value)),
    ]),
  };
}

/** The tables that only this suite has: columns of figures are aligned to the right. */
export function extraTables({ tables }: Results): Table[] {
  return tables.map(({ title, columns, rows }) => ({
    title,
    columns: columns.map((name, index): Column => {
      const texts = rows.map((row) => row[index] ?? '').filter((text) => text !== '' && text !== none);
      return [name, texts.length > 0 && texts.every((text) => /^[−<>~]?\d/.test(text)) ? 'right' : 'left'];
    }),
    rows,
  }));
}

/** Every table of a report, in the order in which both formats show them. */
export function allTables(results: Results, sweeps: readonly Results[]): Table[] {
  const groups = groupsOf(results);
  const [group] = groups;
  if (group === undefined) return [];
  const axes = results.layout.sections.flatMap(({ charts }) =>
    charts.flatMap((chart) =>
      chart.kind === 'sweep' ? (sweepTable([results, ...sweeps], chart.axis, chart.metric) ?? []) : [],
    ),
  );
  const main = groups.map(({ point, rows }) => ({
    ...mainTable(results, rows),
    title: groups.length === 1 ? 'The comparison' : pointText(results, point),
  }));
  const rounds = Math.max(...group.rows.map(({ trials }) => trials));
  const details =
    groups.length === 1
      ? [otherFigures(results, group.rows), ...(rounds > 1 ? [roundsTable(results, group.rows)] : [])]
      : [];
  return [
    ...(results.goals.length === 0 ? [] : [goalsTable(results)]),
    ...main,
    ...extraTables(results),
    ...axes,
    ...details.filter(({ columns }) => columns.length > 1),
  ];
}
