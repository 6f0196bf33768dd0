/** From the CPU of an attempt to processors: the figures of the suites `scale` and `limits`, for rates that are not here. */

import type { Table } from '../bench/kit/report/table.ts';
import type { Results } from '../bench/kit/results.ts';
import { number } from '../lab/kit/text.ts';

/** Attempts a second. */
const rates = [10_000, 50_000, 100_000, 1_000_000] as const;
/** A processor that is busier than this has no room for a burst. */
const busy = 0.7;
const servers = ['serviceCpuUs', 'redisCpuUs', 'postgresCpuUs'] as const;

/** CPU of an attempt, µs, by server; null: it was not measured. */
function costOf(results: Results, cell: string, connections: number): readonly (number | null)[] {
  const row = results.summary.find((one) => one.cell === cell && one.point.connections === connections);
  return servers.map((key) => row?.values[key]?.median ?? null);
}

type Kind = readonly [name: string, cost: readonly (number | null)[], mostPerSecond: number];

/** @param limits has what a refused attempt costs */
export function machinesTable(scale: Results, limits: Results): Table {
  const kinds: readonly Kind[] = [
    // No rate comes one at a time, and a sale has one row and is on one master.
    ['sold, one attempt at a time', costOf(scale, 'redis-1-service-1-sales-1', 1), 0],
    ['sold, one sale, in batches', costOf(scale, 'redis-1-service-1-sales-1', 512), 10_000],
    ['sold, 1,000 sales, one Redis', costOf(scale, 'redis-1-service-1-sales-1000', 512), 10_000],
    ['sold, 1,000 sales, three masters', costOf(scale, 'redis-3-service-1-sales-1000', 512), 1_000_000],
    ['sold out: refused from memory', costOf(limits, 'sold-out', 512), 1_000_000],
  ];
  const text = (value: number | null) => (value === null ? '–' : number(Math.round(value)));
  const processors = (us: number | null, rate: number) =>
    us === null ? '–' : number(Math.ceil((us * rate) / 1e6 / busy));
  const titles = ['CPU of an attempt (µs)', ...rates.map((rate) => `${number(rate)} attempts/s`)];
  return {
    title: 'Processors of service · Redis · Postgres',
    columns: [['every attempt is', 'left'], ...titles.map((title) => [title, 'right'] as const)],
    rows: kinds.map(([name, cost, most]) => [
      name,
      cost.map(text).join(' · '),
      ...rates.map((rate) => (rate > most ? '–' : cost.map((us) => processors(us, rate)).join(' · '))),
    ]),
  };
}
