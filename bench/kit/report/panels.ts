/**
 * Small multiples, as SVG: a panel for each cell with its line in front of the faint lines of all others. All panels of a chart
 * share their axes, so that they can be compared.
 */
import { placeTicks } from '../labels.ts';
import type { CurveInfo, Unit } from '../suite.ts';
import type { Drawn } from './bars.ts';
import { html, type Markup, nothing } from './markup.ts';
import { tick, withUnit } from './numbers.ts';
import { axisOf, axisValues, cellsIn, isCorrect, metricOf } from './rows.ts';
import { linearScale, logScale, type Scale } from './scale.ts';

/** In units of the drawing, each about one px on a phone; a single panel is larger. */
const sizes = { small: [170, 104], large: [340, 170] } as const;
const frame = { left: 32, right: 6, top: 8, bottom: 18 };
/** Least distance of ticks on the horizontal axis. */
const tickWidth = 30;

interface Line {
  readonly cell: string;
  readonly correct: boolean;
  readonly points: readonly (readonly [x: number, y: number])[];
  /** The line's ends in words, below the panel and for screen readers. */
  readonly text: string;
}

interface Axes {
  readonly x: Scale;
  readonly y: Scale;
  readonly xText: (value: number) => string;
  /** Marks the points; a curve has too many. */
  readonly dots: boolean;
  readonly note: string;
}

function panels(id: string, lines: readonly Line[], axes: Axes, numberOf: Drawn['numberOf']): Markup {
  const [width, height] = lines.length === 1 ? sizes.large : sizes.small;
  const round = (value: number): number => Math.round(value * 10) / 10;
  const right = (x: number): number =>
    round(frame.left + axes.x.place(x) * (width - frame.left - frame.right));
  const down = (y: number): number =>
    round(height - frame.bottom - axes.y.place(y) * (height - frame.top - frame.bottom));
  const path = ({ points }: Line): string => points.map(([x, y]) => `${right(x)},${down(y)}`).join(' ');
  const rows = axes.y.ticks.map(
    (y) =>
      html`<path d="M${frame.left} ${down(y)}H${width - frame.right}"/><text x="${frame.left - 3}" y="${down(y) + 3}" text-anchor="end">${tick(y)}</text>`,
  );
  const across = placeTicks(axes.x.ticks, right, tickWidth).map(
    (x) => html`<text x="${right(x)}" y="${height - 4}" text-anchor="middle">${axes.xText(x)}</text>`,
  );
  // Custom properties reach the copies that <use> makes; the selectors that switch cells off do not.
  const all = lines.map(
    (line) => html`<polyline style="display:var(--d${numberOf(line.cell)},inline)" points="${path(line)}"/>`,
  );
  const shared = html`<svg class="shared" aria-hidden="true"><defs><g id="${id}"><g class="grid">${rows}${across}</g><g class="others">${all}</g></g></defs></svg>`;
  const each = lines.map((line) => {
    const { cell, correct, points, text } = line;
    const dots = points.map(([x, y]) => html`<circle cx="${right(x)}" cy="${down(y)}" r="2.5"/>`);
    return html`<li class="${correct ? 'ok' : 'wrong'}" data-s="${numberOf(cell)}"><h4>${cell}</h4><svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${cell}: ${text}"><use href="#${id}"/><g class="own"><polyline points="${path(line)}"/>${axes.dots ? dots : nothing}</g></svg><p>${text}</p></li>`;
  });
  return html`${shared}<ul class="panels${lines.length === 1 ? ' one' : ''}">${each}</ul><p class="note">${axes.note}</p>`;
}

/** One metric along an axis of the points. */
export function sweepPanels(
  id: string,
  { results, rows, numberOf }: Drawn,
  axis: string,
  key: string,
): Markup {
  const { unit, title } = metricOf(results, key);
  const measured = rows.filter((row) => isCorrect(row) && row.values[key] !== undefined);
  const lines = cellsIn(measured).map((cell): Line => {
    const points = measured
      .filter((row) => row.cell === cell)
      .map((row) => [row.point[axis] ?? 0, row.values[key]!.median] as const)
      .sort(([a], [b]) => a - b);
    const ends = [...new Set([points[0]!, points.at(-1)!])].map(([, y]) => withUnit(y, unit));
    return { cell, correct: true, points, text: ends.join(' → ') }; // "2,613/s → 1,718/s"
  });
  if (lines.length === 0) return nothing;
  const values = axisValues({ summary: measured }, axis);
  const steps = Math.max(1, values.length - 1);
  const axes = {
    x: { place: (x: number) => 0.04 + (0.92 * values.indexOf(x)) / steps, ticks: values },
    y: logScale(lines.flatMap(({ points }) => points.map(([, y]) => y))),
    ...{ xText: tick, dots: true },
    note: `Across: ${axisOf(results, axis).title}. Upwards: ${title}, logarithmic. Faint: all others. A point whose audit did not pass is left out.`,
  };
  return panels(id, lines, axes, numberOf);
}

/** A curve of each cell, such as the units left over time. */
export function curvePanels(id: string, { rows, numberOf }: Drawn, { key, x, y }: CurveInfo): Markup {
  // What was oversold must not press the other lines flat: no line is drawn further below zero than the highest is above it.
  const floor = -Math.max(...rows.flatMap((row) => (row.curves[key] ?? []).map(([, value]) => value)));
  const lines = rows.flatMap((row): Line[] => {
    const all = row.curves[key] ?? [];
    const end = all.at(-1);
    const points = all.filter(([, value]) => value >= floor);
    if (end === undefined || points.length < 2) return [];
    const text = `${withUnit(end[1], y.unit)} after ${withUnit(end[0], x.unit)}`;
    return [{ cell: row.cell, correct: isCorrect(row), points, text }];
  });
  if (lines.length === 0) return nothing;
  const endOf = ({ points }: Line): number => points.at(-1)![0];
  const points = lines.flatMap((line) => line.points);
  const isWide = Math.max(...lines.map(endOf)) >= 5 * Math.min(...lines.map(endOf));
  const across = points.map(([at]) => at);
  const order = lines.length > 1 ? ' Ordered by the end of the line; faint: all others.' : '';
  const axes = {
    x: isWide ? logScale(across) : linearScale(across),
    y: linearScale(points.map(([, value]) => value)),
    ...{ xText: (value: number) => timeTick(value, x.unit), dots: false },
    note: `Across: ${x.title}${isWide ? ', logarithmic' : ''}. Upwards: ${y.title}. The round in the middle.${order}`,
  };
  return panels(
    id,
    [...lines].sort((a, b) => endOf(a) - endOf(b)),
    axes,
    numberOf,
  );
}

/** From 1,000 ms on: seconds. */
function timeTick(value: number, unit: Unit): string {
  if (unit !== 'ms') return tick(value);
  return value >= 1_000 ? `${tick(value / 1_000)}s` : `${tick(value)}ms`;
}
