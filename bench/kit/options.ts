/** The one option parser: options are data, every mistake is reported at once, and `--help` is made from the same data. */
import { parseArgs } from 'node:util';
import { suggestion } from '../../src/config/suggest.ts';

export interface OptionSpec {
  /** `seconds` become ms. `names` and `numbers` are lists with commas. */
  readonly kind: 'flag' | 'whole' | 'number' | 'seconds' | 'numbers' | 'names' | 'choice' | 'text';
  /** With the default in brackets at its end. */
  readonly help: string;
  readonly min?: number;
  readonly max?: number;
  /** Of `choice`. */
  readonly choices?: readonly string[];
}

export type OptionSpecs = Readonly<Record<string, OptionSpec>>;
type Value = true | string | number | readonly string[] | readonly number[];

/** The options that were given, parsed; what was not given has the caller's default. */
export class Given {
  readonly #values: ReadonlyMap<string, Value>;

  constructor(values: ReadonlyMap<string, Value>) {
    this.#values = values;
  }

  has(name: string): boolean {
    return this.#values.has(name);
  }

  /** Of `whole` and `number`; of `seconds` in ms. */
  number(name: string, otherwise: number): number {
    return this.#get(name, otherwise);
  }

  text<T extends string | null>(name: string, otherwise: T): string | T {
    return this.#get<string | T>(name, otherwise);
  }

  choice<T extends string>(name: string, otherwise: T): T {
    return this.#get(name, otherwise);
  }

  names<T extends readonly string[] | null>(name: string, otherwise: T): readonly string[] | T {
    return this.#get<readonly string[] | T>(name, otherwise);
  }

  numbers(name: string, otherwise: readonly number[]): readonly number[] {
    return this.#get(name, otherwise);
  }

  #get<T>(name: string, otherwise: T): T {
    return this.#values.has(name) ? (this.#values.get(name) as T) : otherwise;
  }
}

/** The options that every suite has. */
export interface CommonOptions {
  readonly rounds: number;
  readonly seed: number;
  /** Results are written to a folder named by the UTC time in here. */
  readonly out: string;
  /** How long to wait before each trial, at most, until the machine is idle. */
  readonly idleMs: number;
  /** Keep the databases of the trials. */
  readonly keep: boolean;
  /** Agree that `stampede:*` keys in a given Redis are deleted. */
  readonly yes: boolean;
  readonly smoke: boolean;
  /** A missed goal is a failure. */
  readonly strict: boolean;
  /** Also replace the committed results of this suite. */
  readonly canonical: boolean;
}

const commonSpecs: OptionSpecs = {
  rounds: {
    kind: 'whole',
    min: 1,
    max: 100,
    help: 'rounds; each runs every cell once (5; memory, overload and smoke 1)',
  },
  seed: { kind: 'whole', min: 0, max: 4_294_967_295, help: 'of arrivals and of the order of customers (1)' },
  idle: {
    kind: 'seconds',
    min: 0,
    max: 3_600,
    help: 'wait so long at most before each trial until the machine is idle (0)',
  },
  out: { kind: 'text', help: 'folder for results (bench/results)' },
  keep: { kind: 'flag', help: 'keep the databases of the trials' },
  yes: { kind: 'flag', help: 'agree that stampede:* keys in the Redis of REDIS_URL are deleted' },
  smoke: { kind: 'flag', help: 'one small round that only shows that everything works' },
  strict: { kind: 'flag', help: 'a missed goal is a failure' },
  canonical: { kind: 'flag', help: 'after a success, replace the committed results of this suite' },
  help: { kind: 'flag', help: 'show this' },
};

/** What the parser needs of a suite. */
export interface Optioned<Options> {
  readonly options: OptionSpecs;
  readonly rounds: { readonly canonical: number; readonly smoke: number };
  read(given: Given, common: CommonOptions, mistakes: string[]): Options;
}

export type Parsed<Options> =
  | { readonly kind: 'run'; readonly options: Options; readonly common: CommonOptions }
  | { readonly kind: 'help' }
  | { readonly kind: 'mistakes'; readonly mistakes: readonly string[] };

export function parseOptions<Options>(suite: Optioned<Options>, args: readonly string[]): Parsed<Options> {
  const mistakes: string[] = [];
  const given = readOptions({ ...suite.options, ...commonSpecs }, args, mistakes);
  if (given.has('help') && mistakes.length === 0) return { kind: 'help' };
  const smoke = given.has('smoke');
  const common: CommonOptions = {
    rounds: given.number('rounds', smoke ? suite.rounds.smoke : suite.rounds.canonical),
    seed: given.number('seed', 1),
    out: given.text('out', 'bench/results'),
    idleMs: given.number('idle', 0),
    keep: given.has('keep'),
    yes: given.has('yes'),
    smoke,
    strict: given.has('strict'),
    canonical: given.has('canonical'),
  };
  const options = suite.read(given, common, mistakes);
  return mistakes.length > 0 ? { kind: 'mistakes', mistakes } : { kind: 'run', options, common };
}

const column = 26;

/** The lines of `--help`: the suite's own options first. */
export function optionLines(specs: OptionSpecs): string {
  return Object.entries({ ...specs, ...commonSpecs })
    .map(([name, spec]) => {
      const left = `  --${name}${spec.kind === 'flag' ? '' : ` ${placeholder(spec)}`}`;
      return left.length < column
        ? `${left.padEnd(column)}${spec.help}`
        : `${left}\n${' '.repeat(column)}${spec.help}`;
    })
    .join('\n');
}

function placeholder({ kind, choices = [] }: OptionSpec): string {
  const texts = {
    flag: '',
    whole: 'n',
    number: 'n',
    seconds: 's',
    numbers: 'n,m',
    names: 'a,b',
    text: 'text',
  };
  return kind === 'choice' ? choices.join('|') : texts[kind];
}

/** Reads options that are in the table; each mistake is added to the list. */
export function readOptions(specs: OptionSpecs, args: readonly string[], mistakes: string[]): Given {
  const known = Object.keys(specs);
  const values = new Map<string, Value>();
  const options = Object.fromEntries(
    Object.entries(specs).map(([name, { kind }]) => [
      name,
      { type: kind === 'flag' ? 'boolean' : 'string' } as const,
    ]),
  );
  const { tokens } = parseArgs({
    args: [...args],
    options,
    strict: false,
    allowPositionals: true,
    tokens: true,
  });
  const seen = new Set<string>();
  for (const token of tokens) {
    if (token.kind === 'positional') mistakes.push(`"${token.value}" is not an option; --help lists them`);
    if (token.kind !== 'option') continue;
    const { name, rawName, value } = token;
    const spec = specs[name];
    if (spec === undefined) {
      mistakes.push(`there is no option ${rawName}${nearOption(name, known)}`);
      continue;
    }
    if (seen.has(name)) mistakes.push(`${rawName} is given twice`);
    seen.add(name);
    if (spec.kind === 'flag') {
      if (value !== undefined) mistakes.push(`${rawName} takes no value`);
      values.set(name, true);
    } else if (value === undefined || value === '' || value.startsWith('--')) {
      mistakes.push(`${rawName} needs a value: ${rawName} ${placeholder(spec)}`);
    } else {
      const read = parsed(spec, value);
      if (typeof read === 'object' && 'mistake' in read)
        mistakes.push(`${rawName} ${value}: ${read.mistake}`);
      else values.set(name, read);
    }
  }
  return new Given(values);
}

function nearOption(name: string, known: readonly string[]): string {
  const hint = suggestion(name, known);
  return hint.startsWith('; did') ? hint.replace('"', '"--') : '; --help lists them';
}

function parsed(spec: OptionSpec, text: string): Exclude<Value, true> | { readonly mistake: string } {
  const { kind, choices = [] } = spec;
  if (kind === 'text') return text;
  if (kind === 'choice') {
    return choices.includes(text) ? text : { mistake: `must be one of ${choices.join(', ')}` };
  }
  if (kind === 'names') {
    if (/^[a-z0-9-]+(,[a-z0-9-]+)*$/.test(text)) return [...new Set(text.split(','))];
    return { mistake: 'must be names with commas between them, without spaces' };
  }
  const numbers = text.split(',').map((part) => numberOf(spec, part));
  const [first] = numbers;
  if (first === undefined || numbers.includes(null) || (kind !== 'numbers' && numbers.length > 1)) {
    const what =
      kind === 'whole' ? 'a whole number' : kind === 'numbers' ? 'numbers with commas, each' : 'a number';
    return { mistake: `must be ${what} from ${spec.min ?? 0} to ${spec.max ?? 'any'}` };
  }
  if (kind === 'numbers') return [...new Set(numbers as number[])];
  return kind === 'seconds' ? Math.round(first! * 1_000) : first!;
}

function numberOf(
  { kind, min = 0, max = Number.POSITIVE_INFINITY }: OptionSpec,
  text: string,
): number | null {
  const written = kind === 'whole' ? /^\d+$/ : /^\d+(\.\d+)?$/;
  const value = Number(text);
  return written.test(text) && value >= min && value <= max ? value : null;
}
