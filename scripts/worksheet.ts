/** What a sale needs of memory, disk and connections: formulas with measured bytes, and an example. */
import type { Table } from '../bench/kit/report/table.ts';
import type { Results } from '../bench/kit/results.ts';
import { number } from '../lab/kit/text.ts';
import { limits } from '../src/config/limits.ts';

/** The example of the page: four processes on two machines. */
const example = { orders: 1_000_000, processes: 4, workers: 2 };

/** @param memory of the suite `memory` @returns nothing if it is of a version that did not measure what an order occupies */
export function worksheet(memory: Results): Table[] {
  const row = memory.summary.find(({ cell }) => cell === 'mixed');
  const value = (key: string): number => row?.values[key]?.median ?? Number.NaN;
  if (Number.isNaN(value('redisBytes'))) return [];
  const { orders, processes, workers } = example;
  const perOrder = (key: string): [string, string] => [
    `orders × ${number(Math.round(value(key)))} B`,
    `${number(Math.round((orders * value(key)) / 1e6))} MB`,
  ];
  // The garbage collector decides how much of it the process holds: the most that was read counts.
  const readings = memory.summary.flatMap(({ curves }) => curves.memory ?? []);
  const mebibytes = Math.max(...readings.map(([, mib]) => mib));
  const pool = Math.max(4, Math.ceil(limits.postgresPoolSize / workers)); // as in src/service/core.ts
  const table: Table = {
    title: 'What a sale needs',
    columns: [
      ['what', 'left'],
      ['formula', 'left'],
      [`${number(orders)} orders, ${processes} processes (\`WORKERS=${workers}\`)`, 'right'],
    ],
    rows: [
      [
        'memory of the service',
        `processes × ${number(Math.round(mebibytes))} MiB`,
        `${number(Math.round(processes * mebibytes))} MiB`,
      ],
      ['memory of Redis', ...perOrder('redisBytes')],
      ['disk of Postgres', ...perOrder('databaseBytes')],
      ['write-ahead log, for each standby and the archive', ...perOrder('walBytes')],
      [
        'connections to Postgres',
        `processes × (the larger of 4 and ${limits.postgresPoolSize} ÷ \`WORKERS\`, and ${limits.readPoolSize})`,
        number(processes * (pool + limits.readPoolSize)),
      ],
    ],
  };
  return [table];
}
