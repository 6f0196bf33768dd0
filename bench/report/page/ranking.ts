/** The ranking as a table: only the columns that say something of this run. */
import { baselineOf, label } from '../../plan.ts';
import type { RushRow, SummaryRow } from '../../summary.ts';
import type { Results } from '../results.ts';
import { milliseconds } from '../table.ts';
import { type Cell, html, type Markup, nothing, scrolling } from './markup.ts';
import { cpuSeconds, percent, rate, ratedInterval, seconds, times } from './numbers.ts';
import { ownShare } from './share.ts';

interface RankingColumn {
  readonly title: string;
  /** Columns next to each other with the same one have a title together; empty: none. */
  readonly group: string;
  cell(row: SummaryRow): Cell;
}

const unknown = '–';

/** @param name of the table, for those who do not see it */
export function rankingTable(rows: readonly SummaryRow[], results: Results, name: string): Markup {
  const columns = allColumns(results).filter(({ cell }) => rows.some((row) => cell(row) !== unknown));
  const body = rows.map((row) => html`<tr>${rankingCells(row, columns)}</tr>`);
  const table = html`<table class="ranking"><thead>${head(columns)}</thead><tbody>${body}</tbody></table>`;
  return scrolling(table, name);
}

function allColumns(results: Results): RankingColumn[] {
  const { plan, summary } = results;
  const baseline = baselineOf(summary, plan.baseline);
  const name = baseline === null ? 'baseline' : label(baseline);
  const share = ownShare(results);
  const same = `open, ${rate(plan.ratePerSecond)}/s`;
  const own = `open, ${share === null ? 'own share' : `${share} of own`}`;
  return [
    { title: 'accepted/s', group: '', cell: accepted },
    { title: `× ${name}`, group: '', cell: (row) => comparison(row, name) },
    { title: 'p50 ms', group: same, cell: ({ rush }) => latency(rush.fixed, 'p50') },
    { title: 'p99 ms', group: same, cell: ({ rush }) => latency(rush.fixed, 'p99') },
    { title: 'p50 ms', group: own, cell: ({ rush }) => latency(rush.share, 'p50') },
    { title: 'p99 ms', group: own, cell: ({ rush }) => latency(rush.share, 'p99') },
    { title: 'sold out after', group: '', cell: soldOutAfter },
    { title: 'round trips', group: '', cell: roundTrips },
    { title: 'CPU s per 10,000', group: '', cell: cpu },
    { title: 'first come', group: '', cell: shareToFirst },
  ];
}

function head(columns: readonly RankingColumn[]): Markup {
  const rows = columns.some(({ group }) => group !== '') ? 2 : 1;
  const tall = (title: string, align: string): Markup =>
    html`<th scope="col" rowspan="${rows}" class="${align}">${title}</th>`;
  const upper = columns.flatMap(({ title, group }, index) => {
    if (group === '') return [tall(title, `right${edge(columns, index)}`)];
    if (columns[index - 1]?.group === group) return [];
    const width = columns.filter((column) => column.group === group).length;
    return [html`<th scope="colgroup" colspan="${width}" class="group">${group}</th>`];
  });
  const lower = columns.flatMap(({ title, group }, index) =>
    group === '' ? [] : [html`<th scope="col" class="right${edge(columns, index)}">${title}</th>`],
  );
  const first = html`<tr>${[tall('rank', 'right'), tall('strategy', 'left'), ...upper]}</tr>`;
  return rows === 1 ? first : html`${first}<tr>${lower}</tr>`;
}

/** A line where a group begins, or the one before ends. */
function edge(columns: readonly RankingColumn[], index: number): string {
  const before = columns[index - 1]?.group ?? '';
  return before === columns[index]?.group ? '' : ' group';
}

function rankingCells(row: SummaryRow, columns: readonly RankingColumn[]): Markup[] {
  const { rank, tie } = row;
  return [
    html`<td class="right">${rank === null ? unknown : `${rank}${tie ? '=' : ''}`}</td>`,
    html`<th scope="row" class="left">${label(row)}</th>`,
    ...columns.map(({ cell }, index) => html`<td class="right${edge(columns, index)}">${cell(row)}</td>`),
  ];
}

function withSmall(value: string, small: string): Markup {
  return html`${value} <small>${small}</small>`;
}

function accepted({ acceptedInterval }: SummaryRow): Cell {
  if (acceptedInterval === null) return unknown;
  return withSmall(rate(acceptedInterval.median), ratedInterval(acceptedInterval));
}

function comparison(row: SummaryRow, baseline: string): Cell {
  const { toBaseline, comparison } = row;
  if (toBaseline === null) return label(row) === baseline ? 'baseline' : unknown;
  const range = `${times(toBaseline.low)} … ${times(toBaseline.high)}`;
  const word = comparison === null ? nothing : html` <span class="word ${comparison}">${comparison}</span>`;
  return html`${times(toBaseline.median)}${word} <small>${range}</small>`;
}

function latency(rush: RushRow | null, percentile: 'p50' | 'p99'): string {
  const spread = rush?.latencyMs?.[percentile];
  return spread === undefined ? unknown : milliseconds(spread.median);
}

function soldOutAfter({ timeToSellOutMs }: SummaryRow): string {
  return timeToSellOutMs === null ? 'not sold out' : seconds(timeToSellOutMs.median);
}

function roundTrips({ roundTrips: trips }: SummaryRow): Cell {
  if (trips === null) return unknown;
  const stores = `${rate(trips.redis)} Redis, ${rate(trips.postgres)} Postgres`;
  return withSmall(rate(trips.redis + trips.postgres), stores);
}

function cpu({ cost }: SummaryRow): Cell {
  const parts = cost === null ? [] : [cost.cpu.service, cost.cpu.redis, cost.cpu.postgres];
  if (parts.every((part) => part === null)) return unknown;
  const total = cpuSeconds(parts.reduce<number>((sum, part) => sum + (part ?? 0), 0));
  return parts.includes(null) ? withSmall(total, 'in part') : total;
}

function shareToFirst({ rush }: SummaryRow): string {
  const share = rush.fixed?.firstComeShare ?? rush.share?.firstComeShare ?? null;
  return share === null ? unknown : percent(share.median);
}
