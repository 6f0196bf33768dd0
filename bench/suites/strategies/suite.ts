/** `npm run bench`: the stock-deduction strategies side by side: capacity, selling out, latency, cost, correctness. */

import { remoteService } from '../../../lab/remote.ts';
import { missingLockServers } from '../../../lab/servers/lock-servers.ts';
import { tunable } from '../../../lab/service.ts';
import { bars, curves, range, ranking, stackedBars, sweep as sweepOf } from '../../kit/charts.ts';
import { type Environment, needBuild } from '../../kit/environment.ts';
import { processorsHere, sharedLayout } from '../../kit/pin.ts';
import type { Planned, ReportLayout, Section, Session, Suite } from '../../kit/suite.ts';
import { chooseGenerator } from '../../load/generator.ts';
import { findK6, k6Hint } from '../../load/k6.ts';
import { warmGeneratorUp } from '../../load/open.ts';
import { checks, metrics } from './metrics.ts';
import { cellsOf, type StrategyCell, type StrategyOptions, strategyOptions } from './options.ts';
import type { StrategyResult } from './result.ts';
import { runStrategyTrial } from './trial.ts';

const sweep = (title: string, axis: string) => sweepOf(title, 'acceptedPerSecond', axis);

const sections: readonly Section[] = [
  {
    title: 'Capacity',
    text: 'Every attempt is a new customer’s, and the stock does not run out: a steady state of selling.',
    charts: [ranking('acceptedPerSecond')],
  },
  {
    title: 'Selling out',
    text: 'The same stock, customers and arrivals for every strategy, until 2 s after the first correct “sold out”.',
    charts: [bars('Time until the last unit was sold', 'sellOutS'), curves('remaining')],
  },
  {
    title: 'Latency',
    text: 'Of accepted attempts. While selling out it counts from the intended start of each attempt.',
    charts: [
      range('In steady state', 'p50Ms', 'p99Ms'),
      range('While selling out', 'sellOutP50Ms', 'sellOutP99Ms'),
    ],
  },
  {
    title: 'Cost',
    text: 'CPU seconds for 10,000 answered attempts in steady state.',
    charts: [stackedBars('CPU by process', 'serviceCpu', 'redisCpu', 'postgresCpu')],
  },
  {
    title: 'Where the ranking comes from',
    text: 'Capacity at each number of connections, with farther stores, on more sales, and against pgbench with the same statements.',
    charts: [
      sweep('Connections', 'connections'),
      sweep('Round-trip time to the stores', 'rttMs'),
      sweep('Sales at the same time', 'sales'),
      bars('Against pgbench', 'ofPgbench'),
    ],
  },
];

const columns = [
  'acceptedPerSecond',
  'p50Ms',
  'p99Ms',
  'sellOutS',
  'sendingS',
  'sellOutP99Ms',
  'ofPgbench',
  'serviceCpu',
];
const report: ReportLayout = {
  title: 'Stock-deduction strategies compared',
  lead: 'acceptedPerSecond',
  leadText: 'accepted attempts a second',
  noun: 'strategy',
  passed: 'passed every check',
  columns: [...columns, 'redisRoundTrips', 'postgresRoundTrips'],
  axes: {
    rttMs: { title: 'round-trip time to the stores', unit: 'ms' },
    connections: { title: 'connections', unit: '' },
    sales: { title: 'sales at the same time', unit: '' },
  },
  sections,
  notes: [
    'Each trial has a service process and empty stores. Each round runs every strategy once, beginning one further in the list.',
    'Capacity is measured for at least 5 s after a warm-up, by a closed loop at each number of connections, in one service. All are ranked at the first number; the best of the numbers is chosen by the median over the rounds.',
    'The sell-out is an open loop: Poisson arrivals at one rate, nine of ten by a new customer, one of ten a repeat.',
    'After each load orders are paid and cancelled, and an audit compares the recorded answers with the stores. A strategy whose audit did not pass has no rank. A figure counts only if the load generator used less CPU than service and stores together.',
    'The baseline is measured twice in each round (the A/A control). Differences within their distance are ties.',
  ],
  limits: [
    'Generator, service and stores share one machine: the strategies compete with the generator for its processors.',
    'A sale is one hot row and one Redis key. Many sales at the same time are another load (--sweep sales).',
  ],
};

async function plan(
  options: StrategyOptions,
): Promise<Planned<StrategyCell> | { readonly mistakes: readonly string[] }> {
  const missing = missingLockServers(options.locks, process.env);
  if (options.load.includes('k6') && findK6() === null) missing.push(`--load k6: ${k6Hint}`);
  if (remoteService() !== null && options.points.some(({ rttMs }) => rttMs > 0)) {
    missing.push(
      '--rtt-ms: the proxy that delays runs here, where a service named by BENCH_SERVICE does not',
    );
  }
  if (missing.length > 0) return { mistakes: missing };
  await needBuild();
  const compared = cellsOf(options);
  if ('mistakes' in compared) return compared;
  const { points, ladder, isBrief: _isBrief, quantities, ...shown } = options;
  const [lead = 0] = ladder;
  const values = [...ladder].sort((a, b) => a - b);
  const steps = ladder.length > 1 ? { axis: 'connections', values, lead } : null;
  const env = tunable.flatMap((name) => (process.env[name] ? [[name, process.env[name]]] : []));
  const units = quantities.most === 1 ? null : quantities;
  const all = { ...shown, quantities: units, connections: ladder, serviceEnv: Object.fromEntries(env) };
  return { ...compared, points, control: options.sweep === null, ladder: steps, shown: all };
}

async function open(
  options: StrategyOptions,
  { stores, folder, scratch, signal, say }: Environment,
): Promise<Session<StrategyCell, StrategyResult>> {
  const layout = sharedLayout(processorsHere());
  const generator = chooseGenerator(options.generator, layout, scratch);
  const opened = await stores();
  if (options.load.includes('open')) {
    say('warming the load generator up');
    await warmGeneratorUp(512, signal);
  }
  return {
    generator: `${generator.name} (capacity), undici (selling out); ${layout.text}`,
    runTrial: (trial, onStep) =>
      runStrategyTrial(trial, { options, stores: opened, generator, folder, scratch, signal, onStep }),
  };
}

export const strategies: Suite<StrategyOptions, StrategyCell, StrategyResult> = {
  name: 'strategies',
  title:
    'Compares the stock-deduction strategies: capacity, selling out, latency, cost and correctness from one run.',
  help: `Stores: a local Postgres and Redis are started unless DATABASE_URL and REDIS_URL name running ones. There the bench
creates and drops databases (stampede_bench_*) and deletes stampede:* keys, nothing else.
SEGMENTS, LOCK_TTL_MS and LOCK_WAIT_MS are passed on to the service, REDLOCK_URLS and ZOOKEEPER_URL with the locks that need
them. pgbench and wrk are used where they are installed. BENCH_SERVICE=[user@]host:/folder starts the service there, by ssh.`,
  ...strategyOptions,
  rounds: 5,
  plan,
  open,
  metrics,
  curves: [
    {
      key: 'remaining',
      title: 'Units left while selling out',
      x: { title: 'after the first attempt', unit: 'ms' },
      y: { title: 'units left', unit: '' },
      read: ({ load, remainingOverTime }) => (load === 'open' ? remainingOverTime : null),
    },
  ],
  checks,
  verdict: ({ audit, serviceDied }) => (audit.verdict === 'pass' && serviceDied ? 'unknown' : audit.verdict),
  report,
};
