/** The command line of `npm run bench:locks`: parsed once, purely; all mistakes are reported together. */
import { namesOption, numberOption, optionLines, type Parsed, readOptions } from '../command-line.ts';

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

export type ParsedOptions = Parsed<LocksOptions>;

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
} as const;

type OptionName = keyof typeof specs;

export function helpText(names: readonly string[]): string {
  return `Compares the locks, and two libraries beside them: throughput, hand-off, cost, fairness and exclusion.

  npm run bench:locks -- [options]

${optionLines(specs, 22)}

There are ${names.join(', ')}.

Every server is started by the bench, on a port of its own, and ends with it; what is not installed is left out.
All together take about ten seconds for each lock and round.

Exit code: 0 nobody saw two holders (but of the control); 1 not so, or nothing could be measured; 2 bad options;
130 interrupted (finished measurements are reported).
`;
}

export function parseOptions(args: readonly string[]): ParsedOptions {
  const mistakes: string[] = [];
  const given = readOptions(specs, args, mistakes);
  if (given.has('help') && mistakes.length === 0) return { kind: 'help' };
  const number = (name: OptionName, fallback: number, min: number, max: number, whole = true): number =>
    numberOption(given, name, fallback, { min, max, whole }, mistakes);
  const options: LocksOptions = {
    locks: given.get('locks') === 'all' ? 'all' : (namesOption(given, 'locks', mistakes) ?? 'all'),
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
