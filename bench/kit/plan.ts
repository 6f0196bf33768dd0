/** Which trials run, in which order. Pure: the same plan gives the same trials. */
import type { CellBase, Planned, Trial } from './suite.ts';

/**
 * All trials in order. Each round runs every cell once at each point and begins one cell further in the list, so that no
 * cell always runs first, last, or after the same neighbor.
 */
export function schedule(
  planned: Planned,
  { rounds, seed }: { readonly rounds: number; readonly seed: number },
): Trial[] {
  const cells = cellsWithControl(planned, rounds);
  const trials: Omit<Trial, 'number'>[] = [];
  for (let round = 1; round <= rounds; round++) {
    const from = (round - 1) % Math.max(1, cells.length);
    const rotated = [...cells.slice(from), ...cells.slice(0, from)];
    for (const point of planned.points)
      trials.push(...rotated.map((cell) => ({ cell, point, round, seed: seed + round - 1 })));
  }
  return trials.map((trial, index) => ({ ...trial, number: index + 1 }));
}

/** Adds the A/A control, a second baseline, if several rounds at one point can show the noise. */
export function cellsWithControl(planned: Planned, rounds: number): readonly CellBase[] {
  const { cells, points, baseline, control } = planned;
  const base = cells.find(({ name }) => name === baseline);
  const worth = control && base !== undefined && cells.length > 1 && rounds > 1 && points.length === 1;
  return worth ? [...cells, { ...base, name: `${base.name}, A/A control`, control: true }] : cells;
}
