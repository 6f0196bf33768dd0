/**
 * Charts of bars, as HTML: lists whose bars have their length from custom properties, so that one drawing fits a phone and a
 * desk, text stays selectable, and the script can stretch the remaining bars when others are switched off.
 */
import type { Results } from '../results.ts';
import type { MetricInfo } from '../suite.ts';
import type { SummaryRow } from '../summary.ts';
import { html, Markup, nothing } from './markup.ts';
import { figure, range, tick, withUnit } from './numbers.ts';
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
  const { results, rows, numberOf } = drawn;
  const { unit, title } = metricOf(results, key);
  const top = (row: SummaryRow): number => Math.max(row.values[key]?.high ?? 0, row.best?.value.median ?? 0);
  const items = rows.map((row) => {
    const value = row.values[key];
    const best =
      isCorrect(row) && row.best !== null && row.best.value.median > (value?.median ?? 0) ? row.best : null;
    const bar =
      value === undefined
        ? nothing
        : html`${best === null ? nothing : html`<i class="best" style="${styled({ v: best.value.median })}"></i>`}<i class="fill" style="${styled({ v: value.median })}"></i>${
            value.rounds < 2
              ? nothing
              : html`<i class="whisker" style="${styled({ a: value.low, b: value.high })}"></i>`
          }`;
    const spread = value === undefined || value.rounds < 2 ? '' : `95 %: ${range(value, unit)}`;
    const beside = [
      value === undefined && row.invalid > 0 ? 'does not count: see the findings' : '',
      row.toBaseline === null ? '' : `${figure(row.toBaseline.median, '×')}×`,
      best === null ? '' : `best ${bestText(row, results)}`,
    ].filter((text) => text !== '');
    return html`<li class="${isCorrect(row) ? 'ok' : 'wrong'}" data-s="${numberOf(row.cell)}" data-v="${top(row)}">
<span class="rank">${rankText(row)}</span>${name(row.cell)}<span class="track">${bar}</span><b title="${spread}">${
      value === undefined ? '–' : figure(value.median, unit)
    }</b><span class="beside">${beside.join(' · ')}</span>${audit(row, drawn)}</li>`;
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
export function metricBars({ results, rows, numberOf }: Drawn, keys: readonly string[]): Markup {
  const metrics = keys.map((key) => metricOf(results, key));
  const panels = metrics.map((metric) => {
    const alike = metrics.filter(({ unit }) => unit === metric.unit).map(({ key }) => key);
    const medians = rows.flatMap(({ values }) => alike.map((key) => values[key]?.median ?? 0));
    const [min, max] = [Math.min(0, ...medians), Math.max(0, ...medians)];
    const items = sorted(rows, metric).map((row) => {
      const value = row.values[metric.key];
      const bar = value === undefined ? nothing : barOf(value.median, min, max);
      const text = value === undefined ? '–' : withUnit(value.median, metric.unit);
      return html`<li class="${isCorrect(row) ? 'ok' : 'wrong'}" data-s="${numberOf(row.cell)}" data-v="${value?.median ?? 0}">${name(row.cell)}<span class="track">${bar}</span><b>${text}</b></li>`;
    });
    const heading = metrics.length === 1 ? nothing : html`<h4>${metric.title}</h4>`;
    return html`<div>${heading}${chart('single', max, items)}</div>`;
  });
  return metrics.length === 1 ? html`${panels}` : html`<div class="columns">${panels}</div>`;
}

/** From 0, to the left where a value is negative. */
function barOf(value: number, min: number, max: number): Markup {
  if (min === 0) return html`<i class="fill" style="${styled({ v: value })}"></i>`;
  const place = (amount: number): number => (amount - min) / (max - min);
  const ends = { x: place(Math.min(0, value)), w: place(Math.max(0, value)) - place(Math.min(0, value)) };
  return html`<i class="fill signed" style="${styled(ends)}"></i>`;
}

/** The metrics of a row one behind the other: what they add up to is beside the bar. */
export function stackedBars({ results, rows, numberOf }: Drawn, keys: readonly string[]): Markup {
  const metrics = keys.map((key) => metricOf(results, key));
  const parts = (row: SummaryRow): number[] => keys.map((key) => row.values[key]?.median ?? 0);
  const sum = (row: SummaryRow): number => parts(row).reduce((total, part) => total + part, 0);
  const measured = rows.filter((row) => sum(row) > 0);
  const ascending = metrics[0]?.better === 'lower' ? 1 : -1;
  const items = [...measured]
    .sort((a, b) => ascending * (sum(a) - sum(b)))
    .map((row) => {
      const bars = parts(row).map(
        (part, index) => html`<i class="part p${index}" style="${styled({ v: part })}"></i>`,
      );
      const each = parts(row).map(
        (part, index) => `${metrics[index]?.title} ${figure(part, metrics[index]?.unit ?? '')}`,
      );
      return html`<li class="${isCorrect(row) ? 'ok' : 'wrong'}" data-s="${numberOf(row.cell)}" data-v="${sum(row)}" title="${each.join(', ')}">${name(row.cell)}<span class="track stack">${bars}</span><b>${withUnit(sum(row), metrics[0]?.unit ?? '')}</b></li>`;
    });
  const legend = metrics.map(({ title }, index) => html`<span><i class="part p${index}"></i>${title}</span>`);
  return html`<p class="legend">${legend}</p>${chart('single', Math.max(...measured.map(sum)), items)}`;
}

/** From percentile to percentile on a logarithmic scale. */
export function rangeBars({ results, rows, numberOf }: Drawn, keys: readonly string[]): Markup {
  const metrics = keys.map((key) => metricOf(results, key));
  const last = metrics.at(-1);
  if (last === undefined) return nothing;
  const { unit } = last;
  const kinds = metrics.map((_, index) => (index === metrics.length - 1 ? 'last' : `d${index}`));
  const measured = sorted(rows, last).filter(({ values }) => values[last.key] !== undefined);
  const scale = logScale(measured.flatMap(({ values }) => keys.flatMap((key) => values[key]?.median ?? [])));
  const items = measured.map((row) => {
    const found = metrics.flatMap(({ key }, index) => {
      const value = row.values[key]?.median;
      return value === undefined ? [] : [{ value, place: scale.place(value), kind: kinds[index] ?? '' }];
    });
    const places = found.map(({ place }) => place);
    const dots = found.map(
      ({ place, kind }) => html`<i class="dot ${kind}" style="${styled({ x: place })}"></i>`,
    );
    const span = styled({ x: Math.min(...places), w: Math.max(...places) - Math.min(...places) });
    const text = found.map(({ value }) => figure(value, unit)).join(' · ');
    return html`<li class="${isCorrect(row) ? 'ok' : 'wrong'}" data-s="${numberOf(row.cell)}">${name(row.cell)}<span class="track"><i class="span" style="${span}"></i>${dots}</span><b>${text}</b></li>`;
  });
  const ticks = scale.ticks.map(
    (value) => html`<i style="${styled({ x: scale.place(value) })}">${tick(value)}</i>`,
  );
  const legend = metrics.map(
    ({ title }, index) => html`<span><i class="dot ${kinds[index]}"></i>${title}</span>`,
  );
  const axis = html`<li class="axis" aria-hidden="true"><span class="name">${unit}, logarithmic</span><span class="track">${ticks}</span><b></b></li>`;
  return html`<p class="legend">${legend}</p><ul class="bars ranges">${[...items, axis]}</ul>`;
}

/** Each goal with its value, its interval and its bound, at the same place for all: 1 is the goal. */
export function goalBars({ results }: Pick<Drawn, 'results'>): Markup {
  const items = results.goals.map((goal) => {
    const { value, verdict, atLeast, atMost } = goal;
    const unit = goalUnit(results, goal);
    const bound = atLeast ?? atMost ?? 0;
    const text = value === null ? '–' : withUnit(value.median, unit);
    const low = atLeast ?? Number.NEGATIVE_INFINITY;
    const share = (amount: number): number =>
      bound === 0 ? (amount > 0 ? 1 : 0) : Math.min(2, amount / bound) / 2;
    const ends = { a: atLeast === null ? 0 : share(low), b: atMost === null ? 1 : share(atMost) };
    const bars =
      value === null
        ? nothing
        : html`<i class="span" style="${styled({ x: share(value.low), w: share(value.high) - share(value.low) })}"></i><i class="dot" style="${styled({ x: share(value.median) })}"></i>`;
    const sign = { reached: '✓ reached', missed: '✗ missed', 'not measured': '? not measured' }[verdict];
    const kind = { reached: 'pass', missed: 'fail', 'not measured': 'unknown' }[verdict];
    return html`<li title="${goal.what}">${name(goalName(goal))}<span class="track"><i class="wanted${atLeast === null ? ' most' : ''}" style="${styled(ends)}"></i>${bars}</span><b>${text}</b><span class="beside">${goalBound(goal, unit)}</span><span class="audit ${kind}">${sign}</span></li>`;
  });
  return html`<ul class="bars goals">${items}</ul><p class="note">The shaded part of each line is what the goal asks for; the dot is the median of the rounds, its line the 95 % interval.</p>`;
}
