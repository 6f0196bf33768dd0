/** The one option parser: options are data, all mistakes are reported together, and `--help` is made from the same data. */
import { parseArgs } from 'node:util';
import * as z from 'zod';
import { suggestion, unknownOption } from '../../src/config/suggest.ts';

/** `seconds` become ms. `names`, `wholes` and `numbers` are separated by commas. */
type Kind = 'flag' | 'whole' | 'number' | 'seconds' | 'wholes' | 'numbers' | 'names' | 'choice' | 'text';

export interface OptionSpec {
  readonly kind: Kind;
  /** Ends with the default in brackets. */
  readonly help: string;
  readonly min?: number;
  readonly max?: number;
  /** The values that a `choice`, or each of `names`, may have. */
  readonly choices?: readonly string[];
  /** What one of `names` is called in a mistake: "strategy". */
  readonly noun?: string;
}

export type OptionSpecs = Readonly<Record<string, OptionSpec>>;

/** An option with one number, or several, within bounds. */
export const sized = (kind: Kind, min: number, max: number, help: string): OptionSpec => ({
  ...{ kind, min, max, help },
});

/** An option that names some of these. @param noun what one of them is called: "strategy" */
export const named = (choices: readonly string[], noun: string, help: string): OptionSpec => ({
  ...{ kind: 'names', choices, noun, help },
});

/** An option with one of these values. */
export const oneOf = (choices: readonly string[], help: string): OptionSpec => ({
  ...{ kind: 'choice', choices, help },
});

/** The given options, parsed; any other option has the caller's default. */
export class Given {
  /** Arguments that belong to no option. */
  readonly files: string[] = [];
  readonly values = new Map<string, unknown>();

  has(name: string): boolean {
    return this.values.has(name);
  }

  /** The value of a `whole`, a `number` or `seconds`, the last in ms. */
  number(name: string, otherwise: number): number {
    return this.#get(name, otherwise);
  }

  text<T extends string | null>(name: string, otherwise: T): string | T {
    return this.#get<string | T>(name, otherwise);
  }

  choice<T extends string>(name: string, otherwise: T): T {
    return this.#get(name, otherwise);
  }

  names(name: string, otherwise: readonly string[]): readonly string[] {
    return this.#get(name, otherwise);
  }

  numbers(name: string, otherwise: readonly number[]): readonly number[] {
    return this.#get(name, otherwise);
  }

  #get<T>(name: string, otherwise: T): T {
    return this.values.has(name) ? (this.values.get(name) as T) : otherwise;
  }
}

/** The options that every suite has, as `commonSpecs` explains them. */
export interface CommonOptions extends Readonly<Record<'keep' | 'yes' | 'smoke' | 'canonical', boolean>> {
  readonly rounds: number;
  readonly seed: number;
  readonly out: string;
  readonly idleMs: number;
}

const commonSpecs: OptionSpecs = {
  rounds: {
    kind: 'whole',
    min: 1,
    max: 100,
    help: 'each runs every cell once (5; memory, overload, smoke 1)',
  },
  seed: { kind: 'whole', max: 4_294_967_295, help: 'of arrivals and of the order of customers (1)' },
  idle: {
    kind: 'seconds',
    max: 3_600,
    help: 'wait at most so long for an idle machine before each trial (0)',
  },
  out: {
    kind: 'text',
    help: 'folder for results, which are in a folder named by the UTC time (bench/results)',
  },
  keep: { kind: 'flag', help: 'keep the databases of the trials' },
  yes: { kind: 'flag', help: 'agree that stampede:* keys in the Redis of REDIS_URL are deleted' },
  smoke: { kind: 'flag', help: 'one small round that only shows that everything works' },
  canonical: { kind: 'flag', help: 'after a success, replace the committed results of this suite' },
  help: { kind: 'flag', help: 'show this' },
};

/** What the parser needs from a suite. */
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
  mistakes.push(...given.files.map((word) => `"${word}" is not an option; --help lists them`));
  if (given.has('help') && mistakes.length === 0) return { kind: 'help' };
  const [has, smoke] = [(name: string) => given.has(name), given.has('smoke')];
  const common: CommonOptions = {
    ...{ keep: has('keep'), yes: has('yes'), smoke, canonical: has('canonical') },
    rounds: given.number('rounds', smoke ? suite.rounds.smoke : suite.rounds.canonical),
    seed: given.number('seed', 1),
    out: given.text('out', 'bench/results'),
    idleMs: given.number('idle', 0),
  };
  const options = suite.read(given, common, mistakes);
  return mistakes.length > 0 ? { kind: 'mistakes', mistakes } : { kind: 'run', options, common };
}

const column = 26;

/** The lines of `--help`: the suite's own options first. */
export function optionLines(specs: OptionSpecs, common: OptionSpecs = commonSpecs): string {
  const lines = Object.entries({ ...specs, ...common }).map(([name, spec]) => {
    const left = `  --${name} ${placeholder(spec)}`;
    return `${left.length < column ? left.padEnd(column) : `${left}\n${' '.repeat(column)}`}${spec.help}`;
  });
  return lines.join('\n');
}

function placeholder({ kind, choices = [] }: OptionSpec): string {
  if (kind === 'choice') return choices.join('|');
  const n = 'n';
  return {
    flag: '',
    whole: n,
    number: n,
    seconds: 's',
    wholes: 'n,m',
    numbers: 'n,m',
    names: 'a,b',
    text: 'text',
  }[kind];
}

/** Reads the options in `specs`, and adds each mistake to `mistakes`. */
export function readOptions(specs: OptionSpecs, args: readonly string[], mistakes: string[]): Given {
  const given = new Given();
  const type = ({ kind }: OptionSpec) => ({ type: kind === 'flag' ? 'boolean' : 'string' }) as const;
  const options = Object.fromEntries(Object.entries(specs).map(([name, spec]) => [name, type(spec)]));
  const parsed = parseArgs({ args: [...args], options, strict: false, allowPositionals: true, tokens: true });
  for (const token of parsed.tokens) {
    if (token.kind === 'positional') given.files.push(token.value);
    if (token.kind !== 'option') continue;
    const { name, rawName, value } = token;
    const spec = specs[name];
    if (spec === undefined) {
      mistakes.push(unknownOption(rawName, Object.keys(specs)));
      continue;
    }
    if (given.has(name)) mistakes.push(`${rawName} is given twice`);
    if (spec.kind === 'flag') {
      if (value !== undefined) mistakes.push(`${rawName} takes no value`);
      given.values.set(name, true);
    } else if (!value || value.startsWith('--')) {
      mistakes.push(`${rawName} needs a value: ${rawName} ${placeholder(spec)}`);
    } else {
      const { success, data } = schemaOf(spec).safeParse(value);
      if (success) given.values.set(name, data);
      else mistakes.push(`${rawName} ${value}: must be ${wanted(spec)}`);
      if (success && spec.kind === 'names') mistakes.push(...unknownNames(rawName, spec, data as string[]));
    }
  }
  return given;
}

function unknownNames(
  rawName: string,
  { choices, noun = '' }: OptionSpec,
  names: readonly string[],
): string[] {
  if (choices === undefined) return [];
  const unknown = names.filter((one) => !choices.includes(one));
  return unknown.map(
    (one) => `${rawName}: there is no ${noun}${noun && ' '}"${one}"${suggestion(one, choices)}`,
  );
}

const whole = /^\d+$/;
const decimal = /^\d+(\.\d+)?$/;
const word = /^[a-z0-9-]+$/;

/** The schema of an option: text in, value out. */
function schemaOf({ kind, min = 0, max = Infinity, choices = [] }: OptionSpec): z.ZodType<unknown, string> {
  const number = (written: RegExp) =>
    z.string().regex(written).transform(Number).pipe(z.number().min(min).max(max));
  const list = (item: z.ZodType<unknown, string>) =>
    z
      .string()
      .transform((text) => [...new Set(text.split(','))])
      .pipe(z.array(item));
  switch (kind) {
    case 'whole':
      return number(whole);
    case 'seconds':
      return number(decimal).transform((seconds) => Math.round(seconds * 1_000));
    case 'numbers':
      return list(number(decimal));
    case 'wholes':
      return list(number(whole));
    case 'names':
      return list(z.string().regex(word));
    case 'choice':
      return z.string().refine((text) => choices.includes(text));
    case 'number':
      return number(decimal);
    default:
      return z.string();
  }
}

function wanted({ kind, min = 0, max = Infinity, choices = [] }: OptionSpec): string {
  if (kind === 'choice') return `one of ${choices.join(', ')}`;
  if (kind === 'names') return 'names with commas between them, without spaces';
  const whats = {
    whole: 'a whole number',
    wholes: 'whole numbers with commas, each',
    numbers: 'numbers with commas, each',
  };
  return `${whats[kind as keyof typeof whats] ?? 'a number'} from ${min} to ${max}`;
}
