/** Units left over time. */
import { label } from '../../plan.ts';
import type { SummaryRow } from '../../summary.ts';
import { seconds, units } from '../page/numbers.ts';
import { isCorrect, wrongWords } from '../page/verdicts.ts';
import { type Figure, left, right } from './figure.ts';
import { extremes } from './finding.ts';
import { lineDrawing } from './lines.ts';
import { type Look, look, sample, wrongLook } from './look.ts';
import { linear, logarithmic } from './scale.ts';

export function remainingFigure(
  summary: readonly SummaryRow[],
  looks: ReadonlyMap<string, Look>,
): Figure | null {
  const rows = summary
    .filter(({ remainingOverTime }) => remainingOverTime.length > 1)
    .toSorted((a, b) => last(a).ms - last(b).ms);
  if (rows.length === 0) return null;
  const wrong = rows.filter((row) => !isCorrect(row));
  const lookOf = (row: SummaryRow): Look =>
    isCorrect(row) ? (looks.get(label(row)) ?? look(0)) : wrongLook(wrong.indexOf(row));
  const points = rows.flatMap(({ remainingOverTime }) => remainingOverTime);
  const drawing = {
    lines: rows.map((row) => ({ name: label(row), look: lookOf(row), points: row.remainingOverTime })),
    x: logarithmic(
      points.map(([ms]) => ms),
      (ms) => (ms >= 1_000 ? `${ms / 1_000} s` : `${ms} ms`),
    ),
    y: linear(
      points.map(([, amount]) => amount),
      units,
    ),
    xName: 'time since the first attempt, logarithmic',
    yName: 'units left',
    named: false,
  };
  return {
    id: 'remaining',
    title: 'Units left over time',
    finding: finding(rows),
    caption:
      'Closed loop, the middle round of each strategy. Time is logarithmic, because the fastest are done before the ' +
      'slowest have sold much. Below zero is what was sold although it did not exist.',
    legend: rows.map((row) => ({ sample: sample(lookOf(row)), text: `${label(row)}: ${ending(row)}` })),
    legendAlways: true,
    data: {
      columns: [
        left('strategy'),
        right('half sold after'),
        right('last sale after'),
        right('units left then'),
      ],
      rows: rows.map((row) => [label(row), halfSold(row), seconds(last(row).ms), units(last(row).left)]),
    },
    draw: (frame, description) => lineDrawing(drawing, frame, description),
  };
}

function last({ remainingOverTime }: SummaryRow): { readonly ms: number; readonly left: number } {
  const [ms, left] = remainingOverTime.at(-1) ?? [0, 0];
  return { ms, left };
}

function finding(rows: readonly SummaryRow[]): string {
  const soldOut = rows.filter((row) => isCorrect(row) && last(row).left === 0);
  const words = {
    most: 'sold out first',
    least: 'last',
    text: (value: number) => `after ${seconds(-value)}`,
  };
  const first =
    soldOut.length === 0 ? 'No correct strategy sold out.' : extremes(soldOut, (row) => -last(row).ms, words);
  const below = rows.filter((row) => last(row).left < 0);
  return [
    first,
    ...below.map((row) => `${label(row)} went on to ${units(-last(row).left)} below zero.`),
  ].join(' ');
}

/** "0.11 s", "200 left after 10.0 s". */
function ending(row: SummaryRow): string {
  const { ms, left } = last(row);
  const words = isCorrect(row) ? '' : `, ${wrongWords(row)}`;
  if (left === 0) return `${seconds(ms)}${words}`;
  return `${left > 0 ? `${units(left)} left after ${seconds(ms)}` : `${units(-left)} below zero`}${words}`;
}

function halfSold({ remainingOverTime }: SummaryRow): string {
  const stock = remainingOverTime[0]?.[1] ?? 0;
  const moment = remainingOverTime.find(([, amount]) => amount <= stock / 2)?.[0];
  return moment === undefined ? '–' : seconds(moment);
}
