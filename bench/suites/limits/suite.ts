/**
 * `npm run bench -- limits`, `-- flat`, `-- memory` and `-- scale`: the service against its platform, whether the cost of an
 * attempt and the memory of the service stay flat, and what an attempt costs on more servers.
 */

import { percent } from '../../../lab/kit/text.ts';
import { ratios } from '../../kit/charts.ts';
import { type MetricRow, metricsOf } from '../../kit/metrics.ts';
import { median } from '../../kit/statistics.ts';
import type { Curve, ReportLayout, Suite } from '../../kit/suite.ts';
import { type Kind, kinds, type LimitCell, strategyCell } from './cells.ts';
import { type LimitResult, measureCell } from './measure.ts';
import { type LimitOptions, optionsFor } from './options.ts';
import { openPlace } from './place.ts';
import { traceTables } from './trace.ts';

const rows: readonly MetricRow<LimitResult>[] = [
  ['perSecond', 'answers/s', '/s', '+', (r) => r.perSecond],
  ['p50Ms', 'p50', 'ms', '-', (r) => r.latencyMs?.p50],
  ['p99Ms', 'p99', 'ms', '-', (r) => r.latencyMs?.p99],
  ['serviceCpuUs', 'server CPU', 'µs', '-', (r) => r.serviceCpuUs],
  ['redisCpuUs', 'Redis CPU', 'µs', '-', (r) => r.redisCpuUs],
  ['postgresCpuUs', 'Postgres CPU', 'µs', '-', (r) => r.postgresCpuUs],
  ['utilization', 'server busy', '%', '+', (r) => r.utilization],
  ['others', 'other answers', '', '-', (r) => r.others],
  ['lastMiB', 'memory', 'MiB', '-', ({ memory }) => memory.at(-1)?.[1]],
];
const storedRows: readonly MetricRow<LimitResult>[] = [
  ['databaseBytes', 'database', 'B', '', ({ stored }) => stored?.database],
  ['walBytes', 'write-ahead log', 'B', '', ({ stored }) => stored?.wal],
  ['redisBytes', 'Redis', 'B', '', ({ stored }) => stored?.redis],
];
const memoryRows: readonly MetricRow<LimitResult>[] = [
  ['growth', 'growth', '%', '-', growthOf],
  ['firstMiB', 'second fifth', 'MiB', '-', (r) => inFifth(r, 1)],
  ['answers', 'answers', '', '', (r) => r.answers],
];

/** Median of the readings in a fifth of the time, 0 to 4: single ones differ by what waits for garbage collection. Null: too few. */
function inFifth({ memory }: LimitResult, fifth: number): number | null {
  const count = Math.floor(memory.length / 5);
  const readings = memory.slice(fifth * count, (fifth + 1) * count);
  return count === 0 ? null : median(readings.map(([, mib]) => mib));
}

/** Growth since the second fifth of the time, in which the process has its size; null: too few readings. */
function growthOf(result: LimitResult): number | null {
  const [second, last] = [inFifth(result, 1), inFifth(result, 4)];
  return second === null || last === null ? null : last / second - 1;
}

const help = {
  perSecond: 'Answers of the expected kind a second; of pgbench, transactions.',
  p50Ms: 'Median latency, as the generator reports it.',
  p99Ms: '99th percentile of the latency, as the generator reports it.',
  serviceCpuUs: 'CPU of the server for an answer.',
  redisCpuUs: 'CPU of Redis for an answer; of a cluster, of all its masters.',
  postgresCpuUs: 'CPU of Postgres for an answer.',
  utilization: 'Share of one processor that the server used; of several processes, together.',
  growth:
    'Resident memory in the last fifth of the time ÷ that in the second, less one; medians of the readings.',
  lastMiB: 'Resident memory of the server at the end.',
  databaseBytes: 'Growth of the database for an order: tables and indexes, with its points.',
  walBytes: 'What Postgres wrote to its write-ahead log for an order.',
  redisBytes: 'Growth of the memory of Redis for an order.',
  others: 'Answers of another kind, and requests without an answer.',
};

const notes = [
  'Each cell has a server and empty stores in each round: a warm-up, then the same closed loop at each number of connections. Every attempt is another customer’s, except in the cells of repeats. Ratios are taken within a round.',
  'After the load an audit counts orders, counters and points in Postgres, compares them with Redis and with the answers.',
];
const ratioText = 'Medians over the rounds, with their interval.';
const ratioSection = { title: 'Ratios', text: ratioText, charts: [ratios] };

const curve: Curve<LimitResult> = {
  ...{ key: 'memory', title: 'Memory of the service' },
  ...{ x: { title: 'time', unit: 's' }, y: { title: 'resident', unit: 'MiB' } },
  read: ({ memory }) => memory,
};

const layoutOf = ({ report: title, lead, charts, ratios: all }: Kind): ReportLayout => ({
  ...{ title, lead, leadText: 'answers a second', noun: 'cell', passed: 'agree in all stores', notes },
  columns: (lead === 'growth'
    ? [...memoryRows, ...rows.slice(-1), ...rows.slice(0, 1), ...storedRows]
    : rows
  ).map(([key]) => key),
  sections: [...(all.length > 0 ? [ratioSection] : []), { title: 'Figures', text: '', charts }],
});

const programs =
  'wrk, pgbench and taskset are used where they are installed; stores that are given are not pinned.';

function suiteOf(name: keyof typeof kinds): Suite<LimitOptions, LimitCell, LimitResult> {
  const kind = kinds[name];
  return {
    ...{ name, title: kind.title, ...optionsFor(kind) },
    help: `Cells: ${kind.cells.map((cell) => cell.name).join(', ')}; every strategy is one, too.\n${programs}`,
    rounds: kind.rounds,
    async plan({ cells: names, connections, ...shown }) {
      const lead = connections.at(-1)!;
      return {
        cells: names.map((one) => kind.cells.find((cell) => cell.name === one) ?? strategyCell(one)),
        ...{ points: [{ connections: lead }], baseline: null, control: false },
        ladder: { axis: 'connections', values: connections, lead },
        shown: { ...shown, connections },
      };
    },
    async open(options, environment) {
      const place = await openPlace(options, environment);
      return {
        generator: place.text,
        runTrial: (trial, onStep) => measureCell(trial, { ...options, ...place, onStep }),
      };
    },
    metrics: metricsOf([...rows, ...memoryRows, ...storedRows], help),
    curves: name === 'memory' ? [curve] : [],
    ...{ ratios: kind.ratios, report: layoutOf(kind) },
    verdict: ({ passed }: LimitResult) => (passed === null ? null : passed ? 'pass' : 'fail'),
    tables(results) {
      const profiled = results.filter(({ shares }) => shares.length > 0).slice(0, 1);
      const profiles = profiled.map(({ cell, shares }) => ({
        title: `CPU profile of the service with ${cell}`,
        columns: ['owner', 'share'],
        rows: shares.map(([owner, share]) => [owner, percent(share, 1)]),
      }));
      return [...profiles, ...traceTables(results)];
    },
  };
}

export const limits = suiteOf('limits');
export const flat = suiteOf('flat');
export const memory = suiteOf('memory');
export const scale = suiteOf('scale');
