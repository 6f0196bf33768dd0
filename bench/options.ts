/** The command line: parsed once, purely; all mistakes are reported together, before anything starts. */
import {
  type Given,
  namesOption,
  numberOption,
  optionLines,
  type Parsed,
  readOptions,
} from './command-line.ts';
import type { LoadKind, Point } from './result.ts';

/** An axis along which a strategy's throughput is looked at. */
export type Sweep = 'rtt' | 'connections' | 'sales';

export interface BenchOptions {
  readonly strategies: 'all' | readonly string[];
  readonly locks: readonly string[];
  readonly rounds: number;
  /** No attempt of a trial is begun after this. */
  readonly durationMs: number;
  /** Load on a sale of its own before the one that is measured, so that a young process is not what is compared. */
  readonly warmupMs: number;
  readonly connections: number;
  /** Units offered in each trial. */
  readonly stock: number;
  /** Requests of each trial, unless time is up before. */
  readonly attempts: number;
  /** Different customers among the attempts; the other attempts are repeats. */
  readonly buyers: number;
  readonly seed: number;
  /** Closed and open together: the open loop's share is taken of what the closed loop before it accepted. */
  readonly load: readonly LoadKind[];
  /** Arrivals a second of the open loop that is the same for every strategy. */
  readonly ratePerSecond: number;
  /** How long each open loop lasts. */
  readonly rushMs: number;
  /** Within each round, accepted/s is divided by this strategy's; null: by the first one's. */
  readonly baseline: string | null;
  /** What is changed from point to point; null: there is one point. */
  readonly sweep: Sweep | null;
  /** Where on the axes each round measures every strategy; one, unless there is a sweep. */
  readonly points: readonly Point[];
  /** Results are written to a folder of their own in here. */
  readonly out: string;
  /** Keep the databases of the trials. */
  readonly keep: boolean;
  /** Delete `stampede:*` keys that are already in the given Redis. */
  readonly yes: boolean;
  readonly smoke: boolean;
}

export type ParsedOptions = Parsed<BenchOptions>;

const specs = {
  strategies: { type: 'string', value: 'a,b|all', help: 'strategies to compare (all)' },
  locks: { type: 'string', value: 'a,b', help: 'locks for the strategies that use one (redis)' },
  baseline: { type: 'string', value: 'name', help: 'strategy that the others are divided by (for-update)' },
  rounds: {
    type: 'string',
    value: 'n',
    help: 'rounds; each runs every strategy once (5; a sweep 3, smoke 1)',
  },
  load: {
    type: 'string',
    value: 'a,b',
    help: 'closed: capacity, with autocannon. open: a rush at a given rate. k6: the scripts of bench/load/k6 (closed,open; a sweep and smoke closed)',
  },
  duration: {
    type: 'string',
    value: 's',
    help: 'seconds after which a closed loop begins no attempt (3)',
  },
  warmup: {
    type: 'string',
    value: 's',
    help: 'seconds of the same load on another sale, before what is measured (1.5; smoke 0.5)',
  },
  connections: { type: 'string', value: 'n', help: 'clients that attempt at the same time (64; smoke 32)' },
  stock: { type: 'string', value: 'n', help: 'units offered in each closed loop (2000; smoke 200)' },
  attempts: { type: 'string', value: 'n', help: 'attempts in each closed loop (20000; smoke 1000)' },
  buyers: {
    type: 'string',
    value: 'n',
    help: 'different customers (90 % of attempts; the rest are repeats)',
  },
  rate: { type: 'string', value: 'n', help: 'arrivals a second of the rush that all strategies meet (250)' },
  rush: { type: 'string', value: 's', help: 'seconds that each rush lasts (2)' },
  sweep: {
    type: 'string',
    value: 'axis',
    help: 'rtt, connections or sales: how accepted/s changes along it; --connections then takes a list',
  },
  'rtt-ms': {
    type: 'string',
    value: 'a,b',
    help: 'round-trip time that a proxy adds between service and stores, ms (0; --sweep rtt 0,1,5)',
  },
  sales: { type: 'string', value: 'a,b', help: 'sales at the same time (1; --sweep sales 1,10,100)' },
  seed: { type: 'string', value: 'n', help: 'of arrivals, and of the order of customers and repeats (1)' },
  out: { type: 'string', value: 'folder', help: 'where results go (bench/results)' },
  keep: { type: 'boolean', help: 'keep the databases of the trials, to look at them' },
  yes: { type: 'boolean', help: 'agree that stampede:* keys in the Redis of REDIS_URL are deleted' },
  smoke: { type: 'boolean', help: 'one small round, under a minute' },
  help: { type: 'boolean', help: 'show this' },
} as const;

type OptionName = keyof typeof specs;

const canonical = { rounds: 5, warmup: 1.5, connections: 64, stock: 2_000, attempts: 20_000 };
const smoke = { rounds: 1, warmup: 0.5, connections: 32, stock: 200, attempts: 1_000 };
const sweepRounds = 3;
/** The share of attempts that are first attempts of their customer, unless --buyers says otherwise. */
const firstAttempts = 0.9;

/** What each axis is measured at, unless told. */
const axes: Readonly<Record<Sweep, readonly number[]>> = {
  rtt: [0, 1, 5],
  connections: [16, 64, 256, 1_024],
  sales: [1, 10, 100],
};
const axisOptions = { rtt: 'rtt-ms', connections: 'connections', sales: 'sales' } as const;
const axisRanges = {
  rtt: { min: 0, max: 1_000, whole: false },
  connections: { min: 1, max: 10_000, whole: true },
  sales: { min: 1, max: 1_000, whole: true },
} as const;
const loads: readonly LoadKind[] = ['closed', 'open', 'k6'];

export function helpText(): string {
  return `Compares the stock-deduction strategies: throughput, latency and correctness from one run.

  npm run bench -- [options]         the canonical comparison
  npm run bench:smoke -- [options]   the same in under a minute
  npm run bench -- --compare BEFORE/results.json AFTER/results.json [--fail-on-regression]
                                     whether a change made something faster or slower, beyond noise
  npm run bench -- --report results.json [sweep/results.json ...]
                                     report.html once more, beside the first file, with the sweeps of the others

${optionLines(specs, 26)}

Stores: a local Postgres and Redis are started unless DATABASE_URL and REDIS_URL name running ones. There the bench
creates and drops databases of its own (stampede_bench_*) and deletes stampede:* keys, nothing else.
SEGMENTS, LOCK_TTL_MS and LOCK_WAIT_MS are passed on to the service. REDLOCK_URLS and ZOOKEEPER_URL are passed on with the
locks that need them; the bench itself touches nothing there.

Exit code: 0 all safe strategies passed their audit and the unsafe ones failed theirs; 1 not so; 2 bad options;
130 interrupted (finished rounds are reported).
`;
}

export function parseOptions(args: readonly string[]): ParsedOptions {
  const mistakes: string[] = [];
  const given = readOptions(specs, args, mistakes);
  if (given.has('help') && mistakes.length === 0) return { kind: 'help' };

  const defaults = given.has('smoke') ? smoke : canonical;
  const sweep = sweepOption(given, mistakes);
  const whole = (name: OptionName, fallback: number, min: number, max: number): number =>
    numberOption(given, name, fallback, { min, max, whole: true }, mistakes);
  const ms = (name: OptionName, fallback: number, min: number): number =>
    Math.round(numberOption(given, name, fallback, { min, max: 3_600, whole: false }, mistakes) * 1_000);
  const attempts = whole('attempts', defaults.attempts, 1, 9_999_999);
  const points = pointsOf(given, sweep, defaults.connections, mistakes);
  const connections = Math.max(...points.map((point) => point.connections));
  const buyers = whole('buyers', Math.max(1, Math.round(attempts * firstAttempts)), 1, 9_999_999);
  if (connections > attempts) mistakes.push(`--connections ${connections} exceeds --attempts ${attempts}`);
  if (buyers > attempts) {
    mistakes.push(`--buyers ${buyers} exceeds --attempts ${attempts}: every buyer attempts at least once`);
  }
  const options: BenchOptions = {
    strategies: strategyNames(given, mistakes),
    locks: lockNames(given, mistakes),
    rounds: whole('rounds', sweep !== null && !given.has('smoke') ? sweepRounds : defaults.rounds, 1, 100),
    durationMs: ms('duration', 3, 0.1),
    warmupMs: ms('warmup', defaults.warmup, 0),
    connections,
    stock: whole('stock', defaults.stock, 1, 2_147_483_647),
    attempts,
    buyers,
    seed: whole('seed', 1, 0, 4_294_967_295),
    load: loadOption(given, sweep, mistakes),
    ratePerSecond: whole('rate', 250, 1, 100_000),
    rushMs: ms('rush', 2, 0.1),
    baseline: baselineName(given, mistakes),
    sweep,
    points,
    out: given.get('out') ?? 'bench/results',
    keep: given.has('keep'),
    yes: given.has('yes'),
    smoke: given.has('smoke'),
  };
  return mistakes.length > 0 ? { kind: 'mistakes', mistakes } : { kind: 'run', options };
}

function strategyNames(given: Given<OptionName>, mistakes: string[]): 'all' | readonly string[] {
  if (given.get('strategies') === 'all') return 'all';
  return namesOption(given, 'strategies', mistakes) ?? 'all';
}

function lockNames(given: Given<OptionName>, mistakes: string[]): readonly string[] {
  const locks = namesOption(given, 'locks', mistakes) ?? ['redis'];
  if (locks.includes('all')) mistakes.push('--locks all: name the locks, such as --locks redis');
  return locks;
}

function baselineName(given: Given<OptionName>, mistakes: string[]): string | null {
  const names = namesOption(given, 'baseline', mistakes);
  if (names === null) return null;
  if (names.length > 1) mistakes.push(`--baseline ${names.join(',')}: must be one strategy`);
  return names[0] ?? null;
}

function loadOption(given: Given<OptionName>, sweep: Sweep | null, mistakes: string[]): readonly LoadKind[] {
  const small = sweep !== null || given.has('smoke');
  const names = namesOption(given, 'load', mistakes) ?? (small ? ['closed'] : ['closed', 'open']);
  const wrong = names.filter((name) => !loads.includes(name as LoadKind));
  for (const name of wrong)
    mistakes.push(
      `--load ${name}: there is closed (autocannon), open (a rush of the bench's own) and k6 (its scripts)`,
    );
  if (sweep !== null && names.join() !== 'closed')
    mistakes.push(`--load ${names.join()}: a sweep looks at capacity, with --load closed`);
  return loads.filter((kind) => names.includes(kind));
}

function sweepOption(given: Given<OptionName>, mistakes: string[]): Sweep | null {
  const text = given.get('sweep');
  if (text === undefined) return null;
  if (text in axes) return text as Sweep;
  mistakes.push(`--sweep ${text}: there is rtt, connections and sales`);
  return null;
}

/** The points of a sweep, or the one point that all is measured at. */
function pointsOf(
  given: Given<OptionName>,
  sweep: Sweep | null,
  connections: number,
  mistakes: string[],
): readonly Point[] {
  const values = (axis: Sweep, fallback: number): readonly number[] => {
    const all = axisValues(given, axis, mistakes) ?? (axis === sweep ? axes[axis] : [fallback]);
    if (axis !== sweep && all.length > 1)
      mistakes.push(`--${axisOptions[axis]} ${all.join()}: takes one number, or a list with --sweep ${axis}`);
    return all;
  };
  const all = {
    rtt: values('rtt', 0),
    connections: values('connections', connections),
    sales: values('sales', 1),
  };
  return all.rtt.flatMap((rttMs) =>
    all.connections.flatMap((clients) => all.sales.map((sales) => ({ rttMs, connections: clients, sales }))),
  );
}

function axisValues(given: Given<OptionName>, axis: Sweep, mistakes: string[]): readonly number[] | null {
  const name = axisOptions[axis];
  const texts = given.get(name)?.split(',');
  if (texts === undefined) return null;
  const single = (text: string): number =>
    numberOption(new Map([[name, text]]), name, 0, axisRanges[axis], mistakes);
  return [...new Set(texts.map(single))];
}
