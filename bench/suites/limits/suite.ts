/** `npm run bench -- limits` and `-- flat`: the service against its platform, and whether an attempt's cost stays flat. */
import { suggestion } from '../../../src/config/suggest.ts';
import { strategies } from '../../../src/strategies/registry.ts';
import { type MetricRow, metricsOf } from '../../kit/metrics.ts';
import type { ReportLayout, Suite } from '../../kit/suite.ts';
import { flatCells, flatGoals, type LimitCell, limitCells, limitGoals, strategyCell } from './cells.ts';
import { type LimitResult, measureCell } from './measure.ts';
import { openPlace, type PlaceOptions, placeSpecs, readPlace } from './place.ts';

interface LimitOptions extends PlaceOptions {
  readonly cells: readonly string[];
  /** More strategies, as cells without a goal. */
  readonly strategies: readonly string[];
  readonly durationMs: number;
  readonly warmupMs: number;
  readonly connections: readonly number[];
}

const rows: readonly MetricRow<LimitResult>[] = [
  ['perSecond', 'answers/s', '/s', '+', (r) => r.perSecond],
  ['p50Ms', 'p50', 'ms', '-', (r) => r.latencyMs?.p50],
  ['p99Ms', 'p99', 'ms', '-', (r) => r.latencyMs?.p99],
  ['serviceCpuUs', 'server CPU', 'µs', '-', (r) => r.serviceCpuUs],
  ['utilization', 'server busy', '%', '+', (r) => r.utilization],
  ['others', 'other answers', '', '-', (r) => r.others + r.unanswered],
];
const help = {
  perSecond: 'Answers of the expected kind a second; of pgbench, transactions.',
  p50Ms: 'Median latency, as the generator reports it.',
  p99Ms: '99th percentile of the latency, as the generator reports it.',
  serviceCpuUs: 'CPU of the server for an answer.',
  utilization: 'Share of one processor that the server used.',
  others: 'Answers of another kind, and requests without an answer.',
};

const notes = [
  'Each cell has a server and empty stores in each round: a warm-up, then the same closed loop at each number of connections. Every attempt is another customer’s. Ratios are taken within a round.',
  'After the load an audit counts orders, counters and points in Postgres, compares them with Redis and with the answers.',
];

const layout = (title: string, charts: ReportLayout['sections'][number]['charts']): ReportLayout => ({
  title,
  lead: 'perSecond',
  leadText: 'answers a second',
  noun: 'cell',
  passed: 'agree in all stores',
  columns: ['perSecond', 'p50Ms', 'p99Ms', 'serviceCpuUs', 'utilization', 'others'],
  axes: { connections: { title: 'connections', unit: '' } },
  sections: [
    { title: 'Goals', text: 'Medians over the rounds, with their interval.', charts: [{ kind: 'goals' }] },
    { title: 'Figures', text: '', charts },
  ],
  notes,
});

interface Kind {
  readonly name: 'limits' | 'flat';
  readonly title: string;
  readonly cells: readonly LimitCell[];
  readonly goals: typeof limitGoals;
  readonly connections: readonly number[];
  readonly report: ReportLayout;
}

function suiteOf(kind: Kind): Suite<LimitOptions, LimitCell, LimitResult> {
  const known = [...strategies.keys()];
  return {
    name: kind.name,
    title: kind.title,
    help: `Cells: ${kind.cells.map(({ name }) => name).join(', ')}.
Stores are always local. wrk, pgbench and taskset are used where they are installed.`,
    options: {
      cells: { kind: 'names', help: 'which cells; a goal needs both of its cells (all)' },
      strategies: { kind: 'names', help: 'more strategies, as cells without a goal (none)' },
      duration: {
        kind: 'seconds',
        min: 0.1,
        max: 3_600,
        help: 'seconds that are measured at each step (4; smoke 0.5)',
      },
      warmup: {
        kind: 'seconds',
        min: 0,
        max: 3_600,
        help: 'seconds of the same load before: young code is slow (10; smoke 0.5)',
      },
      connections: {
        kind: 'numbers',
        min: 1,
        max: 10_000,
        help: `connections of the load; the last one leads (${kind.connections.join()})`,
      },
      ...placeSpecs,
    },
    rounds: { canonical: 5, smoke: 1 },
    read(given, { smoke }, mistakes) {
      const more = given.names('strategies', []);
      for (const name of more.filter((one) => !known.includes(one))) {
        mistakes.push(`--strategies: there is no strategy "${name}"${suggestion(name, known)}`);
      }
      return {
        ...readPlace(given),
        cells: given.names('cells', smoke ? kind.cells.slice(0, 2).map(({ name }) => name) : ['all']),
        strategies: more,
        durationMs: given.number('duration', smoke ? 500 : 4_000),
        warmupMs: given.number('warmup', smoke ? 500 : 10_000),
        connections: given.numbers('connections', smoke ? [64] : kind.connections),
      };
    },
    async plan({ cells: wanted, strategies: more, connections, ...shown }) {
      const all = [...kind.cells, ...more.map(strategyCell)];
      const names = all.map(({ name }) => name);
      const wrong = wanted.filter((name) => name !== 'all' && !names.includes(name));
      if (wrong.length > 0)
        return {
          mistakes: wrong.map((name) => `--cells: there is no cell "${name}"${suggestion(name, names)}`),
        };
      const cells = wanted.includes('all')
        ? all
        : all.filter(({ name }) => wanted.includes(name) || more.includes(name));
      const lead = connections.at(-1)!;
      const ladder = { axis: 'connections', values: connections, lead };
      return {
        cells,
        points: [{ connections: lead }],
        baseline: null,
        control: false,
        ladder,
        shown: { ...shown, connections },
      };
    },
    async open(options, environment) {
      const place = await openPlace(options, environment);
      const { durationMs, warmupMs, connections } = options;
      const { scratch, signal } = environment;
      return {
        generator: place.text,
        versions: place.stores.versions,
        runTrial: (trial, onStep) =>
          measureCell(trial, { ...place, durationMs, warmupMs, connections, scratch, signal, onStep }),
        [Symbol.asyncDispose]: () => place[Symbol.asyncDispose](),
      };
    },
    metrics: metricsOf(rows, help),
    curves: [],
    checks: [],
    goals: kind.goals,
    verdict: ({ passed }: LimitResult) => (passed === null ? null : passed ? 'pass' : 'fail'),
    report: kind.report,
  };
}

export const limits = suiteOf({
  name: 'limits',
  title: 'Measures the service against the limits of the platform under it.',
  cells: limitCells,
  goals: limitGoals,
  connections: [64, 128, 256, 512],
  report: layout('Stampede against the limits of its platform', [
    { kind: 'sweep', title: 'Answers by connections', metric: 'perSecond', axis: 'connections' },
    { kind: 'bars', title: 'CPU of the server for an answer', metrics: ['serviceCpuUs'], stacked: false },
  ]),
});

export const flat = suiteOf({
  name: 'flat',
  title: 'Measures whether the cost of an attempt stays flat with many sales and many buyers.',
  cells: flatCells,
  goals: flatGoals,
  connections: [512],
  report: layout('Whether the cost of an attempt stays flat', [
    { kind: 'bars', title: 'Answers a second', metrics: ['perSecond'], stacked: false },
  ]),
});
