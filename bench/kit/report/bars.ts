/**
 * Charts of bars, as HTML: lists whose bars have their length from custom properties, so that one drawing fits a phone and a
 * desk, text stays selectable, and the script can stretch the remaining bars when others are switched off.
 */
import type { Results } from '../results.ts';
import type { MetricInfo } from '../suite.ts';
import type { SummaryRow } from '../summary.ts';
import { html, Markup, nothing } from './markup.ts';
import { figure, tick, withUnit } from './numbers.ts';
import { axisOf, inPlanOrder, isCorrect, metricOf } from './rows.ts';
import { logScale } from './scale.ts';
import { bestText } from './table.ts';
import { goalBound, goalName, goalUnit, rankText, worstCheck } from './words.ts';

/** What every chart needs: the results, the rows to draw, and the number of each cell on the page. */
export interface Drawn {
  readonly results: Results;
  readonly rows: readonly SummaryRow[];
  readonly numberOf: (cell: string) => number;
}

const styled = (properties: Readonly<Record<string, number>>): Markup =>
  new Markup(
    Object.entries(properties)
      .map(([name, value]) => `--${name}:${Number(value.toPrecision(4))}`)
      .join(';'),
  );

const chart = (kind: string, max: number, items: readonly Markup[]): Markup =>
  html`<ul class="bars ${kind}" style="${styled({ max: max || 1 })}">${items}</ul>`;

const name = (cell: string): Markup => html`<span class="name">${cell}</span>`;

/** A row of a chart, which a checkbox switches off; `longest` is what its bar needs of the scale. */
function item({ numberOf }: Drawn, row: SummaryRow, longest: number, content: Markup): Markup {
  const kind = isCorrect(row) ? 'ok' : 'wrong';
  return html`<li class="${kind}" data-s="${numberOf(row.cell)}" data-v="${longest}">${content}</li>`;
}

/** A name, a track and a text. */
const line = (cell: string, track: Markup | readonly Markup[], text: string): Markup =>
  html`${name(cell)}<span class="track">${track}</span><b>${text}</b>`;

const legendOf = (kinds: readonly string[], metrics: readonly MetricInfo[]): Markup =>
  html`<p class="legend">${metrics.map(({ title }, index) => html`<span><i class="${kinds[index] ?? ''}"></i>${title}</span>`)}</p>`;

/** Correctness beside a bar: a sign and a word, so that color is not needed. */
function audit(row: SummaryRow, { results }: Drawn): Markup {
  const { verdict } = row;
  if (verdict === null) return nothing;
  const wrong = worstCheck(row, results) || 'audit failed';
  const [kind, text] = {
    pass: row.unsafe ? (['unknown', '? not seen to fail'] as const) : (['pass', '✓ audit passed'] as const),
    unknown: ['unknown', '? not known'] as const,
    fail: ['fail', `✗ ${wrong}`] as const,
    'fail (expected)': ['fail', `✗ ${wrong}, as expected`] as const,
  }[verdict];
  return html`<span class="audit ${kind}">${text}</span>`;
}

/** The ranking: the leading metric with its interval, at its best behind it, correctness beside it. */
export function rankingBars(drawn: Drawn, key: string): Markup {
  const { results, rows } = drawn;
  const { unit, title } = metricOf(results, key);
  const top = (row: SummaryRow): number => Math.max(row.values[key]?.high ?? 0, row.best?.value.median ?? 0);
  const items = rows.map((row) => {
    const value = row.values[key];
    const best =
      isCorrect(row) && row.best !== null && row.best.value.median > (value?.median ?? 0) ? row.best : null;
    const bars = [
      ...(best === null ? [] : [['best', { v: best.value.median }] as const]),
      ...(value === undefined ? [] : [['fill', { v: value.median }] as const]),
      ...(value === undefined || value.rounds < 2
        ? []
        : [['whisker', { a: value.low, b: value.high }] as const]),
    ];
    const bar = bars.map(([kind, sizes]) => html`<i class="${kind}" style="${styled(sizes)}"></i>`);
    const beside = [
      value === undefined && row.invalid > 0 ? 'does not count: see the findings' : '',
      row.toBaseline === null ? '' : `${figure(row.toBaseline.median, '×')}×`,
      best === null ? '' : `best ${bestText(row, results)}`,
    ].filter((text) => text !== '');
    const text = value === undefined ? '–' : figure(value.median, unit);
    const content = html`<span class="rank">${rankText(row)}</span>${line(row.cell, bar, text)}<span class="beside">${beside.join(' · ')}</span>${audit(row, drawn)}`;
    return item(drawn, row, top(row), content);
  });
  const { baseline, ladder } = results.plan;
  const legend = [
    `${title}; the line on each bar is its 95 % interval.`,
    ...(rows.some(({ toBaseline }) => toBaseline !== null)
      ? [`×: multiple of ${baseline} in the same round.`]
      : []),
    ...(ladder !== null && rows.some(({ best }) => best !== null)
      ? [`Paler: at the number of ${axisOf(results, ladder.axis).title} that is best for it.`]
      : []),
  ].join(' ');
  return html`${chart('ranking', Math.max(...rows.map(top)), items)}<p class="note">${legend}</p>`;
}

/** A list that ranks nothing: correctness alone, for runs with one round. */
export function correctnessList(drawn: Drawn): Markup {
  const items = inPlanOrder(drawn.rows, drawn.results).map(
    (row) => html`<li data-s="${drawn.numberOf(row.cell)}">${name(row.cell)}${audit(row, drawn)}</li>`,
  );
  return html`<ul class="bars correctness">${items}</ul>`;
}

/** Best first; what was not measured last. */
function sorted(rows: readonly SummaryRow[], { key, better }: MetricInfo): SummaryRow[] {
  const worst = better === 'lower' ? Number.POSITIVE_INFINITY : Number.NEGATIVE_INFINITY;
  const at = (row: SummaryRow): number => row.values[key]?.median ?? worst;
  return [...rows].sort((a, b) => (better === 'lower' ? at(a) - at(b) : at(b) - at(a)) || 0);
}

/** One panel of bars for each metric; metrics of the same unit have the same scale. */
export function metricBars(drawn: Drawn, keys: readonly string[]): Markup {
  const { results, rows } = drawn;
  const metrics = keys.map((key) => metricOf(results, key));
  const panels = metrics.map((metric) => {
    const alike = metrics.filter(({ unit }) => unit === metric.unit).map(({ key }) => key);
    const medians = rows.flatMap(({ values }) => alike.map((key) => values[key]?.median ?? 0));
    const [min, max] = [Math.min(0, ...medians), Math.max(0, ...medians)];
    const items = sorted(rows, metric).map((row) => {
      const value = row.values[metric.key]?.median;
      const bar = value === undefined ? nothing : barOf(value, min, max);
      const text = value === undefined ? '–' : withUnit(value, metric.unit);
      return item(drawn, row, value ?? 0, line(row.cell, bar, text));
    });
    const heading = metrics.length === 1 ? nothing : html`<h4>${metric.title}</h4>`;
    return html`${heading}${chart('single', max, items)}`;
  });
  return html`${panels}`;
}

/** From 0, to the left where a value is negative. */
function barOf(value: number, min: number, max: number): Markup {
  if (min === 0) return html`<i class="fill" style="${styled({ v: value })}"></i>`;
  const place = (amount: number): number => (amount - min) / (max - min);
  const ends = { x: place(Math.min(0, value)), w: place(Math.max(0, value)) - place(Math.min(0, value)) };
  return html`<i class="fill signed" style="${styled(ends)}"></i>`;
}

/** The metrics of a row one behind the other: what they add up to is beside the bar. */
export function stackedBars(drawn: Drawn, keys: readonly string[]): Markup {
  const metrics = keys.map((key) => metricOf(drawn.results, key));
  const { unit = '', better = null } = metrics[0] ?? {};
  const sums = drawn.rows.map((row) => {
    const parts = keys.map((key) => row.values[key]?.median ?? 0);
    return { row, parts, sum: parts.reduce((total, part) => total + part, 0) };
  });
  const measured = sums.filter(({ sum }) => sum > 0);
  measured.sort((a, b) => (better === 'lower' ? a.sum - b.sum : b.sum - a.sum));
  const kinds = metrics.map((_, index) => `part p${index}`);
  const items = measured.map(({ row, parts, sum }) => {
    const bars = parts.map(
      (v, index) => html`<i class="${kinds[index] ?? ''}" style="${styled({ v })}"></i>`,
    );
    return item(
      drawn,
      row,
      sum,
      line(row.cell, html`<span class="stack">${bars}</span>`, withUnit(sum, unit)),
    );
  });
  return html`${legendOf(kinds, metrics)}${chart('single', Math.max(...measured.map(({ sum }) => sum)), items)}`;
}

/** From percentile to percentile on a logarithmic scale. */
export function rangeBars(drawn: Drawn, keys: readonly string[]): Markup {
  const metrics = keys.map((key) => metricOf(drawn.results, key));
  const last = metrics.at(-1);
  if (last === undefined) return nothing;
  const { unit } = last;
  const kinds = metrics.map((metric, index) => `dot ${metric === last ? 'last' : `d${index}`}`);
  const measured = sorted(drawn.rows, last).filter(({ values }) => values[last.key] !== undefined);
  const { place, ticks } = logScale(
    measured.flatMap(({ values }) => keys.flatMap((key) => values[key]?.median ?? [])),
  );
  const dot = (kind: string, value: number, text = ''): Markup =>
    html`<i class="${kind}" style="${styled({ x: place(value) })}">${text}</i>`;
  const items = measured.map((row) => {
    const found = metrics.flatMap(({ key }, index) => {
      const value = row.values[key]?.median;
      return value === undefined ? [] : [{ value, kind: kinds[index] ?? '' }];
    });
    const places = found.map(({ value }) => place(value));
    const span = styled({ x: Math.min(...places), w: Math.max(...places) - Math.min(...places) });
    const track = html`<i class="span" style="${span}"></i>${found.map(({ kind, value }) => dot(kind, value))}`;
    return item(
      drawn,
      row,
      0,
      line(row.cell, track, found.map(({ value }) => figure(value, unit)).join(' · ')),
    );
  });
  const axis = ticks.map((value) => dot('', value, tick(value)));
  const scale = html`<li class="axis" aria-hidden="true">${line(`${unit}, logarithmic`, axis, '')}</li>`;
  return html`${legendOf(kinds, metrics)}<ul class="bars ranges">${[...items, scale]}</ul>`;
}

/** Each goal with its value, its interval and its bound, at the same place for all: 1 is the goal. */
export function goalBars({ results }: Pick<Drawn, 'results'>): Markup {
  const items = results.goals.map((goal) => {
    const { value, verdict, atLeast, atMost, what } = goal;
    const unit = goalUnit(results, goal);
    const bound = atLeast ?? atMost ?? 0;
    const share = (amount: number): number =>
      bound === 0 ? (amount > 0 ? 1 : 0) : Math.min(2, amount / bound) / 2;
    const wanted = {
      a: atLeast === null ? 0 : share(atLeast),
      b: atMost === null ? 1 : share(atMost),
    };
    const bars = [
      [atLeast === null ? 'wanted most' : 'wanted', wanted] as const,
      ...(value === null
        ? []
        : [
            ['span', { x: share(value.low), w: share(value.high) - share(value.low) }] as const,
            ['dot', { x: share(value.median) }] as const,
          ]),
    ].map(([kind, sizes]) => html`<i class="${kind}" style="${styled(sizes)}"></i>`);
    const text = value === null ? '–' : withUnit(value.median, unit);
    const [kind, sign] = { reached: ['pass', '✓'], missed: ['fail', '✗'], 'not measured': ['unknown', '?'] }[
      verdict
    ] as [string, string];
    return html`<li title="${what}">${line(goalName(goal), bars, text)}<span class="beside">${goalBound(goal, unit)}</span><span class="audit ${kind}">${sign} ${verdict}</span></li>`;
  });
  return html`<ul class="bars goals">${items}</ul><p class="note">The shaded part of each line is what the goal asks for; the dot is the median of the rounds, its line the 95 % interval.</p>`;
}
