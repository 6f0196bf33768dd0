/**
 * `npm run bench -- overload`: what a service does at many times its capacity, and how soon it recovers.
 *
 *   capacity (closed loop) ─▶ overload (`times` × capacity) ─▶ recovery (arrivals at the capacity) ─▶ audit
 *                             └─────────── one open loop, on one sale ───────────┘
 *
 * Every attempt is a new customer's, and no sale sells out, so that all admitted attempts cost the same. Recovery begins
 * when the overload ends, while answers may be outstanding: working them off is a part of it.
 */
import { suggestion } from '../../../src/config/suggest.ts';
import { strategies } from '../../../src/strategies/registry.ts';
import { type StoresToAudit, settle } from '../../audit/reader.ts';
import { auditSale } from '../../audit/sale.ts';
import { createSale } from '../../kit/admin.ts';
import { residentBytes } from '../../kit/cpu.ts';
import { type Environment, needBuild } from '../../kit/environment.ts';
import { type MetricRow, metricsOf } from '../../kit/metrics.ts';
import { layoutOf, processorsHere } from '../../kit/pin.ts';
import { type Service, startService } from '../../kit/service.ts';
import type { Bare, CellBase, Curve, Goal, Suite, Trial, TrialBase, Verdict } from '../../kit/suite.ts';
import { buyerName, poisson } from '../../load/attempts.ts';
import { chooseGenerator, generatorNames } from '../../load/generator.ts';
import { type OpenResult, runOpenLoop, warmGeneratorUp } from '../../load/open.ts';
import type { Generator } from '../../load/rate.ts';
import { type Overload, overloadOf, type Recovery, recoveryOf } from './figures.ts';

interface OverloadOptions {
  readonly strategies: readonly string[];
  readonly durationMs: number;
  readonly warmupMs: number;
  /** How many times its capacity. */
  readonly times: number;
  /** As much as one generator can send; where it is less than `times` × capacity, the load is less. */
  readonly mostPerSecond: number;
  /** Of the open loop; attempts that come while all are busy are dropped. */
  readonly connections: number;
  readonly generator: (typeof generatorNames)[number];
}

interface OverloadResult extends TrialBase {
  /** Accepted a second, in a closed loop, after a warm-up. */
  readonly capacityPerSecond: number;
  /** Mean rate at which attempts were due ÷ capacity. */
  readonly times: number;
  readonly sending: OpenResult['sending'];
  readonly overload: Overload;
  readonly recovery: Recovery;
  readonly memory: readonly (readonly [s: number, mebibytes: number])[];
  readonly crashes: number;
  readonly verdict: Verdict;
}

interface Context extends Pick<Environment, 'stores' | 'signal'> {
  readonly generator: Generator;
  readonly onStep: (step: string) => void;
}

const capacityMs = 5_000;
const recoveryMs = 5_000;
/** So many that the stores are busy and no attempt is shed: strategies with batches serve more at a time. */
const closedConnections = (strategy: string): number =>
  strategy === 'lua' || strategy === 'group-commit' ? 128 : 12;
/** Of the sale before the overload: more than any strategy sells. */
const capacityUnits = 500_000;
/** No strategy admits more than this multiple of its capacity. A unit of `skip-locked` is a row. */
const mostAdmitted = 5;
/** Longer than any wait inside the service. */
const requestTimeoutMs = 10_000;

async function runOverload(
  { cell, seed, number }: Trial<CellBase>,
  options: OverloadOptions,
  { stores: allStores, signal, generator, onStep }: Context,
): Promise<Bare<OverloadResult>> {
  onStep('starting');
  await using stores = await (await allStores()).fresh(String(number));
  signal.throwIfAborted();
  await using service = await startService({ strategy: cell.name, lock: null, ...stores }, { signal });
  const end = AbortSignal.any([signal, service.died]);
  onStep('measuring the capacity');
  const closed = { warmupMs: options.warmupMs, connections: closedConnections(cell.name) };
  const capacityPerSecond = await capacityOf(service, closed, generator, end);
  const { durationMs, times, mostPerSecond, connections } = options;
  const ratePerSecond = Math.min(times * capacityPerSecond, mostPerSecond);
  const during = poisson({ ratePerSecond, durationMs, seed });
  // As many as the service can serve: faster arrivals are shed, before and after.
  const after = poisson({ ratePerSecond: capacityPerSecond, durationMs: recoveryMs, seed });
  const schedule = new Float64Array(during.length + after.length);
  schedule.set(during);
  for (const [n, us] of after.entries()) schedule[during.length + n] = durationMs * 1_000 + us;
  const admitted = Math.ceil((capacityPerSecond * mostAdmitted * durationMs) / 1_000);
  const saleId = await createSale(service.url, Math.min(during.length, admitted) + after.length);
  const users = Array.from(schedule, (_, n) => buyerName(n));
  const memory = watchMemory(service.pid);
  const load = await runOpenLoop({
    ...{ url: service.url, saleId, users, schedule, requestTimeoutMs, signal: end },
    ...{ connections, maxOutstanding: connections },
    onProgress: (answers) => onStep(`overload: ${answers} of ${schedule.length} answered`),
  }).finally(memory.stop);
  signal.throwIfAborted();
  onStep('settling and audit');
  const judged = await judge(service, stores, saleId, load);
  const acceptedMs = load.history.flatMap(({ id, outcome, completedUs }) =>
    id >= during.length && outcome === 'accepted' ? [completedUs! / 1_000 - durationMs] : [],
  );
  return {
    point: {},
    capacityPerSecond,
    times: (during.length / durationMs / capacityPerSecond) * 1_000,
    sending: load.sending,
    overload: overloadOf(
      load.history.filter(({ id }) => id < during.length),
      schedule,
    ),
    recovery: recoveryOf(acceptedMs, { durationMs: recoveryMs, capacityPerSecond }),
    memory: memory.readings,
    invalid: load.reasons,
    ...judged,
  };
}

async function capacityOf(
  { url, tail }: Service,
  { warmupMs, connections }: { readonly warmupMs: number; readonly connections: number },
  generator: Generator,
  signal: AbortSignal,
): Promise<number> {
  const saleIds = [await createSale(url, capacityUnits)];
  const load = { url, saleIds, connections, attempts: null, record: false, signal };
  // A young service is slow: group-commit did 3,400/s after 3 s of load, and 7,000/s after half a minute.
  if (warmupMs > 0) await generator.run({ ...load, prefix: 'w', durationMs: warmupMs });
  const result = await generator.run({ ...load, prefix: 'c', durationMs: capacityMs });
  const accepted = result.answers - result.refused;
  if (accepted > 0) return Math.round(accepted / (result.durationMs / 1_000));
  const last = tail().join('\n');
  throw new Error(`nothing was accepted before the overload; the service logged last:\n${last}`);
}

/** Reads the resident memory of a process now, every 5 s, and when it is stopped. */
function watchMemory(pid: number) {
  const beganMs = performance.now();
  const readings: [s: number, mebibytes: number][] = [];
  const read = (): void => {
    const bytes = residentBytes(pid);
    if (bytes !== null) readings.push([Math.round((performance.now() - beganMs) / 1_000), bytes / 2 ** 20]);
  };
  read();
  const timer = setInterval(read, 5_000);
  const stop = (): void => {
    clearInterval(timer);
    read();
  };
  return { readings, stop };
}

async function judge(
  service: Service,
  stores: StoresToAudit,
  saleId: number,
  { history, strangeAnswers }: OpenResult,
): Promise<Pick<OverloadResult, 'findings' | 'verdict' | 'crashes'>> {
  const settled = await settle(stores, [saleId]);
  const { aborted: hasDied } = service.died;
  const isInOrder = await service.stop();
  const audited = await auditSale({ ...stores, saleId, history, settled });
  const findings = [...audited.findings];
  if (hasDied) findings.push(`the service died; it logged last: ${service.tail().slice(-3).join(' | ')}`);
  else if (!isInOrder) findings.push('the service did not stop in order');
  const [strange] = strangeAnswers;
  if (strange) findings.push(`answers outside the contract, such as ${strange.status} ${strange.body}`);
  return { findings, verdict: history.length === 0 ? 'unknown' : audited.verdict, crashes: hasDied ? 1 : 0 };
}

const rows: readonly MetricRow<OverloadResult>[] = [
  ['capacityPerSecond', 'capacity', '/s', '+', (r) => r.capacityPerSecond],
  ['times', 'load', '×', '', (r) => r.times],
  ['admittedP99Ms', 'p99 of admitted', 'ms', '-', (r) => r.overload.admittedP99Ms],
  ['busyP99Ms', 'p99 of busy', 'ms', '-', (r) => r.overload.busyP99Ms],
  ['other', 'neither', '', '-', (r) => r.overload.other],
  ['crashes', 'crashes', '', '-', (r) => r.crashes],
  ['recoveryMs', 'full speed after', 'ms', '-', (r) => r.recovery.fullSpeedAfterMs],
];
const help: Readonly<Record<string, string>> = {
  capacityPerSecond: 'Accepted attempts a second in a closed loop, before the overload.',
  times: 'Attempts due a second ÷ capacity.',
  admittedP99Ms: 'From the intended start, of accepted attempts.',
  busyP99Ms: 'From the intended start, of busy answers.',
  other: 'Attempts that were sent, and neither admitted nor answered busy.',
  crashes: 'Service processes that ended by themselves.',
  recoveryMs: 'From the end of the load to the end of the first half second with 90 % of the capacity.',
};
const metrics = metricsOf(rows, help);

const x = { title: 'second of the load', unit: 's' } as const;
const after = { title: 'after the overload', unit: 'ms' } as const;
const title = {
  admitted: 'Admitted attempts',
  p99: 'p99 of admitted attempts',
  memory: 'Memory of the service',
};
const curves: readonly Curve<OverloadResult>[] = [
  {
    key: 'admitted',
    title: title.admitted,
    x,
    y: { title: 'admitted', unit: '/s' },
    read: (r) => r.overload.admittedBySecond,
  },
  { key: 'p99', title: title.p99, x, y: { title: 'p99', unit: 'ms' }, read: (r) => r.overload.p99BySecond },
  {
    key: 'recovery',
    title: 'Recovery',
    x: after,
    y: { title: 'accepted', unit: '/s' },
    read: (r) => r.recovery.acceptedPerSecond,
  },
  { key: 'memory', title: title.memory, x, y: { title: 'resident', unit: 'MiB' }, read: (r) => r.memory },
];

const known = [...strategies.keys()];
const bounds: readonly (readonly [
  metric: string,
  atLeast: number | null,
  atMost: number | null,
  what: string,
])[] = [
  ['times', 9.5, null, 'the load is ten times the capacity'],
  ['admittedP99Ms', null, 250, 'admitted attempts stay fast'],
  ['busyP99Ms', null, 250, 'shed attempts are answered at once'],
  ['other', null, 0, 'every attempt is admitted or answered busy'],
  ['crashes', null, 0, 'the service does not crash'],
  ['recoveryMs', null, 2_000, 'full speed soon after the load'],
];
const goals = known.flatMap((of) =>
  bounds.map(([metric, atLeast, atMost, what]): Goal => ({ metric, of, over: null, atLeast, atMost, what })),
);

export const overloadSuite: Suite<OverloadOptions, CellBase, OverloadResult> = {
  name: 'overload',
  title: 'Sends many times its capacity to a service, and shows what becomes of it and how soon it recovers.',
  help: 'Stores as for npm run bench. Load shedding has the settings of the service.',
  options: {
    strategies: { kind: 'names', help: 'which strategies (for-update,lua)' },
    duration: { kind: 'seconds', min: 1, max: 3_600, help: 'how long the overload lasts (60; smoke 2)' },
    warmup: {
      kind: 'seconds',
      min: 0,
      max: 3_600,
      help: 'load before the capacity is measured (12; smoke 1)',
    },
    times: { kind: 'number', min: 0.1, max: 1_000, help: 'how many times the capacity (10)' },
    most: { kind: 'number', min: 1, max: 1_000_000, help: 'attempts a second at most (10000)' },
    connections: {
      kind: 'whole',
      min: 1,
      max: 10_000,
      help: 'arrivals while all are busy are dropped (1024)',
    },
    generator: {
      kind: 'choice',
      choices: generatorNames,
      help: 'what measures the capacity (wrk if installed)',
    },
  },
  rounds: { canonical: 1, smoke: 1 },
  read(given, { smoke }, mistakes) {
    const wanted = given.names('strategies', smoke ? ['for-update'] : ['for-update', 'lua']);
    for (const name of wanted.filter((one) => !known.includes(one))) {
      mistakes.push(`--strategies: there is no strategy "${name}"${suggestion(name, known)}`);
    }
    return {
      strategies: wanted,
      durationMs: given.number('duration', smoke ? 2_000 : 60_000),
      warmupMs: given.number('warmup', smoke ? 1_000 : 12_000),
      times: given.number('times', 10),
      mostPerSecond: given.number('most', 10_000),
      connections: given.number('connections', 1_024),
      generator: given.choice('generator', 'auto'),
    };
  },
  async plan({ strategies: names, ...shown }) {
    const oversells = (name: string) => strategies.get(name)?.description.guarantees.neverOversells === false;
    const cells = names.map((name) => ({ name, summary: '', unsafe: oversells(name), control: false }));
    return { cells, points: [{}], baseline: null, control: false, ladder: null, shown };
  },
  async open(options, { stores, scratch, signal, say }) {
    await needBuild();
    const layout = layoutOf(false, processorsHere());
    const generator =
      typeof layout === 'string' ? layout : chooseGenerator(options.generator, layout, scratch);
    if (typeof generator === 'string') throw new Error(generator);
    say('warming the load generator up');
    await warmGeneratorUp(options.connections, signal);
    return {
      generator: `${generator.name} (capacity), undici (overload)`,
      runTrial: async (trial, onStep) => [
        await runOverload(trial, options, { stores, signal, generator, onStep }),
      ],
      async [Symbol.asyncDispose]() {},
    };
  },
  metrics,
  curves,
  checks: [],
  goals,
  verdict: ({ verdict }) => verdict,
  report: {
    title: 'Overload and recovery',
    lead: 'capacityPerSecond',
    leadText: 'accepted attempts a second before the overload',
    noun: 'strategy',
    columns: metrics.map(({ key }) => key),
    sections: [
      { title: 'Goals', text: '', charts: [{ kind: 'goals' }] },
      { title: 'Over time', text: '', charts: curves.map(({ key }) => ({ kind: 'curves', curve: key })) },
    ],
    notes: [
      'An attempt belongs to the second in which it was due, and its latency counts from that moment. Sales do not sell out.',
    ],
  },
};
