/** The tables of a report as rows of text: the same cells on the terminal, in Markdown and in HTML. */

import { number, quantity } from '../../../lab/kit/text.ts';
import type { Results } from '../results.ts';
import type { SummaryRow } from '../summary.ts';
import { columnTitle, figure, range } from './numbers.ts';
import {
  axisOf,
  axisValues,
  cellsIn,
  compared,
  groupsOf,
  inPlanOrder,
  isRanked,
  metricOf,
  sweptBy,
} from './rows.ts';
import { bestText, pointText, rankText, ratioName, worstCheck } from './words.ts';

/** A column of text, or of figures, which are aligned to the right. */
export type Column = readonly [title: string, align: 'left' | 'right'];

export interface Table {
  readonly title: string;
  readonly columns: readonly Column[];
  readonly rows: readonly (readonly string[])[];
}

/** A column with the text of each row. */
type Field = readonly [...Column, text: (row: SummaryRow) => string];

const none = '–';

type Rows = readonly SummaryRow[];

/** Rows by rank, or in the order of the plan if nothing is ranked. Empty columns are left out. */
function tableOf(title: string, results: Results, group: Rows, fields: readonly Field[]): Table {
  const rows = isRanked(results) ? group : inPlanOrder(group, results);
  const shown = fields.filter(([, , text]) => rows.some((row) => text(row) !== none));
  return {
    title,
    columns: shown.map(([name, align]) => [name, align]),
    rows: rows.map((row) => shown.map(([, , text]) => text(row))),
  };
}

function figures(results: Results, key: string): Field {
  const metric = metricOf(results, key);
  const text = ({ values }: SummaryRow): string =>
    values[key] === undefined ? none : figure(values[key].median, metric.unit);
  return [columnTitle(metric), 'right', text];
}

const cellField = ({ layout }: Results): Field => [layout.noun, 'left', ({ cell }) => cell];
const bestField = (results: Results): Field => ['at its best', 'right', (row) => bestText(row, results)];
const auditText = (row: SummaryRow, results: Results): string =>
  [row.verdict ?? none, worstCheck(row, results)].filter(Boolean).join(': ');
const auditField = (results: Results): Field => ['audit', 'left', (row) => auditText(row, results)];

/** The comparison: rank, the metrics that the layout chooses, the verdict. */
export function mainTable(results: Results, rows: Rows, title = 'The comparison'): Table {
  const { layout, plan } = results;
  const { lead, columns } = layout;
  const { unit } = metricOf(results, lead);
  const interval = ({ values }: SummaryRow): string => (values[lead] ? range(values[lead], unit) : none);
  const toBaseline = (row: SummaryRow): string =>
    row.toBaseline === null ? none : figure(row.toBaseline.median, '×');
  const ranked = isRanked(results);
  const ranking: Field[] = [[`× ${plan.baseline}`, 'right', toBaseline], bestField(results)];
  const leading: Field[] = [['95 %', 'right', interval], ...(ranked ? ranking : [])];
  const fields = columns.flatMap((key) => [figures(results, key), ...(key === lead ? leading : [])]);
  const rank: Field[] = ranked ? [['rank', 'right', rankText]] : [];
  return tableOf(title, results, rows, [...rank, cellField(results), ...fields, auditField(results)]);
}

/** The comparison in few columns, without the A/A control. @param keys of the metrics after the leading one */
export function shortTable(results: Results, keys: readonly string[]): Table {
  const { layout, plan } = results;
  const [title, align, text] = figures(results, layout.lead);
  const axis = plan.ladder === null ? '' : axisOf(results, plan.ladder.axis).title;
  const fields: Field[] = [
    [plan.ladder === null ? title : `${title} at ${number(plan.ladder.lead)} ${axis}`, align, text],
    [`at its best (${axis})`, 'right', (row) => bestText(row, results)],
    ...keys.map((key) => figures(results, key)),
  ];
  const rows = compared(groupsOf(results)[0]?.rows ?? []);
  return tableOf('', results, rows, [cellField(results), ...fields, auditField(results)]);
}

/** A comparison for each point of the plan. */
export const comparisons = (results: Results): Table[] =>
  groupsOf(results).map(({ point, rows }, _, { length }) =>
    length === 1 ? mainTable(results, rows) : mainTable(results, rows, pointText(results, point)),
  );

/** Every metric that the main table leaves out, and the leading metric round by round. */
function otherFigures(results: Results, rows: Rows): Table {
  const { lead, columns } = results.layout;
  const { title, unit } = metricOf(results, lead);
  const others = results.metrics.filter(({ key }) => !columns.includes(key));
  const rounds = ({ values }: SummaryRow): string => {
    const all = values[lead]?.byRound ?? [];
    return all.length < 2 ? none : all.map(([, value]) => figure(value, unit)).join(' · ');
  };
  const fields = others.map(({ key }) => figures(results, key));
  const byRound: Field = [`${title}, round by round`, 'left', rounds];
  return tableOf('Other figures', results, rows, [cellField(results), ...fields, byRound]);
}

export function ratiosTable({ ratios }: Results): Table {
  const rows = ratios.map((ratio) => {
    const { value } = ratio;
    const interval = value === null || value.rounds < 2 ? none : range(value, '×');
    return [ratioName(ratio), value === null ? none : figure(value.median, '×'), interval];
  });
  return { title: 'Ratios', columns: columnsOf(['ratio', 'median', '95 %'], 'right'), rows };
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
  const rounds = Math.max(0, ...rows.map((row) => row.values[key]?.rounds ?? 0));
  return {
    title: `${title} by ${axisOf(results, axis).title}, ${quantity(rounds, 'round')}`,
    columns: columnsOf([results.layout.noun, ...values.map(number)], 'right'),
    rows: cellsIn(rows).map((name) => [name, ...values.map((at) => text(name, at))]),
  };
}

/** The first column is text; `kind` aligns the others. */
const columnsOf = (titles: readonly string[], kind: Column[1]): Column[] =>
  titles.map((title, n) => [title, n === 0 ? 'left' : kind]);

const isFigure = (text: string): boolean => /^[–\d]/.test(text);

/** The tables that only this suite has. Columns of figures are aligned to the right. */
export const extraTables = ({ tables }: Results): Table[] =>
  tables.map(({ title, columns, rows }) => ({
    ...{ title, rows },
    columns: columns.map((name, n) => [name, rows.every((row) => isFigure(row[n]!)) ? 'right' : 'left']),
  }));

/** Matrices as tables of words. */
const matrixTables = ({ matrices = [] }: Results): Table[] =>
  matrices.map(({ title, noun, columns, rows }) => ({
    title,
    columns: columnsOf([noun, ...columns.map((column) => column.title)], 'left'),
    rows: rows.map(({ name, cells }) => [
      name,
      ...cells.map(({ word, figure }) => `${word} ${figure}`.trim()),
    ]),
  }));

const tieHelp =
  'By the median. 1= is a tie: the difference from the first row of that rank is within the noise.';
const intervalHelp = 'Where the median of a repeated run is expected: a bootstrap over the rounds.';

/** What was compared, and what the words mean. */
export function glossary({ metrics, checks, summary, plan, layout }: Results): Table[] {
  const used = metrics.filter(({ key }) => summary.some(({ values }) => values[key] !== undefined));
  const words = [...used, ...checks].map(({ title, help = '' }) => [title, help]);
  const cells = plan.cells.map(({ name, summary, control }) => [name, control ? '' : summary]);
  const table = (title: string, first: string, rows: readonly (readonly string[])[]): Table => {
    const meant = rows.filter(([, meaning]) => meaning !== '');
    return { title, columns: columnsOf([first, 'meaning'], 'left'), rows: meant };
  };
  const statistics = [
    ['rank, 1=', tieHelp],
    ['95 %', intervalHelp],
  ];
  const all = [
    table('What was compared', layout.noun, cells),
    table('Words', 'word', [...words, ...statistics]),
  ];
  return all.filter(({ rows }) => rows.length > 0);
}

/** Every table of a report, in the order in which both formats show them. */
export function allTables(results: Results, sweeps: readonly Results[]): Table[] {
  const { layout, ratios } = results;
  const [group, ...more] = groupsOf(results);
  const swept = layout.sections.flatMap(({ charts }) => charts.filter((chart) => chart.kind === 'sweep'));
  const tables = [
    ...(ratios.length === 0 ? [] : [ratiosTable(results)]),
    ...comparisons(results),
    ...extraTables(results),
    ...matrixTables(results),
    ...swept.flatMap(({ axis, metric }) => sweepTable([results, ...sweeps], axis, metric) ?? []),
    ...(group !== undefined && more.length === 0 ? [otherFigures(results, group.rows)] : []),
  ];
  return tables.filter(({ columns, rows }) => columns.length > 1 && rows.length > 0);
}
