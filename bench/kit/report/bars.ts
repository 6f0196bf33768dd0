/**
 * Charts of bars, as HTML lists. Custom properties place the marks of a row, so that one drawing fits a phone and a desktop,
 * and text stays selectable. `--s<n>` is 0 while cell n is switched off: the longest bar shown fills its track.
 */
import type { Results } from '../results.ts';
import type { MetricInfo } from '../suite.ts';
import type { SummaryRow } from '../summary.ts';
import { html, type Markup, nothing } from './markup.ts';
import { figure, tick, withUnit } from './numbers.ts';
import { axisOf, inPlanOrder, isCorrect, isRanked, metricOf } from './rows.ts';
import { logScale } from './scale.ts';
import { bestText, rankText, worstCheck } from './words.ts';

/** What every chart needs: the results, the rows to draw, and the number of each cell on the page. */
export interface Drawn {
  readonly results: Results;
  readonly rows: readonly SummaryRow[];
  readonly numberOf: (cell: string) => number;
}

/** On the chart's scale; the text is written at the mark. */
type Mark = readonly [kind: string, from: number, to: number, text?: string];

interface Bar {
  /** Undefined: the axis. */
  readonly row?: SummaryRow;
  readonly marks: readonly Mark[];
  /** The figure at the end of the track. */
  readonly text: string;
  readonly rank?: string;
  readonly beside?: string;
  readonly sign?: Markup;
}

const digits = (value: number): number => Number(value.toPrecision(4));

/** @param to where the track ends; null: with the longest bar shown, and the track begins at 0 or the lowest bar */
function chart(kind: string, bars: readonly Bar[], to: number | null, { numberOf }: Drawn): Markup {
  const low = to === null ? Math.min(0, ...bars.flatMap(({ marks }) => marks.map(([, from]) => from))) : 0;
  const optional = (name: string, text: string | undefined): Markup =>
    text === undefined ? nothing : html`<span class="${name}">${text}</span>`;
  const items = bars.map(({ row, marks, text, rank, beside, sign = nothing }) => {
    const track = marks.map(
      ([mark, from, end, label = '']) =>
        html`<i class="${mark}" style="--x:${digits(from - low)};--w:${digits(end - from)}">${label}</i>`,
    );
    const parts = html`<span class="track">${track}</span><b>${text}</b>${optional('beside', beside)}${sign}`;
    if (row === undefined) return html`<li class="axis"><span></span>${parts}</li>`;
    return html`<li class="${isCorrect(row) ? 'ok' : 'wrong'}" data-s="${numberOf(row.cell)}">${optional('rank', rank)}${optional('name', row.cell)}${parts}</li>`;
  });
  const ends = bars.map(({ row, marks }) => {
    const end = digits(Math.max(0, ...marks.map((mark) => mark[2])) - low);
    return `${end}*var(--s${numberOf(row?.cell ?? '')},1)`;
  });
  return html`<ul class="bars ${kind}" style="--max:${to ?? `max(1e-9,${ends.join()})`}">${items}</ul>`;
}

const legend = (kinds: readonly string[], metrics: readonly MetricInfo[]): Markup =>
  html`<p class="legend">${metrics.map(({ title }, n) => html`<span><i class="${kinds[n] ?? ''}"></i>${title}</span>`)}</p>`;

const sign = (kind: 'pass' | 'fail' | 'unknown', text: string): Markup =>
  html`<span class="audit ${kind}">${{ pass: '✓', fail: '✗', unknown: '?' }[kind]} ${text}</span>`;

/** Correctness beside a bar: a sign and a word, so that color is not needed. @param value the bar; 0: it shows nothing that is correct */
function audit(row: SummaryRow, results: Results, value?: number): Markup {
  if (value === 0 && row.verdict === 'pass')
    return sign('unknown', `no ${results.layout.leadText.split(' a second')[0]}`);
  const wrong = worstCheck(row, results) || 'audit failed';
  if (row.verdict === 'pass')
    return row.unsafe ? sign('unknown', 'not seen to fail') : sign('pass', 'audit passed');
  if (row.verdict === 'unknown') return sign('unknown', 'not known');
  if (row.verdict === 'fail') return sign('fail', wrong);
  return row.verdict === null ? nothing : sign('fail', `${wrong}, as expected`);
}

/** The leading metric, its interval on it, the cell's best behind it, correctness beside it; unranked, correctness alone. */
export function rankingBars(drawn: Drawn, key: string): Markup {
  const { results, rows } = drawn;
  const { plan } = results;
  const { unit, title } = metricOf(results, key);
  if (!isRanked(results)) {
    const bare = { marks: [], text: '' };
    const bars = inPlanOrder(rows, results).map((row) => ({ ...bare, row, sign: audit(row, results) }));
    return chart('correctness', bars, 1, drawn);
  }
  const bars = rows.map((row): Bar => {
    const value = row.values[key];
    const best = isCorrect(row) ? (row.best?.value.median ?? 0) : 0;
    const marks: Mark[] = best > (value?.median ?? 0) ? [['best', 0, best]] : [];
    const beside = [
      value === undefined && row.invalid > 0 ? 'does not count: see the findings' : '',
      row.toBaseline === null ? '' : `${figure(row.toBaseline.median, '×')}×`,
      marks.length === 0 ? '' : `best ${bestText(row, results)}`,
    ];
    if (value !== undefined) marks.push(['fill p0', 0, value.median], ['whisker', value.low, value.high]);
    return {
      ...{ row, rank: rankText(row), marks, sign: audit(row, results, value?.median) },
      text: value === undefined ? '–' : figure(value.median, unit),
      beside: beside.filter((text) => text !== '').join(' · '),
    };
  });
  const notes = [`${title}; the line on each bar is its 95 % interval.`];
  if (rows.some(({ toBaseline }) => toBaseline !== null))
    notes.push(`×: multiple of ${plan.baseline} in the same round.`);
  if (plan.ladder !== null && rows.some(({ best }) => best !== null))
    notes.push(`Behind: at the number of ${axisOf(results, plan.ladder.axis).title} that is best for it.`);
  return html`${chart('ranking', bars, null, drawn)}<p class="note">${notes.join(' ')}</p>`;
}

/** Best first, unmeasured items last. */
function sorted<T>(items: readonly T[], value: (item: T) => number | undefined, metric: MetricInfo): T[] {
  const sign = metric.better === 'lower' ? 1 : -1;
  const at = (item: T): number => sign * (value(item) ?? sign * Number.POSITIVE_INFINITY);
  return [...items].sort((a, b) => at(a) - at(b) || 0);
}

/** Bars of one metric, or of several parts of a whole: end to end, with their sum. */
export function valueBars(drawn: Drawn, keys: readonly string[]): Markup {
  const metrics = keys.map((key) => metricOf(drawn.results, key));
  const kinds = metrics.map((_, n) => `fill p${n}`);
  const sums = drawn.rows.map((row) => {
    const parts = keys.map((key) => row.values[key]?.median);
    const known = parts.filter((part) => part !== undefined);
    return { row, parts, sum: known.length === 0 ? undefined : known.reduce((total, part) => total + part) };
  });
  const bars = sorted(sums, ({ sum }) => sum, metrics[0]!).map(({ row, parts, sum }): Bar => {
    let end = 0;
    const marks = parts.flatMap((part, n): Mark[] => {
      if (part === undefined) return [];
      const from = end;
      end += part;
      return [[kinds[n]!, Math.min(from, end), Math.max(from, end)]];
    });
    return { row, marks, text: sum === undefined ? '–' : withUnit(sum, metrics[0]!.unit) };
  });
  return html`${metrics.length > 1 ? legend(kinds, metrics) : nothing}${chart('single', bars, null, drawn)}`;
}

/** Lines between percentiles on a logarithmic scale. */
export function rangeBars(drawn: Drawn, keys: readonly string[]): Markup {
  const metrics = keys.map((key) => metricOf(drawn.results, key));
  const last = metrics.at(-1)!;
  const kinds = metrics.map((metric, n) => `dot ${metric === last ? 'last' : `d${n}`}`);
  const median = (row: SummaryRow, key: string): number | undefined => row.values[key]?.median;
  const measured = drawn.rows.filter((row) => median(row, last.key) !== undefined);
  const { place, ticks } = logScale(measured.flatMap((row) => keys.flatMap((key) => median(row, key) ?? [])));
  const bars = sorted(measured, (row) => median(row, last.key), last).map((row): Bar => {
    const values = keys.map((key) => median(row, key));
    const dots = values.map((value = 0, n): Mark => [kinds[n]!, place(value), place(value)]);
    const known = dots.filter((_, n) => values[n] !== undefined);
    const ends = known.map(([, at]) => at);
    const text = values.map((value) => (value === undefined ? '–' : figure(value, last.unit))).join(' · ');
    return { row, marks: [['span', Math.min(...ends), Math.max(...ends)], ...known], text };
  });
  const axis = ticks.map((value): Mark => ['tick', place(value), place(value), tick(value)]);
  return html`${legend(kinds, metrics)}${chart('ranges', [...bars, { marks: axis, text: `${last.unit}, logarithmic` }], 1, drawn)}`;
}
