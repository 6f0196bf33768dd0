/** `npm run bench -- memory`: one service under millions of attempts, and how much memory it holds on the way. */
import { migrate } from '../../../src/store/postgres/migrate.ts';
import { auditCounts, settleAll } from '../../audit/counts.ts';
import { residentBytes } from '../../kit/cpu.ts';
import { type MetricRow, metricsOf } from '../../kit/metrics.ts';
import { pin } from '../../kit/pin.ts';
import { insertSales } from '../../kit/sales.ts';
import { noShedding, type Service, startService } from '../../kit/service.ts';
import type { Bare, CellBase, Suite, TrialBase } from '../../kit/suite.ts';
import { number } from '../../kit/text.ts';
import type { RateResult } from '../../load/rate.ts';
import { openPlace, type Place, type PlaceOptions, placeSpecs, readPlace } from './place.ts';

interface MemoryOptions extends PlaceOptions {
  readonly attempts: number;
  readonly connections: number;
}

interface MemoryCell extends CellBase {
  readonly confirm: 'durable' | 'accepted';
  /** Units for each attempt. */
  readonly stockShare: number;
}

interface MemoryResult extends TrialBase {
  /** One before the load, then one after each step. */
  readonly readings: readonly (readonly [attempts: number, mebibytes: number])[];
  readonly attemptsPerSecond: number;
  readonly accepted: number;
}

const million = 1_000_000;
const mebibyte = 1_048_576;

const cell = (
  name: string,
  confirm: MemoryCell['confirm'],
  stockShare: number,
  summary: string,
): MemoryCell => ({
  name,
  confirm,
  stockShare,
  summary,
  unsafe: false,
  control: false,
});
const cells: readonly MemoryCell[] = [
  cell('mixed', 'durable', 0.2, '`lua`: a fifth of the attempts is sold, the others are sold out'),
  cell('accepted', 'accepted', 1, '`lua` with `CONFIRM=accepted`: every attempt is sold'),
];

/** Attempts between two readings. */
export const stepOf = (attempts: number): number => Math.min(million, Math.ceil(attempts / 5));

/** From the first step, when the process has grown to its size, to the last; null: fewer than two steps. */
export function growthOf({ readings }: Pick<MemoryResult, 'readings'>): number | null {
  const [, first, ...others] = readings;
  const last = others.at(-1);
  return first === undefined || last === undefined ? null : last[1] / first[1] - 1;
}

async function measureMemory(
  { confirm, stockShare }: MemoryCell,
  { attempts, connections }: MemoryOptions,
  { stores, generator, layout }: Place,
  {
    number: trial,
    signal,
    onStep,
  }: { readonly number: number; readonly signal: AbortSignal; readonly onStep: (step: string) => void },
): Promise<Bare<MemoryResult>> {
  onStep('starting');
  await using own = await stores.fresh(`${trial}_memory`);
  await migrate(own.databaseUrl);
  // A generator sends a few more before it is stopped.
  const stock = Math.ceil(attempts * stockShare) + (stockShare === 1 ? million : 0);
  await insertSales(own.databaseUrl, { sales: 1, buyers: 0, stock });
  const env = { ...noShedding, CONFIRM: confirm };
  await using service = await startService({ strategy: 'lua', lock: null, ...own, env }, { signal });
  await pin(service.pid, layout.server);
  const readings: [number, number][] = [];
  const end = AbortSignal.any([signal, service.died]);
  const load = {
    url: service.url,
    saleIds: [1],
    connections,
    prefix: 'b',
    durationMs: null,
    attempts,
    record: false,
  };
  const onSent = readAlong(service, attempts, readings, onStep);
  const { answers, refused, durationMs }: RateResult = await generator.run({ ...load, onSent, signal: end });
  onStep('settling and audit');
  await settleAll(own);
  const stopped = await service.stop();
  const accepted = answers - refused;
  const findings = await auditCounts({ ...own, inRedis: true, accepted });
  if (!stopped) findings.push('the service did not stop in order');
  if (readings.length < 3) findings.push('the memory could not be read often enough');
  const attemptsPerSecond = answers / (durationMs / 1_000);
  return { point: {}, readings, attemptsPerSecond, accepted, invalid: [], findings };
}

/** Reads at once, then after each step. @returns to be called with the attempts sent so far */
function readAlong(
  { pid }: Service,
  attempts: number,
  readings: [number, number][],
  onStep: (step: string) => void,
): (sent: number) => void {
  const step = stepOf(attempts);
  const read = (at: number): void => {
    const bytes = residentBytes(pid);
    if (bytes !== null) readings.push([at, bytes / mebibyte]);
  };
  let done = 0;
  read(0);
  return (sent) => {
    onStep(`${number(sent)} of ${number(attempts)} attempts, ${readings.at(-1)?.[1].toFixed(0)} MiB`);
    for (; done + step <= Math.min(sent, attempts); done += step) read(done + step);
  };
}

const rows: readonly MetricRow<MemoryResult>[] = [
  ['growth', 'growth', '%', '-', growthOf],
  ['firstMiB', 'after the first step', 'MiB', '-', ({ readings }) => readings[1]?.[1]],
  ['lastMiB', 'at the end', 'MiB', '-', ({ readings }) => readings.at(-1)?.[1]],
  ['attemptsPerSecond', 'attempts/s', '/s', '+', (r) => r.attemptsPerSecond],
];
const help = { growth: 'Resident memory after the last step ÷ that after the first, less one.' };

export const memory: Suite<MemoryOptions, MemoryCell, MemoryResult> = {
  name: 'memory',
  title: 'Measures the memory of one service under millions of attempts.',
  help: 'Stores are always local.',
  options: {
    attempts: {
      kind: 'whole',
      min: 1_000,
      max: 100_000_000,
      help: 'attempts on each service (5000000; smoke 50000)',
    },
    connections: { kind: 'whole', min: 1, max: 10_000, help: 'connections of the load (512)' },
    ...placeSpecs,
  },
  rounds: { canonical: 1, smoke: 1 },
  read: (given, { smoke }) => ({
    ...readPlace(given),
    attempts: given.number('attempts', smoke ? 50_000 : 5 * million),
    connections: given.number('connections', 512),
  }),
  plan: async (options) => ({
    cells,
    points: [{}],
    baseline: null,
    control: false,
    ladder: null,
    shown: { ...options },
  }),
  async open(options, environment) {
    const place = await openPlace(options, environment);
    const { signal } = environment;
    return {
      generator: place.text,
      versions: place.stores.versions,
      runTrial: async ({ cell, number }, onStep) => [
        await measureMemory(cell, options, place, { number, signal, onStep }),
      ],
      [Symbol.asyncDispose]: () => place[Symbol.asyncDispose](),
    };
  },
  metrics: metricsOf(rows, help),
  curves: [
    {
      key: 'memory',
      title: 'Memory of the service',
      x: { title: 'attempts', unit: '' },
      y: { title: 'resident', unit: 'MiB' },
      read: ({ readings }) => readings,
    },
  ],
  checks: [],
  goals: cells.map(({ name }) => ({
    metric: 'growth',
    of: name,
    over: null,
    atLeast: null,
    atMost: 0.15,
    what: 'memory stays flat',
  })),
  verdict: ({ findings }: MemoryResult) => (findings.length === 0 ? 'pass' : 'fail'),
  report: {
    title: 'Memory of one service',
    lead: 'growth',
    leadText: 'growth',
    noun: 'load',
    columns: ['firstMiB', 'lastMiB', 'growth', 'attemptsPerSecond'],
    sections: [
      { title: 'Memory', text: '', charts: [{ kind: 'curves', curve: 'memory' }, { kind: 'goals' }] },
    ],
    notes: [
      'Growth is counted from the first step, when the process has grown to its size; up to 15 % is the noise of a garbage collector.',
    ],
  },
};
