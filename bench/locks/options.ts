/** The command line of `npm run bench:locks`: parsed once, purely; all mistakes are reported together. */
import { parseArgs } from 'node:util';
import { suggestion } from '../suggest.ts';

export interface LocksOptions {
  readonly locks: 'all' | readonly string[];
  readonly rounds: number;
  /** What is measured of each shape, after the warm-up. */
  readonly durationMs: number;
  readonly warmupMs: number;
  /** Of all processes together, where the lock is contended. */
  readonly waiters: number;
  readonly processes: number;
  /** How long to wait before each lock for other work on the machine to end. */
  readonly restMs: number;
  /** Results are written to a folder of their own in here. */
  readonly out: string;
  /** Also replace the result that is committed. */
  readonly canonical: boolean;
}

export type ParsedOptions =
  | { readonly kind: 'run'; readonly options: LocksOptions }
  | { readonly kind: 'help' }
  | { readonly kind: 'mistakes'; readonly mistakes: readonly string[] };

interface OptionSpec {
  readonly type: 'string' | 'boolean';
  readonly value?: string;
  readonly help: string;
}

const specs = {
  locks: {
    type: 'string',
    value: 'a,b|all',
    help: 'what is measured (all); none is a control that locks nothing',
  },
  rounds: { type: 'string', value: 'n', help: 'rounds; each measures everyone once (3)' },
  duration: { type: 'string', value: 's', help: 'seconds of each of the three measurements of a lock (2)' },
  warmup: { type: 'string', value: 's', help: 'seconds of the same load before each of them (0.5)' },
  waiters: { type: 'string', value: 'n', help: 'waiters on one resource (64)' },
  processes: { type: 'string', value: 'n', help: 'processes that the waiters are shared out to (4)' },
  rest: {
    type: 'string',
    value: 's',
    help: 'seconds to wait, at most, before each lock until the machine is at rest (0)',
  },
  out: { type: 'string', value: 'folder', help: 'where results go (bench/results)' },
  canonical: {
    type: 'boolean',
    help: 'after a run without faults, also replace bench/results/canonical/locks.json and locks.md',
  },
  help: { type: 'boolean', help: 'show this' },
} as const satisfies Record<string, OptionSpec>;

type OptionName = keyof typeof specs;
type Given = ReadonlyMap<OptionName, string>;

const nameList = /^[a-z0-9-]+(,[a-z0-9-]+)*$/;

export function helpText(names: readonly string[]): string {
  const lines = Object.entries(specs).map(([name, spec]: [string, OptionSpec]) => {
    const left = `  --${name}${spec.value === undefined ? '' : ` ${spec.value}`}`;
    return `${left.padEnd(22)}${spec.help}`;
  });
  return `Compares the locks, and two libraries beside them: throughput, hand-off, cost, fairness and exclusion.

  npm run bench:locks -- [options]

${lines.join('\n')}

There are ${names.join(', ')}.

Every server is started by the bench, on a port of its own, and ends with it; what is not installed is left out.
All together take about ten seconds for each lock and round.

Exit code: 0 nobody saw two holders (but of the control); 1 not so, or nothing could be measured; 2 bad options;
130 interrupted (finished measurements are reported).
`;
}

export function parseOptions(args: readonly string[]): ParsedOptions {
  const mistakes: string[] = [];
  const given = readTokens(args, mistakes);
  if (given.has('help') && mistakes.length === 0) return { kind: 'help' };
  const number = (name: OptionName, fallback: number, min: number, max: number, whole = true): number =>
    numberOption(given, name, fallback, { min, max, whole }, mistakes);
  const options: LocksOptions = {
    locks: nameOption(given, mistakes),
    rounds: number('rounds', 3, 1, 100),
    durationMs: Math.round(number('duration', 2, 0.1, 600, false) * 1_000),
    warmupMs: Math.round(number('warmup', 0.5, 0, 60, false) * 1_000),
    waiters: number('waiters', 64, 2, 10_000),
    processes: number('processes', 4, 2, 64),
    restMs: Math.round(number('rest', 0, 0, 3_600, false) * 1_000),
    out: given.get('out') ?? 'bench/results',
    canonical: given.has('canonical'),
  };
  const { processes, waiters } = options;
  if (mistakes.length === 0 && processes > waiters) {
    mistakes.push(`--processes ${processes} exceeds --waiters ${waiters}: every process has at least one`);
  }
  return mistakes.length > 0 ? { kind: 'mistakes', mistakes } : { kind: 'run', options };
}

/** The options that were given, by name; switches with an empty text. */
function readTokens(args: readonly string[], mistakes: string[]): Given {
  const known = Object.keys(specs);
  const given = new Map<OptionName, string>();
  const lenient = { options: specs, strict: false, allowPositionals: true, tokens: true } as const;
  for (const token of parseArgs({ args: [...args], ...lenient }).tokens) {
    if (token.kind === 'positional') mistakes.push(`"${token.value}" is not an option; --help lists them`);
    if (token.kind !== 'option') continue;
    const { name, rawName, value } = token;
    if (!known.includes(name)) {
      const hint = suggestion(name, known);
      const near = hint.startsWith('; did') ? hint.replace('"', '"--') : '; --help lists them';
      mistakes.push(`there is no option ${rawName}${near}`);
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

function numberOption(
  given: Given,
  name: OptionName,
  fallback: number,
  range: { readonly min: number; readonly max: number; readonly whole: boolean },
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

function nameOption(given: Given, mistakes: string[]): 'all' | readonly string[] {
  const text = given.get('locks');
  if (text === undefined || text === 'all') return 'all';
  if (nameList.test(text)) return [...new Set(text.split(','))];
  mistakes.push(`--locks ${text}: must be names with commas between them, without spaces`);
  return 'all';
}
