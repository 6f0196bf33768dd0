/** Which trials run, in which order. Pure: the same plan gives the same trials. */
import type { CellBase, Planned, Trial } from './suite.ts';

/**
 * All trials in order. Each round runs every cell once at each point and begins one cell further in the list, so that no
 * cell always runs first, last, or after the same neighbor.
 */
export function schedule<Cell extends CellBase>(
  planned: Planned<Cell>,
  { rounds, seed }: { readonly rounds: number; readonly seed: number },
): Trial<Cell>[] {
  const cells = cellsWithControl(planned, rounds);
  const trials: Trial<Cell>[] = [];
  for (let round = 1; round <= rounds; round++) {
    for (const point of planned.points) {
      for (const cell of rotate(cells, round - 1)) {
        trials.push({ cell, point, number: trials.length + 1, round, seed: seed + round - 1 });
      }
    }
  }
  return trials;
}

/** Adds the A/A control, the baseline a second time, where rounds can tell noise from difference. */
export function cellsWithControl<Cell extends CellBase>(
  planned: Planned<Cell>,
  rounds: number,
): readonly Cell[] {
  const { cells, points, baseline, control } = planned;
  const base = cells.find(({ name }) => name === baseline);
  const worth = control && base !== undefined && cells.length > 1 && rounds > 1 && points.length === 1;
  return worth ? [...cells, { ...base, name: `${base.name}, A/A control`, control: true }] : cells;
}

function rotate<T>(items: readonly T[], by: number): T[] {
  const from = items.length === 0 ? 0 : by % items.length;
  return [...items.slice(from), ...items.slice(0, from)];
}
