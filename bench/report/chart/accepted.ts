/** Accepted attempts a second, with what is not correct beside it. */

import type { Interval } from '../../kit/statistics.ts';
import { label } from '../../plan.ts';
import type { SummaryRow } from '../../summary.ts';
import { rate, ratedInterval } from '../page/numbers.ts';
import { isCorrect, wrongWords } from '../page/verdicts.ts';
import { type Bar, barDrawing } from './bars.ts';
import { type Figure, left, right } from './figure.ts';
import { extremes } from './finding.ts';
import { hatch } from './look.ts';
import { linear } from './scale.ts';

type Measured = SummaryRow & { readonly acceptedInterval: Interval };

export function acceptedFigure(summary: readonly SummaryRow[]): Figure | null {
  const rows = summary.filter((row): row is Measured => row.acceptedInterval !== null);
  const ordered = [...rows.filter(isCorrect), ...rows.filter((row) => !isCorrect(row))];
  if (rows.length === 0) return null;
  const bars = ordered.map(barOf);
  const highest = rows.map(({ acceptedInterval }) => acceptedInterval.high);
  const drawing = { bars, x: linear(highest, rate), xName: 'accepted/s' };
  const words = {
    most: 'accepted the most',
    least: 'the fewest',
    text: (value: number) => `${rate(value)}/s`,
  };
  return {
    id: 'accepted',
    title: 'Accepted attempts a second',
    finding: extremes(rows.filter(isCorrect), ({ acceptedInterval }) => acceptedInterval?.median ?? 0, words),
    caption:
      'Closed loop. Bars are medians over the rounds, whiskers are 95 % intervals. What is not correct is hatched and ' +
      'has no rank: it may be fast because it leaves work out.',
    legend: [],
    legendAlways: false,
    data: {
      columns: [
        left('strategy'),
        right('accepted/s'),
        right('95 % interval'),
        right('rounds'),
        left('verdict'),
      ],
      rows: ordered.map(({ acceptedInterval, verdict, ...row }) => [
        label(row),
        rate(acceptedInterval.median),
        ratedInterval(acceptedInterval),
        String(acceptedInterval.rounds),
        verdict,
      ]),
    },
    draw: (frame, description) => barDrawing(drawing, frame, description),
  };
}

function barOf(row: Measured): Bar {
  const { median, low, high } = row.acceptedInterval;
  const part = isCorrect(row)
    ? { value: median, fill: 'var(--bar)', stroke: 'none' }
    : { value: median, fill: hatch('wrong'), stroke: 'var(--wrong)' };
  const text = isCorrect(row) ? rate(median) : `${rate(median)}, ${wrongWords(row)}`;
  return { name: label(row), parts: [part], interval: { low, high }, text };
}
