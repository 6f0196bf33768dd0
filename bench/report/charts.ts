/** The drawings of a run: which there are. What has no data is left out. */
import { label } from '../plan.ts';
import { acceptedFigure } from './chart/accepted.ts';
import { cpuFigure } from './chart/cpu.ts';
import { figureOf } from './chart/figure.ts';
import { latencyFigure } from './chart/latency.ts';
import { looksOf } from './chart/look.ts';
import { remainingFigure } from './chart/remaining.ts';
import { sweepFigures } from './chart/sweeps.ts';
import type { Markup } from './page/markup.ts';
import { isCorrect, pointsOf } from './page/verdicts.ts';
import type { Results } from './results.ts';

/**
 * Those that compare strategies at one point, and one for each axis that was swept. A strategy looks the same in all.
 */
export function figures(results: Results, sweeps: readonly Results[]): Markup[] {
  const all = [results, ...sweeps];
  const looks = looksOf(all.flatMap(({ summary }) => summary.filter(isCorrect).map(label)));
  const rows = results.summary.filter(({ twin }) => !twin);
  const correct = rows.filter(isCorrect);
  const comparisons =
    pointsOf(results).length === 1
      ? [
          acceptedFigure(rows),
          latencyFigure(correct, looks, 'fixed', results),
          latencyFigure(correct, looks, 'share', results),
          remainingFigure(rows, looks),
          cpuFigure(correct),
        ]
      : [];
  const drawn = [...comparisons, ...sweepFigures(all, looks)].filter((figure) => figure !== null);
  return drawn.map(figureOf);
}
