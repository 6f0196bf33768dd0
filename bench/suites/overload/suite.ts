/**
 * `npm run bench -- overload`: what a service does at many times its capacity, and how soon it recovers.
 *
 *   capacity (closed loop) ─▶ overload (open loop at `times` × capacity) ─▶ recovery (open loop at the capacity) ─▶ audit
 *
 * Every attempt is a new customer's, in sales that do not sell out, so that all admitted attempts cost the same. Recovery
 * begins when the last attempt of the overload was due, while answers may be outstanding: working them off is a part of it.
 */
import { suggestion } from '../../../src/config/suggest.ts';
import { strategies } from '../../../src/strategies/registry.ts';
import { type StoresToAudit, settle } from '../../audit/reader.ts';
import { auditSale } from '../../audit/sale.ts';
import { createSale } from '../../kit/admin.ts';
import { residentBytes } from '../../kit/cpu.ts';
import { type Environment, needBuild } from '../../kit/environment.ts';
import type { HistoryRecord } from '../../kit/history.ts';
import { type MetricRow, metricsOf } from '../../kit/metrics.ts';
import { layoutOf, processorsHere } from '../../kit/pin.ts';
import { type Service, startService } from '../../kit/service.ts';
import type { Bare, CellBase, Curve, Goal, Suite, Trial, TrialBase, Verdict } from '../../kit/suite.ts';
import { buyerName } from '../../load/attempts.ts';
import { chooseGenerator, generatorNames } from '../../load/generator.ts';
import { type OpenResult, runOpenLoop } from '../../load/open.ts';
import type { Generator } from '../../load/rate.ts';
import { poisson } from '../../load/schedule.ts';
import { warmGeneratorUp } from '../../load/warm-up.ts';
import { type Overload, overloadOf, type Recovery, recoveryOf } from './figures.ts';

interface OverloadOptions {
  readonly strategies: readonly string[];
  readonly durationMs: number;
  readonly warmupMs: number;
  /** How many times its capacity. */
  readonly times: number;
  /** As much as one generator can send; where it is less than `times` × capacity, the load is less. */
  readonly mostPerSecond: number;
  /** Of the overload; attempts that come while all are busy are dropped. */
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
const memoryEveryMs = 5_000;
const mebibyte = 1_048_576;

async function runOverload(
  { cell, seed, number }: Trial<CellBase>,
  options: OverloadOptions,
  generator: Generator,
  {
    stores: allStores,
    signal,
    onStep,
  }: Pick<Environment, 'stores' | 'signal'> & { readonly onStep: (step: string) => void },
): Promise<Bare<OverloadResult>> {
  onStep('starting');
  await using stores = await (await allStores()).fresh(String(number));
  signal.throwIfAborted();
  await using service = await startService({ strategy: cell.name, lock: null, ...stores }, { signal });
  const end = AbortSignal.any([signal, service.died]);
  onStep('measuring the capacity');
  const capacityPerSecond = await capacityOf(service, options, generator, closedConnections(cell.name), end);
  const loads = await overload(service, options, capacityPerSecond, { seed, end, onStep });
  signal.throwIfAborted();
  const { saleId, open, after, schedule, memory } = loads;
  onStep('settling and audit');
  const { history, findings, verdict, died } = await judge(service, stores, saleId, [open, after]);
  const figures = overloadOf(open.history, schedule);
  return {
    point: {},
    capacityPerSecond,
    times: ((schedule.length / options.durationMs) * 1_000) / capacityPerSecond,
    sending: open.sending,
    overload: figures,
    recovery: recoveryOf(after.history, { durationMs: recoveryMs, capacityPerSecond }),
    memory,
    crashes: died ? 1 : 0,
    verdict: history.length === 0 ? 'unknown' : verdict,
    invalid: open.reasons,
    findings,
  };
}

async function capacityOf(
  { url, tail }: Service,
  { warmupMs }: OverloadOptions,
  generator: Generator,
  connections: number,
  signal: AbortSignal,
): Promise<number> {
  const saleIds = [await createSale(url, capacityUnits)];
  const load = { url, saleIds, connections, attempts: null, record: false, signal };
  // A young service is slow: group-commit did 3,400/s after 3 s of load, and 7,000/s after half a minute.
  if (warmupMs > 0) await generator.run({ ...load, prefix: 'w', durationMs: warmupMs });
  const { answers, refused, durationMs } = await generator.run({
    ...load,
    prefix: 'c',
    durationMs: capacityMs,
  });
  const accepted = answers - refused;
  if (accepted === 0)
    throw new Error(
      `nothing was accepted before the overload; the service logged last:\n${tail().join('\n')}`,
    );
  return Math.round(accepted / (durationMs / 1_000));
}

async function overload(
  service: Service,
  { durationMs, times, mostPerSecond, connections }: OverloadOptions,
  capacityPerSecond: number,
  {
    seed,
    end,
    onStep,
  }: { readonly seed: number; readonly end: AbortSignal; readonly onStep: (step: string) => void },
) {
  const ratePerSecond = Math.min(times * capacityPerSecond, mostPerSecond);
  const schedule = poisson({ ratePerSecond, durationMs, seed });
  // As many as the service can serve: faster arrivals are shed, before and after.
  const scheduleAfter = poisson({ ratePerSecond: capacityPerSecond, durationMs: recoveryMs, seed });
  const users = Array.from({ length: schedule.length + scheduleAfter.length }, (_, n) => buyerName(n));
  const admitted = Math.min(
    schedule.length,
    Math.ceil((capacityPerSecond * mostAdmitted * durationMs) / 1_000),
  );
  const saleId = await createSale(service.url, admitted + scheduleAfter.length);
  const load = {
    url: service.url,
    saleId,
    connections,
    maxOutstanding: connections,
    requestTimeoutMs,
    signal: end,
  };
  const beganMs = performance.now();
  const memory: [number, number][] = [];
  const read = (): void => {
    const bytes = residentBytes(service.pid);
    if (bytes !== null) memory.push([Math.round((performance.now() - beganMs) / 1_000), bytes / mebibyte]);
  };
  read();
  const timer = setInterval(read, memoryEveryMs);
  let after: Promise<OpenResult> | undefined;
  try {
    const open = await runOpenLoop({
      ...load,
      users: users.slice(0, schedule.length),
      schedule,
      onProgress: (completed) => onStep(`overload: ${completed} of ${schedule.length} answered`),
      onScheduleEnd: () => {
        after = runOpenLoop({ ...load, users: users.slice(schedule.length), schedule: scheduleAfter });
      },
    });
    return { saleId, open, after: (await after) ?? { ...open, history: [] }, schedule, memory };
  } finally {
    clearInterval(timer);
    read();
  }
}

async function judge(
  service: Service,
  stores: StoresToAudit,
  saleId: number,
  loads: readonly OpenResult[],
): Promise<{ history: readonly HistoryRecord[]; findings: string[]; verdict: Verdict; died: boolean }> {
  const settled = await settle(stores, [saleId]);
  const died = service.died.aborted;
  const stopped = await service.stop();
  const history = loads.flatMap((load) => load.history).map((record, id) => ({ ...record, id }));
  const audited = await auditSale({ ...stores, saleId, history, settled });
  const strange = loads.flatMap(({ strangeAnswers }) =>
    strangeAnswers.map(({ status, body }) => `${status} ${body}`),
  );
  const findings = [...audited.findings];
  if (died) findings.push(`the service died; it logged last: ${service.tail().slice(-3).join(' | ')}`);
  else if (!stopped) findings.push('the service did not stop in order');
  if (strange.length > 0) findings.push(`answers outside the contract, such as ${strange[0]}`);
  return { history, findings, verdict: audited.verdict, died };
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

const second = { title: 'second of the overload', unit: 's' as const };
const after = { title: 'after the load', unit: 'ms' as const };
const curves: readonly Curve<OverloadResult>[] = [
  {
    key: 'admitted',
    title: 'Admitted attempts',
    x: second,
    y: { title: 'admitted', unit: '/s' },
    read: (r) => r.overload.admittedBySecond,
  },
  {
    key: 'p99',
    title: 'p99 of admitted attempts',
    x: second,
    y: { title: 'p99', unit: 'ms' },
    read: (r) => r.overload.p99BySecond,
  },
  {
    key: 'recovery',
    title: 'Recovery',
    x: after,
    y: { title: 'accepted', unit: '/s' },
    read: (r) => r.recovery.acceptedPerSecond,
  },
  {
    key: 'memory',
    title: 'Memory of the service',
    x: second,
    y: { title: 'resident', unit: 'MiB' },
    read: (r) => r.memory,
  },
];

const known = [...strategies.keys()];
const bounds: Readonly<
  Record<string, readonly [atLeast: number | null, atMost: number | null, what: string]>
> = {
  times: [9.5, null, 'the load is ten times the capacity'],
  admittedP99Ms: [null, 250, 'admitted attempts stay fast'],
  busyP99Ms: [null, 250, 'shed attempts are answered at once'],
  other: [null, 0, 'every attempt is admitted or answered busy'],
  crashes: [null, 0, 'the service does not crash'],
  recoveryMs: [null, 2_000, 'full speed soon after the load'],
};
const goals = known.flatMap((of) =>
  Object.entries(bounds).map(
    ([metric, [atLeast, atMost, what]]): Goal => ({ metric, of, over: null, atLeast, atMost, what }),
  ),
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
      help: 'seconds of load before the capacity is measured (12; smoke 1)',
    },
    times: { kind: 'number', min: 0.1, max: 1_000, help: 'how many times the capacity (10)' },
    most: { kind: 'number', min: 1, max: 1_000_000, help: 'attempts a second at most (10000)' },
    connections: {
      kind: 'whole',
      min: 1,
      max: 10_000,
      help: 'of the overload; arrivals while all are busy are dropped (1024)',
    },
    generator: {
      kind: 'choice',
      choices: generatorNames,
      help: 'what measures the capacity (wrk where it is installed)',
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
    const cells = names.map((name) => ({
      name,
      summary: '',
      unsafe: strategies.get(name)?.description.guarantees.neverOversells === false,
      control: false,
    }));
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
        await runOverload(trial, options, generator, { stores, signal, onStep }),
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
