/**
 * `npm run bench -- overload`: what a service does at many times its capacity, and how soon it recovers.
 *
 *   capacity (closed loop) ─▶ overload (`times` × capacity) ─▶ recovery (arrivals at the capacity) ─▶ audit
 *                             └─────────── one open loop, on one sale ───────────┘
 *
 * Every attempt is a new customer's, and no sale sells out, so that all admitted attempts cost the same. Recovery begins
 * when the overload ends, while answers may be outstanding: working them off is a part of it.
 */

import { settle } from '../../../lab/audit/reader.ts';
import { auditSale } from '../../../lab/audit/sale.ts';
import { createSale } from '../../../lab/clients/admin.ts';
import type { Service } from '../../../lab/service.ts';
import { strategies } from '../../../src/strategies/registry.ts';
import { curves as curvesOf } from '../../kit/charts.ts';
import { type Environment, needBuild } from '../../kit/environment.ts';
import { type MetricRow, metricsOf } from '../../kit/metrics.ts';
import { named, optionsOf, sized, usually } from '../../kit/options.ts';
import { processorsHere, sharedLayout } from '../../kit/pin.ts';
import { serve } from '../../kit/serve.ts';
import type { Bare, CellBase, Curve, Judgement, Suite, Trial, TrialBase, Unit } from '../../kit/suite.ts';
import { buyerName, poisson } from '../../load/attempts.ts';
import { chooseGenerator, generatorOption } from '../../load/generator.ts';
import { type OpenResult, runOpenLoop, warmGeneratorUp } from '../../load/open.ts';
import type { Generator } from '../../load/rate.ts';
import { strangeIn } from '../../load/recorder.ts';
import { type Overload, overloadOf, type Recovery, recoveryOf } from './figures.ts';

interface OverloadResult extends TrialBase, Overload, Recovery {
  /** Accepted a second, in a closed loop, after a warm-up. */
  readonly capacityPerSecond: number;
  /** Mean rate at which attempts were due ÷ capacity. */
  readonly times: number;
  readonly sending: OpenResult['sending'];
  readonly crashes: number;
  readonly verdict: Judgement;
}

const capacityMs = 5_000;
const recoveryMs = 5_000;
/** Connections that keep the stores busy without shedding: strategies with batches serve more at a time. */
const closedConnections = (strategy: string): number =>
  strategy === 'lua' || strategy === 'group-commit' ? 128 : 12;
/** The stock of the sale before the overload: more than any strategy sells. */
const capacityUnits = 500_000;
/** No strategy admits more than this multiple of its capacity. A unit of `skip-locked` is a row. */
const mostAdmitted = 5;
/** Longer than any wait inside the service. */
const requestTimeoutMs = 10_000;

const known = [...strategies.keys()];
const suiteOptions = optionsOf(
  {
    strategies: usually(named(known, 'strategy', 'which strategies'), 'for-update,lua', 'for-update'),
    duration: usually(sized('seconds', 1, 3_600, 'how long the overload lasts'), '60', '2'),
    warmup: usually(sized('seconds', 0, 3_600, 'load before the capacity is measured'), '12', '1'),
    times: usually(sized('number', 0.1, 1_000, 'how many times the capacity'), '10'),
    most: usually(sized('number', 1, 1_000_000, 'attempts a second at most'), '10000'),
    connections: usually(sized('whole', 1, 10_000, 'arrivals while all are busy are dropped'), '1024'),
    generator: generatorOption('what measures the capacity'),
  },
  ({ duration: durationMs, warmup: warmupMs, most: mostPerSecond, ...others }) => {
    return { ...others, durationMs, warmupMs, mostPerSecond };
  },
);
type Options = ReturnType<typeof suiteOptions.read>;

async function runOverload(
  { cell, seed, number }: Trial<CellBase>,
  options: Options,
  generator: Generator,
  { stores: allStores, signal }: Environment,
  onStep: (step: string) => void,
): Promise<Bare<OverloadResult>> {
  onStep('starting');
  await using stores = await (await allStores()).fresh(String(number));
  signal.throwIfAborted();
  const { durationMs, times, mostPerSecond, connections, warmupMs } = options;
  const settings = { strategy: cell.name, lock: null, ...stores };
  const { result, died, findings } = await serve(settings, signal, async (service, end) => {
    onStep('measuring the capacity');
    const capacityPerSecond = await capacityOf(service, cell.name, warmupMs, generator, end);
    const ratePerSecond = Math.min(times * capacityPerSecond, mostPerSecond);
    const during = poisson({ ratePerSecond, durationMs, seed });
    // At the capacity: even a recovered service would shed faster arrivals.
    const after = poisson({ ratePerSecond: capacityPerSecond, durationMs: recoveryMs, seed });
    const schedule = Float64Array.from([...during, ...after.map((us) => durationMs * 1_000 + us)]);
    const admitted = Math.ceil((capacityPerSecond * mostAdmitted * durationMs) / 1_000);
    const saleId = await createSale(service.url, Math.min(during.length, admitted) + after.length);
    const users = Array.from(schedule, (_, n) => buyerName(n));
    const load = { url: service.url, saleId, users, schedule, connections, requestTimeoutMs, signal: end };
    const onProgress = (n: number) => onStep(`overload: ${n} of ${schedule.length} answered`);
    const sent = await runOpenLoop({ ...load, maxOutstanding: connections, onProgress });
    signal.throwIfAborted();
    onStep('settling and audit');
    const settled = await settle(stores, [saleId]);
    return { capacityPerSecond, due: during.length, schedule, saleId, sent, settled };
  });
  const { capacityPerSecond, due, schedule, saleId, sent, settled } = result;
  const { history, sending, reasons } = sent;
  const audited = await auditSale({ ...stores, saleId, history, settled });
  const acceptedMs = history.flatMap(({ id, outcome, completedUs }) =>
    id >= due && outcome === 'accepted' ? [completedUs! / 1_000 - durationMs] : [],
  );
  const overload = history.filter(({ id }) => id < due);
  return {
    point: {},
    ...{ capacityPerSecond, sending, crashes: died ? 1 : 0, invalid: reasons },
    times: (due / durationMs / capacityPerSecond) * 1_000,
    ...overloadOf(overload, schedule),
    ...recoveryOf(acceptedMs, recoveryMs, capacityPerSecond),
    findings: [...audited.findings, ...findings, ...strangeIn(sent)],
    verdict: history.length === 0 ? 'unknown' : audited.verdict,
  };
}

async function capacityOf(
  { url, tail }: Service,
  strategy: string,
  warmupMs: number,
  generator: Generator,
  signal: AbortSignal,
): Promise<number> {
  const saleIds = [await createSale(url, capacityUnits)];
  const shape = { connections: closedConnections(strategy), attempts: null, record: false };
  const load = { url, saleIds, ...shape, signal };
  // A young service is slow: group-commit did 3,400/s after 3 s of load, and 7,000/s after half a minute.
  if (warmupMs > 0) await generator.run({ ...load, prefix: 'w', durationMs: warmupMs });
  const result = await generator.run({ ...load, prefix: 'c', durationMs: capacityMs });
  const accepted = result.answers - result.refused;
  if (accepted > 0) return Math.round(accepted / (result.durationMs / 1_000));
  throw new Error(`nothing was accepted before the overload; the service logged:\n${tail().join('\n')}`);
}

const rows: readonly MetricRow<OverloadResult>[] = [
  ['capacityPerSecond', 'capacity', '/s', '+', (r) => r.capacityPerSecond],
  ['times', 'load', '×', '', (r) => r.times],
  ['admittedP99Ms', 'p99 of admitted', 'ms', '-', (r) => r.admittedP99Ms],
  ['busyP99Ms', 'p99 of busy', 'ms', '-', (r) => r.busyP99Ms],
  ['other', 'neither', '', '-', (r) => r.other],
  ['crashes', 'crashes', '', '-', (r) => r.crashes],
  ['recoveryMs', 'full speed after', 'ms', '-', (r) => r.fullSpeedAfterMs ?? recoveryMs],
];
const metrics = metricsOf(rows, {
  capacityPerSecond: 'Accepted attempts a second in a closed loop, before the overload.',
  times: 'Attempts due a second ÷ capacity.',
  admittedP99Ms: 'From the intended start, of accepted attempts.',
  busyP99Ms: 'From the intended start, of busy answers.',
  other: 'Attempts that were sent, and neither admitted nor answered busy.',
  crashes: 'Service processes that ended by themselves.',
  recoveryMs: `From the end of the overload to the end of the first half second with 90 % of the capacity; ${recoveryMs / 1_000} s if there was none.`,
});

const second = { title: 'second of the overload', unit: 's' } as const;
const after = { title: 'after the overload', unit: 'ms' } as const;
const y = (title: string, unit: Unit) => ({ title, unit });
const curves: readonly Curve<OverloadResult>[] = [
  { key: 'admitted', title: 'Admitted', x: second, y: y('admitted', '/s'), read: (r) => r.admittedBySecond },
  { key: 'p99', title: 'p99 of admitted', x: second, y: y('p99', 'ms'), read: (r) => r.p99BySecond },
  { key: 'recovery', title: 'Recovery', x: after, y: y('accepted', '/s'), read: (r) => r.acceptedPerSecond },
];

export const overloadSuite: Suite<Options, CellBase, OverloadResult> = {
  name: 'overload',
  title: 'Sends many times its capacity to a service, and shows what becomes of it and how soon it recovers.',
  help: 'Stores as for npm run bench. Load shedding has the settings of the service.',
  ...suiteOptions,
  rounds: 1,
  async plan({ strategies: names, ...shown }) {
    const oversells = (name: string) => strategies.get(name)?.description.guarantees.neverOversells === false;
    const cells = names.map((name) => ({ name, summary: '', unsafe: oversells(name), control: false }));
    return { cells, points: [{}], baseline: null, control: false, ladder: null, shown };
  },
  async open(options, environment) {
    await needBuild();
    const layout = sharedLayout(processorsHere());
    const generator = chooseGenerator(options.generator, layout, environment.scratch);
    environment.say('warming the load generator up');
    await warmGeneratorUp(options.connections, environment.signal);
    return {
      generator: `${generator.name} (capacity), undici (overload)`,
      runTrial: (trial, onStep) => runOverload(trial, options, generator, environment, onStep),
    };
  },
  metrics,
  curves,
  verdict: ({ verdict }) => verdict,
  report: {
    title: 'Overload and recovery',
    lead: 'capacityPerSecond',
    leadText: 'accepted attempts a second before the overload',
    noun: 'strategy',
    columns: metrics.map(({ key }) => key),
    sections: [{ title: 'Over time', text: '', charts: curves.map(({ key }) => curvesOf(key)) }],
    notes: [
      'An attempt belongs to the second in which it was due, and its latency counts from that moment. Sales do not sell out.',
    ],
  },
};
