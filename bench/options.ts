/** The command line: parsed once, purely; all mistakes are reported together, before anything starts. */
import { parseArgs } from 'node:util';
import { suggestion } from './suggest.ts';

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
  readonly load: 'closed';
  /** Results are written to a folder of their own in here. */
  readonly out: string;
  /** Keep the databases of the trials. */
  readonly keep: boolean;
  /** Delete `stampede:*` keys that are already in the given Redis. */
  readonly yes: boolean;
  readonly smoke: boolean;
}

export type ParsedOptions =
  | { readonly kind: 'run'; readonly options: BenchOptions }
  | { readonly kind: 'help' }
  | { readonly kind: 'mistakes'; readonly mistakes: readonly string[] };

interface OptionSpec {
  readonly type: 'string' | 'boolean';
  /** What stands behind the option in the help. */
  readonly value?: string;
  readonly help: string;
}

const specs = {
  strategies: { type: 'string', value: 'a,b|all', help: 'strategies to compare (all)' },
  locks: { type: 'string', value: 'a,b', help: 'locks for the strategies that use one (redis)' },
  rounds: { type: 'string', value: 'n', help: 'rounds; each runs every strategy once (3; smoke 1)' },
  duration: {
    type: 'string',
    value: 's',
    help: 'seconds after which a trial begins no attempt (10; smoke 4)',
  },
  warmup: {
    type: 'string',
    value: 's',
    help: 'seconds of the same load on another sale, before what is measured (3; smoke 0.5)',
  },
  connections: { type: 'string', value: 'n', help: 'clients that attempt at the same time (64; smoke 32)' },
  stock: { type: 'string', value: 'n', help: 'units offered in each trial (2000; smoke 200)' },
  attempts: { type: 'string', value: 'n', help: 'attempts in each trial (20000; smoke 1000)' },
  buyers: {
    type: 'string',
    value: 'n',
    help: 'different customers (90 % of attempts; the rest are repeats)',
  },
  seed: { type: 'string', value: 'n', help: 'of the order of customers and repeats (1)' },
  load: { type: 'string', value: 'closed', help: 'how load is made; closed: autocannon (closed)' },
  out: { type: 'string', value: 'folder', help: 'where results go (bench/results)' },
  keep: { type: 'boolean', help: 'keep the databases of the trials, to look at them' },
  yes: { type: 'boolean', help: 'agree that stampede:* keys in the Redis of REDIS_URL are deleted' },
  smoke: { type: 'boolean', help: 'one small round, under a minute' },
  help: { type: 'boolean', help: 'show this' },
} as const satisfies Record<string, OptionSpec>;

type OptionName = keyof typeof specs;

const canonical = { rounds: 3, duration: 10, warmup: 3, connections: 64, stock: 2_000, attempts: 20_000 };
const smoke = { rounds: 1, duration: 4, warmup: 0.5, connections: 32, stock: 200, attempts: 1_000 };
/** The share of attempts that are first attempts of their customer, unless --buyers says otherwise. */
const firstAttempts = 0.9;

const nameList = /^[a-z0-9-]+(,[a-z0-9-]+)*$/;
/** Loads that the command line knows. */
const loads = ['closed'];

export function helpText(): string {
  const lines = Object.entries(specs).map(([name, spec]: [string, OptionSpec]) => {
    const left = `  --${name}${spec.value === undefined ? '' : ` ${spec.value}`}`;
    return `${left.padEnd(26)}${spec.help}`;
  });
  return `Compares the stock-deduction strategies: throughput, latency and correctness from one run.

  npm run bench -- [options]         the canonical comparison
  npm run bench:smoke -- [options]   the same in under a minute

${lines.join('\n')}

Stores: a local Postgres and Redis are started unless DATABASE_URL and REDIS_URL name running ones. There the bench
creates and drops databases of its own (stampede_bench_*) and deletes stampede:* keys, nothing else.
SEGMENTS, LOCK_TTL_MS and LOCK_WAIT_MS are passed on to the service. REDLOCK_URLS and ZOOKEEPER_URL are passed on with the
locks that need them; the bench itself touches nothing there.

Exit code: 0 all safe strategies passed their audit and the unsafe ones failed theirs; 1 not so; 2 bad options;
130 interrupted (finished trials are reported).
`;
}

export function parseOptions(args: readonly string[]): ParsedOptions {
  const mistakes: string[] = [];
  const given = readTokens(args, mistakes);
  if (given.has('help') && mistakes.length === 0) return { kind: 'help' };

  const defaults = given.has('smoke') ? smoke : canonical;
  const whole = (name: OptionName, fallback: number, min: number, max: number): number =>
    numberOption(given, name, fallback, { min, max, whole: true }, mistakes);
  const attempts = whole('attempts', defaults.attempts, 1, 9_999_999);
  const connections = whole('connections', defaults.connections, 1, 10_000);
  const buyers = whole('buyers', Math.max(1, Math.round(attempts * firstAttempts)), 1, 9_999_999);
  if (connections > attempts) mistakes.push(`--connections ${connections} exceeds --attempts ${attempts}`);
  if (buyers > attempts) {
    mistakes.push(`--buyers ${buyers} exceeds --attempts ${attempts}: every buyer attempts at least once`);
  }
  const seconds = { min: 0.1, max: 3_600, whole: false };
  const options: BenchOptions = {
    strategies: names(given, 'strategies', 'all', mistakes),
    locks: lockNames(given, mistakes),
    rounds: whole('rounds', defaults.rounds, 1, 100),
    durationMs: Math.round(numberOption(given, 'duration', defaults.duration, seconds, mistakes) * 1_000),
    warmupMs: Math.round(
      numberOption(given, 'warmup', defaults.warmup, { ...seconds, min: 0 }, mistakes) * 1_000,
    ),
    connections,
    stock: whole('stock', defaults.stock, 1, 2_147_483_647),
    attempts,
    buyers,
    seed: whole('seed', 1, 0, 4_294_967_295),
    load: loadOption(given, mistakes),
    out: given.get('out') ?? 'bench/results',
    keep: given.has('keep'),
    yes: given.has('yes'),
    smoke: given.has('smoke'),
  };
  return mistakes.length > 0 ? { kind: 'mistakes', mistakes } : { kind: 'run', options };
}

/** The options that were given, by name; switches with an empty text. */
function readTokens(args: readonly string[], mistakes: string[]): Map<OptionName, string> {
  const known = Object.keys(specs);
  const given = new Map<OptionName, string>();
  const { tokens } = parseArgs({
    args: [...args],
    options: specs,
    strict: false,
    allowPositionals: true,
    tokens: true,
  });
  for (const token of tokens) {
    if (token.kind === 'positional') mistakes.push(`"${token.value}" is not an option; --help lists them`);
    if (token.kind !== 'option') continue;
    const { name, rawName, value } = token;
    if (!known.includes(name)) {
      mistakes.push(`there is no option ${rawName}${nearOption(name, known)}`);
      continue;
    }
    const spec: OptionSpec = specs[name as OptionName];
    if (given.has(name as OptionName)) mistakes.push(`${rawName} is given twice`);
    if (spec.type === 'boolean' && value !== undefined) mistakes.push(`${rawName} takes no value`);
    if (spec.type === 'string' && (value === undefined || value === '' || value.startsWith('--'))) {
      mistakes.push(`${rawName} needs a value: ${rawName} ${spec.value}`);
      continue;
    }
    given.set(name as OptionName, value ?? '');
  }
  return given;
}

function nearOption(name: string, known: readonly string[]): string {
  const hint = suggestion(name, known);
  return hint.startsWith('; did') ? hint.replace('"', '"--') : '; --help lists them';
}

function numberOption(
  given: ReadonlyMap<OptionName, string>,
  name: OptionName,
  fallback: number,
  range: { min: number; max: number; whole: boolean },
  mistakes: string[],
): number {
  const text = given.get(name);
  if (text === undefined) return fallback;
  const value = Number(text);
  const written = range.whole ? /^\d+$/ : /^\d+(\.\d+)?$/;
  if (written.test(text) && value >= range.min && value <= range.max) return value;
  const kind = range.whole ? 'a whole number' : 'a number';
  mistakes.push(`--${name} ${text}: must be ${kind} from ${range.min} to ${range.max}`);
  return fallback;
}

function names(
  given: ReadonlyMap<OptionName, string>,
  name: OptionName,
  fallback: 'all',
  mistakes: string[],
): 'all' | readonly string[] {
  const text = given.get(name);
  if (text === undefined || text === 'all') return fallback;
  if (!nameList.test(text)) {
    mistakes.push(`--${name} ${text}: must be names with commas between them, without spaces`);
    return fallback;
  }
  return [...new Set(text.split(','))];
}

function lockNames(given: ReadonlyMap<OptionName, string>, mistakes: string[]): readonly string[] {
  if (!given.has('locks')) return ['redis'];
  const locks = names(given, 'locks', 'all', mistakes);
  if (locks !== 'all') return locks;
  if (given.get('locks') === 'all') mistakes.push('--locks all: name the locks, such as --locks redis');
  return ['redis'];
}

function loadOption(given: ReadonlyMap<OptionName, string>, mistakes: string[]): 'closed' {
  const text = given.get('load') ?? 'closed';
  if (!loads.includes(text)) {
    mistakes.push(
      `--load ${text}: does not exist in this version; there is closed (closed loop with autocannon)`,
    );
  }
  return 'closed';
}
