/** The strategies of `npm run bench`, and their loads. */
import { limits } from '../../../src/config/limits.ts';
import { locks as registry } from '../../../src/locks/registry.ts';
import { strategies } from '../../../src/strategies/registry.ts';
import { named, oneOf, optionsOf, sized, text, usually } from '../../kit/options.ts';
import type { CellBase } from '../../kit/suite.ts';
import { generatorOption } from '../../load/generator.ts';
import type { Quantities } from '../../load/purchase.ts';
import type { LoadKind, StrategyPoint } from './result.ts';

export interface StrategyCell extends CellBase {
  readonly strategy: string;
  /** The `LOCK` that it runs with; null: it uses none. */
  readonly lock: string | null;
  /** Whether pgbench can run its statements. */
  readonly inPostgres: boolean;
}

const loads: readonly LoadKind[] = ['closed', 'open', 'k6'];
/** The axes along which throughput is measured, and their usual values. */
const axes = { rtt: [0, 1, 5], connections: [64, 16, 256, 1_024], sales: [1, 10, 100] };
const sweeps = Object.keys(axes) as (keyof typeof axes)[];

const hour = 3_600;

export const strategyOptions = optionsOf(
  {
    strategies: usually(named([...strategies.keys(), 'all'], 'strategy', 'strategies to compare'), 'all'),
    locks: usually(named([...registry.keys()], 'lock', 'locks for the strategies that use one'), 'redis'),
    baseline: text('strategy that the others are divided by (for-update)'),
    load: named(loads, 'load', 'closed: capacity. open: selling out. k6: its scripts (closed,open)'),
    duration: usually(sized('seconds', 0.1, hour, 'seconds of steady state that are measured'), '5', '0.6'),
    warmup: usually(
      sized('seconds', 0, hour, 'seconds of the same load before, on another sale'),
      '3',
      '0.3',
    ),
    connections: sized('wholes', 1, 10_000, 'of capacity; all are ranked at the first (64,16,256; smoke 32)'),
    quantity: usually(text('units of an order: a number, or from least to most, such as 1-4'), '1'),
    stock: usually(sized('whole', 1, 2_147_483_647, 'units of the sell-out'), '4000', '200'),
    rate: usually(sized('whole', 1, 100_000, 'arrivals a second of the sell-out'), '2000', '1000'),
    'sell-out': usually(sized('seconds', 0.1, hour, 'seconds that a sell-out takes at most'), '30', '6'),
    sweep: oneOf(sweeps, 'how capacity changes along an axis'),
    'rtt-ms': sized(
      'numbers',
      0,
      1_000,
      'ms that a proxy adds to a round trip to the stores (0; --sweep rtt 0,1,5)',
    ),
    sales: sized('wholes', 1, 1_000, 'sales at the same time (1; --sweep sales 1,10,100)'),
    generator: generatorOption('of the closed loop'),
  },
  (given, { smoke }, mistakes) => {
    const { sweep = null, strategies: chosen, locks, generator } = given;
    const usual = smoke ? [32] : sweep === null ? [64, 16, 256] : [64];
    const ladder = given.connections ?? (sweep === 'connections' ? axes.connections : usual);
    const values = (axis: 'rtt' | 'sales', name: 'rtt-ms' | 'sales', fallback: number): readonly number[] => {
      const all = given[name] ?? (axis === sweep ? axes[axis] : [fallback]);
      if (axis !== sweep && all.length > 1)
        mistakes.push(`--${name} ${all.join()}: takes one number, or a list with --sweep ${axis}`);
      return all;
    };
    const [rtts, sales] = [values('rtt', 'rtt-ms', 0), values('sales', 'sales', 1)];
    const wanted = given.load ?? (sweep === null ? ['closed', 'open'] : ['closed']);
    if (sweep !== null && wanted.join() !== 'closed')
      mistakes.push(`--load ${wanted.join()}: a sweep measures capacity, with --load closed`);
    const connections = ladder[0] ?? 64;
    return {
      ...{ locks, sweep, generator },
      strategies: chosen.includes('all') ? [...strategies.keys()] : chosen,
      /** Null: for-update, or the first safe one. */
      baseline: given.baseline ?? null,
      load: loads.filter((kind) => wanted.includes(kind)),
      /** How long capacity is measured. */
      durationMs: given.duration,
      warmupMs: given.warmup,
      /** Connections at which capacity is measured; all are ranked at the first one. */
      ladder,
      quantities: quantitiesOf(given.quantity, mistakes),
      /** The sell-out: units, arrivals/s, maximum duration, and duration after the first correct "sold out". */
      stock: given.stock,
      ratePerSecond: given.rate,
      sellOutMs: given['sell-out'],
      afterSoldOutMs: smoke ? 500 : 2_000,
      points: rtts.flatMap((rttMs) =>
        sales.map((count): StrategyPoint => ({ rttMs, connections, sales: count })),
      ),
      /** A smoke run or a sweep: no round trips, no pgbench. */
      isBrief: smoke || sweep !== null,
    };
  },
);
export type StrategyOptions = ReturnType<typeof strategyOptions.read>;

function quantitiesOf(text: string, mistakes: string[]): Quantities {
  const [, least = '', most = least] = /^(\d{1,3})(?:-(\d{1,3}))?$/.exec(text) ?? [];
  const range = { least: Number(least), most: Number(most) };
  if (range.least < 1 || range.most < range.least || range.most > limits.maxPerOrder)
    mistakes.push(`--quantity ${text}: takes a number up to ${limits.maxPerOrder}, or a range such as 1-4`);
  return range;
}

/** The rows of the comparison and the name of the baseline, or the mistake in it. */
export function cellsOf({
  strategies: names,
  locks,
  baseline: wanted,
}: Pick<StrategyOptions, 'strategies' | 'locks' | 'baseline'>):
  | { readonly cells: StrategyCell[]; readonly baseline: string | null }
  | { readonly mistakes: readonly string[] } {
  if (wanted !== null && !names.includes(wanted))
    return { mistakes: [`--baseline: "${wanted}" is not among the strategies that are compared`] };
  const cells = names.flatMap((strategy): StrategyCell[] => {
    const { usesLock, summary, store, guarantees } = strategies.get(strategy)!.description;
    const unsafe = !guarantees.neverOversells;
    const base = { strategy, summary, inPostgres: store === 'postgres', unsafe, control: false };
    if (!usesLock) return [{ ...base, name: strategy, lock: null }];
    return locks.map((lock) => ({ ...base, name: `${strategy} (${lock})`, lock }));
  });
  const cellOf = (name: string | null) => cells.find(({ strategy }) => strategy === name);
  // By default, the textbook's strategy is the baseline.
  const usual = cellOf('for-update') ?? cells.find(({ unsafe }) => !unsafe) ?? cells[0];
  return { cells, baseline: (cellOf(wanted) ?? usual)?.name ?? null };
}
