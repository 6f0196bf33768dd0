/**
 * Small multiples, as SVG: a panel for each cell with its line in front of the faint lines of all others. All panels of a chart
 * share their axes, so that they compare.
 */
import type { CurveInfo, Unit } from '../suite.ts';
import type { Drawn } from './bars.ts';
import { html, Markup, nothing } from './markup.ts';
import { tick, withUnit } from './numbers.ts';
import { axisOf, isCorrect, metricOf } from './rows.ts';
import { linearScale, logScale, type Scale } from './scale.ts';

/** In units of the drawing: about as many px as a panel has on a phone. */
const small = { width: 170, height: 104 };
/** For a chart of one line. */
const large = { width: 340, height: 170 };
const frame = { left: 28, right: 6, top: 6, bottom: 16 };

type Points = readonly (readonly [x: number, y: number])[];

interface Line {
  readonly cell: string;
  readonly correct: boolean;
  readonly points: Points;
  /** First and last value in words: below the panel, and for screen readers. */
  readonly text: string;
}

interface Axes {
  readonly x: Scale;
  readonly y: Scale;
  readonly xText: (value: number) => string;
  /** Marks each point; a curve has too many. */
  readonly dots: boolean;
}

function panels(id: string, lines: readonly Line[], axes: Axes, numberOf: Drawn['numberOf']): Markup {
  const { width, height } = lines.length === 1 ? large : small;
  const right = (value: number): string =>
    String(Math.round((frame.left + axes.x.place(value) * (width - frame.left - frame.right)) * 10) / 10);
  const down = (value: number): string =>
    String(
      Math.round((height - frame.bottom - axes.y.place(value) * (height - frame.top - frame.bottom)) * 10) /
        10,
    );
  const path = (points: Points): string => points.map(([x, y]) => `${right(x)},${down(y)}`).join(' ');
  const grid = [
    ...axes.y.ticks.map(
      (value) =>
        `<path d="M${frame.left} ${down(value)}H${width - frame.right}"/><text x="${frame.left - 3}" y="${Number(down(value)) + 3}" text-anchor="end">${tick(value)}</text>`,
    ),
    ...fitting(axes.x.ticks, right).map(
      (value) =>
        `<text x="${right(value)}" y="${height - 4}" text-anchor="middle">${axes.xText(value)}</text>`,
    ),
  ];
  // Custom properties reach the copies that <use> makes; the selectors that switch cells off do not.
  const all = lines.map(
    ({ cell, points }) =>
      `<polyline style="display:var(--d${numberOf(cell)},inline)" points="${path(points)}"/>`,
  );
  const shared = `<svg class="shared" aria-hidden="true"><defs><g id="${id}"><g class="grid">${grid.join('')}</g><g class="others">${all.join('')}</g></g></defs></svg>`;
  const each = lines.map(({ cell, correct, points, text }) => {
    const dots = axes.dots
      ? points.map(([x, y]) => `<circle cx="${right(x)}" cy="${down(y)}" r="2.5"/>`).join('')
      : '';
    const drawing = `<use href="#${id}"/><g class="own"><polyline points="${path(points)}"/>${dots}</g>`;
    return html`<li class="${correct ? 'ok' : 'wrong'}" data-s="${numberOf(cell)}"><h4>${cell}</h4><svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${cell}: ${text}">${new Markup(drawing)}</svg><p>${text}</p></li>`;
  });
  return html`${new Markup(shared)}<ul class="panels${lines.length === 1 ? ' one' : ''}">${each}</ul>`;
}

/** Ticks far enough apart to be read. */
function fitting(ticks: readonly number[], place: (value: number) => string): number[] {
  let last = Number.NEGATIVE_INFINITY;
  return ticks.filter((value) => {
    if (Number(place(value)) - last < 24) return false;
    last = Number(place(value));
    return true;
  });
}

/** One metric along an axis of the points. */
export function sweepPanels(
  id: string,
  { results, rows, numberOf }: Drawn,
  axis: string,
  key: string,
): Markup {
  const { unit } = metricOf(results, key);
  const measured = rows.filter((row) => isCorrect(row) && row.values[key] !== undefined);
  const values = [...new Set(measured.map(({ point }) => point[axis] ?? 0))].sort((a, b) => a - b);
  const lines = [...new Set(measured.map(({ cell }) => cell))].map((cell): Line => {
    const points = measured
      .filter((row) => row.cell === cell)
      .map((row) => [row.point[axis] ?? 0, row.values[key]?.median ?? 0] as const)
      .sort(([a], [b]) => a - b);
    return { cell, correct: true, points, text: ends(points, unit) };
  });
  if (lines.length === 0) return nothing;
  const y = logScale(lines.flatMap(({ points }) => points.map(([, value]) => value)));
  const { title } = axisOf(results, axis);
  const x = { ...evenly(values), ticks: values };
  const drawing = panels(id, lines, { x, y, xText: tick, dots: true }, numberOf);
  return html`${drawing}<p class="note">Across: ${title}. Upwards: ${metricOf(results, key).title}, logarithmic. Faint: all others. A point whose audit did not pass is left out.</p>`;
}

/** The values of an axis at equal distances. */
function evenly(values: readonly number[]): Scale {
  const last = Math.max(1, values.length - 1);
  return { place: (value) => 0.04 + (0.92 * values.indexOf(value)) / last, ticks: values };
}

/** "2,613/s → 1,718/s". */
function ends(points: Points, unit: Unit): string {
  const [first, last] = [points[0], points.at(-1)];
  if (first === undefined || last === undefined) return '–';
  return first === last
    ? withUnit(first[1], unit)
    : `${withUnit(first[1], unit)} → ${withUnit(last[1], unit)}`;
}

/** A curve of each cell, such as the units left over time. */
export function curvePanels(id: string, { rows, numberOf }: Drawn, info: CurveInfo): Markup {
  const lines = rows.flatMap((row): Line[] => {
    const points = row.curves[info.key];
    const last = points?.at(-1);
    if (points === undefined || last === undefined || points.length < 2) return [];
    const text = `${withUnit(last[1], info.y.unit)} after ${withUnit(last[0], info.x.unit)}`;
    return [{ cell: row.cell, correct: isCorrect(row), points, text }];
  });
  if (lines.length === 0) return nothing;
  const points = lines.flatMap((line) => line.points);
  const ends = lines.map((line) => line.points.at(-1)?.[0] ?? 0).filter((end) => end > 0);
  const wide = ends.length > 0 && Math.max(...ends) / Math.min(...ends) >= 5;
  const across = points.map(([x]) => x);
  const axes = {
    x: wide ? logScale(across) : linearScale(across),
    y: linearScale(points.map(([, y]) => y)),
    xText: (value: number) => timeTick(value, info.x.unit),
    dots: false,
  };
  const byEnd = [...lines].sort((a, b) => (a.points.at(-1)?.[0] ?? 0) - (b.points.at(-1)?.[0] ?? 0));
  const note = [
    `Across: ${info.x.title}${wide ? ', logarithmic' : ''}. Upwards: ${info.y.title}. The round in the middle.`,
    ...(lines.length > 1 ? ['Ordered by the end of the line; faint: all others.'] : []),
  ];
  return html`${panels(id, byEnd, axes, numberOf)}<p class="note">${note.join(' ')}</p>`;
}

/** Thousands of ms are seconds. */
function timeTick(value: number, unit: Unit): string {
  if (unit !== 'ms') return tick(value);
  return value >= 1_000 ? `${tick(value / 1_000)}s` : `${tick(value)}ms`;
}
