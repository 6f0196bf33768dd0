/** What the measurements of all cells have in common: where they run, and how a rate is taken from what a store counts. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { BenchStores } from '../kit/stores.ts';
import type { Cell } from './cells.ts';
import type { Generator } from './load.ts';
import type { LimitsOptions } from './options.ts';
import { type Layout, watchProcessors } from './pin.ts';
import type { CellResult } from './results.ts';

/** What a cell is measured with. */
export interface Measuring {
  readonly options: Pick<LimitsOptions, 'durationMs' | 'warmupMs' | 'connections'>;
  readonly layout: Layout;
  readonly generator: Generator;
  readonly stores: BenchStores;
  /** For what must be written down on the way; removed with the run. */
  readonly folder: string;
  readonly signal: AbortSignal;
  /** What is done now: "warming up", "measuring", "audit". */
  readonly onStep: (step: string) => void;
}

export interface Turn {
  readonly cell: Cell;
  readonly round: number;
}

/** What a measurement finds. */
export type Measured = Omit<CellResult, 'cell' | 'round' | 'perSecond' | 'busyBefore'>;

/** A name for the database of a turn. */
export const databaseName = ({ cell, round }: Turn): string => `${round}_${cell.name.replaceAll('-', '_')}`;

/**
 * Lets a load go on, and takes the rate from what a store counts at two moments.
 * @param count what the store counts now
 * @param died fires when what makes the load has ended, with the reason
 */
export async function countBetween(
  count: () => Promise<number>,
  died: AbortSignal,
  { options, signal, onStep }: Measuring,
): Promise<Pick<Measured, 'counted' | 'measuredMs' | 'processors'>> {
  const either = AbortSignal.any([signal, died]);
  const wait = async (ms: number): Promise<void> => {
    await sleep(ms, undefined, { signal: either }).catch(() => {});
    either.throwIfAborted();
  };
  const look = async () => {
    const askedMs = performance.now();
    const counted = await count();
    return { counted, atMs: (askedMs + performance.now()) / 2 };
  };
  onStep('warming up');
  await untilCounting(count, wait);
  await wait(options.warmupMs);
  onStep('measuring');
  const before = await look();
  const watched = watchProcessors();
  await wait(options.durationMs);
  const after = await look();
  return {
    counted: after.counted - before.counted,
    measuredMs: after.atMs - before.atMs,
    processors: watched(),
  };
}

const firstMs = 30_000;

async function untilCounting(
  count: () => Promise<number>,
  wait: (ms: number) => Promise<void>,
): Promise<void> {
  const untilMs = performance.now() + firstMs;
  const before = await count();
  while ((await count()) === before) {
    if (performance.now() > untilMs) throw new Error(`nothing was counted in ${firstMs / 1_000} s`);
    await wait(20);
  }
}
