/** The command line of `npm run bench:limits`: parsed once, purely; all mistakes are reported together. */

import { suggestion } from '../../src/config/suggest.ts';
import {
  type Given as GivenOptions,
  namesOption,
  numberOption,
  optionLines,
  type Parsed,
  readOptions,
} from '../command-line.ts';
import { type Cell, flatCells, ratioCells, strategyCell } from './cells.ts';

/** What a run measures. */
export const modes = ['ratios', 'memory', 'flat'] as const;
export type Mode = (typeof modes)[number];

/** `mixed`: a fifth of the attempts is sold, the others are told sold-out. `accepted`: all, with CONFIRM=accepted. */
export const variants = ['mixed', 'accepted'] as const;
export type Variant = (typeof variants)[number];

export interface LimitsOptions {
  readonly only: Mode;
  /** Of `ratios` and `flat`, in the order of the list. */
  readonly cells: readonly Cell[];
  readonly rounds: number;
  /** What is measured of each cell, after the warm-up. */
  readonly durationMs: number;
  readonly warmupMs: number;
  readonly connections: number;
  /** How many the memory is watched over. */
  readonly attempts: number;
  readonly variant: Variant;
  /** `auto`: split where the system can. */
  readonly pin: 'auto' | 'split' | 'none';
  /** `auto`: wrk where it is installed. */
  readonly generator: 'auto' | 'wrk' | 'autocannon';
  /** How long to wait before each cell for other work on the machine to end. */
  readonly restMs: number;
  /** Results are written to a folder of their own in its folder `limits`. */
  readonly out: string;
  /** Also replace the result that is committed. */
  readonly canonical: boolean;
  /** A missed goal is a failure. */
  readonly strict: boolean;
}

export type ParsedOptions = Parsed<LimitsOptions>;

const specs = {
  only: {
    type: 'string',
    value: modes.join('|'),
    help: 'ratios against the platform (default); memory over many attempts; whether the cost stays flat',
  },
  rounds: { type: 'string', value: 'n', help: 'rounds; each measures every cell once (5)' },
  duration: { type: 'string', value: 's', help: 'seconds that are measured of each cell (4)' },
  warmup: {
    type: 'string',
    value: 's',
    help: 'seconds of the same load before (10): code that is young is slow',
  },
  connections: {
    type: 'string',
    value: 'n',
    help: 'connections of the load (512): with half of them everybody waits, and neither processor is busy',
  },
  cells: { type: 'string', value: 'a,b|all', help: 'which cells (all); a goal needs both of its own' },
  strategies: { type: 'string', value: 'a,b', help: 'more strategies, as cells without a goal (none)' },
  attempts: { type: 'string', value: 'n', help: 'attempts of --only memory (5000000)' },
  variant: {
    type: 'string',
    value: variants.join('|'),
    help: 'of --only memory: a fifth sold and the others sold-out (default), or all sold with CONFIRM=accepted',
  },
  pin: {
    type: 'string',
    value: 'split|none',
    help: 'split: what is measured has the first processor alone, the load the last one, the stores all but the first (default where taskset is there)',
  },
  generator: {
    type: 'string',
    value: 'wrk|autocannon',
    help: 'what makes the load (wrk where it is installed)',
  },
  rest: {
    type: 'string',
    value: 's',
    help: 'seconds to wait, at most, before each cell until the machine is at rest (0)',
  },
  out: { type: 'string', value: 'folder', help: 'where results go (bench/results)' },
  canonical: {
    type: 'boolean',
    help: 'after a valid run, also replace limits.json and limits.md in bench/results/canonical',
  },
  strict: { type: 'boolean', help: 'a missed goal is a failure' },
  help: { type: 'boolean', help: 'show this' },
} as const;

type OptionName = keyof typeof specs;
type Given = GivenOptions<OptionName>;

export function helpText(): string {
  const names = (cells: readonly Cell[]): string => cells.map(({ name }) => name).join(', ');
  return `Measures the service against the limits of the platform under it, each ratio within one round of one run.

  npm run bench:limits -- [options]

${optionLines(specs, 24)}

Cells of --only ratios: ${names(ratioCells)}.
Cells of --only flat: ${names(flatCells)}.

Every server is started by the bench, on a port of its own, and ends with it. wrk, redis-benchmark, pgbench and taskset
are used where they are installed (PGBENCH may name a pgbench); the report says what was used instead. A run takes about
ten seconds for each cell and round.

Exit code: 0 valid, whether or not goals were reached (but see --strict); 1 an audit or a measurement failed; 2 bad
options; 130 interrupted (finished cells are reported).
`;
}

/** @param strategies the names that `--strategies` may have */
export function parseOptions(args: readonly string[], strategies: readonly string[]): ParsedOptions {
  const mistakes: string[] = [];
  const given = readOptions(specs, args, mistakes);
  if (given.has('help') && mistakes.length === 0) return { kind: 'help' };
  const number = (name: OptionName, fallback: number, min: number, max: number, whole = true): number =>
    numberOption(given, name, fallback, { min, max, whole }, mistakes);
  const only = choice(given, 'only', modes, mistakes) ?? 'ratios';
  const options: LimitsOptions = {
    only,
    cells: chosenCells(given, only, strategies, mistakes),
    rounds: number('rounds', 5, 1, 100),
    durationMs: Math.round(number('duration', 4, 0.2, 600, false) * 1_000),
    warmupMs: Math.round(number('warmup', 10, 0, 60, false) * 1_000),
    connections: number('connections', 512, 1, 10_000),
    attempts: number('attempts', 5_000_000, 1_000, 100_000_000),
    variant: choice(given, 'variant', variants, mistakes) ?? 'mixed',
    pin: choice(given, 'pin', ['split', 'none'], mistakes) ?? 'auto',
    generator: choice(given, 'generator', ['wrk', 'autocannon'], mistakes) ?? 'auto',
    restMs: Math.round(number('rest', 0, 0, 3_600, false) * 1_000),
    out: given.get('out') ?? 'bench/results',
    canonical: given.has('canonical'),
    strict: given.has('strict'),
  };
  mistakes.push(...misplaced(given, only));
  return mistakes.length > 0 ? { kind: 'mistakes', mistakes } : { kind: 'run', options };
}

const places: Partial<Record<OptionName, readonly Mode[]>> = {
  rounds: ['ratios', 'flat'],
  duration: ['ratios', 'flat'],
  warmup: ['ratios', 'flat'],
  cells: ['ratios', 'flat'],
  strategies: ['ratios'],
  attempts: ['memory'],
  variant: ['memory'],
};

/** Options that would change nothing: who gives them expects something else. */
function misplaced(given: Given, only: Mode): string[] {
  return Object.entries(places).flatMap(([name, of]) =>
    given.has(name as OptionName) && !of.includes(only)
      ? [`--${name} is for ${of.map((mode) => `--only ${mode}`).join(' and ')}`]
      : [],
  );
}

function chosenCells(
  given: Given,
  only: Mode,
  strategies: readonly string[],
  mistakes: string[],
): readonly Cell[] {
  const all = only === 'flat' ? flatCells : ratioCells;
  const names = all.map(({ name }) => name);
  const more = namesOption(given, 'strategies', mistakes) ?? [];
  for (const name of more) {
    if (!strategies.includes(name)) {
      mistakes.push(`--strategies: there is no strategy "${name}"${suggestion(name, strategies)}`);
    }
    if (name === 'unsafe') mistakes.push('--strategies: unsafe fails its audit, and then no rate counts');
  }
  const added = more.filter((name) => !names.includes(name)).map(strategyCell);
  const wanted = given.get('cells') === 'all' ? null : namesOption(given, 'cells', mistakes);
  for (const name of wanted ?? []) {
    if (!names.includes(name)) mistakes.push(`--cells: there is no cell "${name}"${suggestion(name, names)}`);
  }
  return [...all.filter(({ name }) => wanted === null || wanted.includes(name)), ...added];
}

function choice<T extends string>(
  given: Given,
  name: OptionName,
  known: readonly T[],
  mistakes: string[],
): T | null {
  const text = given.get(name);
  if (text === undefined) return null;
  const found = known.find((one) => one === text);
  if (found !== undefined) return found;
  mistakes.push(`--${name} ${text}: must be ${known.join(' or ')}`);
  return null;
}
