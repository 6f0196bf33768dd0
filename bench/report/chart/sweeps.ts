/** One drawing for each axis that was swept: what becomes of throughput along it. */
import type { Sweep } from '../../options.ts';
import { label } from '../../plan.ts';
import type { Point } from '../../result.ts';
import type { SummaryRow } from '../../summary.ts';
import { rate, ratedInterval, units, when } from '../page/numbers.ts';
import { isCorrect } from '../page/verdicts.ts';
import type { Results } from '../results.ts';
import { type Figure, left, right } from './figure.ts';
import { type Line, lineDrawing } from './lines.ts';
import { type Look, sample } from './look.ts';
import { logarithmic, points } from './scale.ts';

interface Axis {
  readonly title: string;
  readonly name: string;
  /** What is said of a value, as in "at 2 ms". */
  text(value: number): string;
  readonly value: (point: Point) => number;
  readonly caption: string;
}

const axes: Readonly<Record<Sweep, Axis>> = {
  rtt: {
    title: 'When the stores are further away',
    name: 'ms added to each round trip',
    text: (value) => `${value} ms`,
    value: ({ rttMs }) => rttMs,
    caption: 'Round trips between the service and both stores, which a proxy delays; at 0 there is none.',
  },
  connections: {
    title: 'With more clients at the same time',
    name: 'connections of the closed loop',
    text: (value) => `${units(value)} connections`,
    value: ({ connections }) => connections,
    caption: 'Each connection has one attempt under way and sends the next one after its answer.',
  },
  sales: {
    title: 'With more sales at the same time',
    name: 'sales',
    text: (value) => (value === 1 ? '1 sale' : `${units(value)} sales`),
    value: ({ sales }) => sales,
    caption: 'Attempts are spread over the sales. What contends within a sale alone has less to contend for.',
  },
};

export function sweepFigures(all: readonly Results[], looks: ReadonlyMap<string, Look>): (Figure | null)[] {
  return all.map((results, index) => {
    const { sweep } = results.plan;
    return sweep === null ? null : sweepFigure(results, axes[sweep], `sweep-${sweep}-${index}`, looks);
  });
}

function sweepFigure(
  { summary, plan, startedAt }: Results,
  axis: Axis,
  id: string,
  looks: ReadonlyMap<string, Look>,
): Figure | null {
  const rows = summary
    .filter((row) => isCorrect(row) && row.acceptedInterval !== null)
    .sort((a, b) => axis.value(a.point) - axis.value(b.point));
  if (rows.length === 0) return null;
  const lines = [...looks].flatMap(([name, look]): Line[] => {
    const own = rows.filter((row) => label(row) === name);
    return own.length === 0 ? [] : [{ name, look, points: own.map((row) => pointOf(row, axis)) }];
  });
  const drawing = {
    lines,
    x: points(
      rows.map(({ point }) => axis.value(point)),
      String,
    ),
    y: logarithmic(
      rows.flatMap(({ acceptedInterval }) => acceptedInterval?.median ?? []),
      rate,
    ),
    xName: axis.name,
    yName: 'accepted/s, logarithmic',
    named: true,
  };
  const rounds = `${plan.rounds} ${plan.rounds === 1 ? 'round' : 'rounds'}`;
  return {
    id,
    title: axis.title,
    finding: findingOf(lines, axis),
    caption:
      `Closed loop, medians over ${rounds}, begun ${when(startedAt)}. ${axis.caption} ` +
      'A point whose audit did not pass is left out.',
    legend: lines.map(({ name, look }) => ({ sample: sample(look), text: name })),
    legendAlways: false,
    data: {
      columns: [left('strategy'), right(axis.name), right('accepted/s'), right('95 % interval')],
      rows: rows
        .toSorted((a, b) => label(a).localeCompare(label(b), 'en'))
        .map((row) => [
          label(row),
          units(axis.value(row.point)),
          rate(row.acceptedInterval?.median ?? 0),
          row.acceptedInterval === null ? '–' : ratedInterval(row.acceptedInterval),
        ]),
    },
    draw: (frame, description) => lineDrawing(drawing, frame, description),
  };
}

function pointOf({ point, acceptedInterval }: SummaryRow, axis: Axis): readonly [number, number] {
  return [axis.value(point), acceptedInterval?.median ?? 0];
}

/** Who keeps most, and who keeps least, of what it did at the first point. */
function findingOf(lines: readonly Line[], axis: Axis): string {
  const changes = lines.flatMap(({ name, points }) => {
    const [first, last] = [points[0], points.at(-1)];
    if (first === undefined || last === undefined || first === last || first[1] === 0) return [];
    return [{ name, first, last, kept: last[1] / first[1] }];
  });
  changes.sort((a, b) => b.kept - a.kept);
  const [best, worst] = [changes[0], changes.at(-1)];
  if (best === undefined || worst === undefined) return 'Each strategy was measured at one point only.';
  const change = ({ name, first, last }: typeof best): string =>
    `${name} goes from ${rate(first[1])} accepted/s at ${axis.text(first[0])} to ${rate(last[1])} at ${axis.text(last[0])}`;
  return best === worst ? `${change(best)}.` : `${change(best)}; ${change(worst)}.`;
}
