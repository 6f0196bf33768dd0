/** The one option parser: options are data, all mistakes are reported together, and `--help` is made from the same data. */
import { parseArgs } from 'node:util';
import * as z from 'zod';
import { suggestion, unknownOption } from '../../src/config/suggest.ts';

/** An option. `Value` has undefined when it has no usual value. */
export interface OptionSpec<Value = unknown> {
  /** How `--help` shows its value; empty: a flag. */
  readonly shape: string;
  readonly help: string;
  /** What its value must be, for mistakes. */
  readonly wanted: string;
  readonly schema: z.ZodType<Value, string>;
  /** The value of an option that is not given, as one would write it, and that of a smoke run. */
  readonly usual?: string;
  readonly smoke?: string;
}

export type OptionSpecs = Readonly<Record<string, OptionSpec>>;

/** The values of options by their names. */
export type ValuesOf<Specs extends OptionSpecs> = {
  readonly [Name in keyof Specs]: Specs[Name] extends OptionSpec<infer Value> ? Value : never;
};

const list = <Item>(item: z.ZodType<Item, string>): z.ZodType<readonly Item[], string> =>
  z
    .string()
    .transform((text) => [...new Set(text.split(','))])
    .pipe(z.array(item));

interface Sizes {
  readonly whole: number;
  readonly number: number;
  /** Written in seconds; the value is in ms. */
  readonly seconds: number;
  /** With commas between them. */
  readonly wholes: readonly number[];
  readonly numbers: readonly number[];
}
const sizeTexts: Readonly<Record<keyof Sizes, readonly [shape: string, wanted: string]>> = {
  whole: ['n', 'a whole number'],
  number: ['n', 'a number'],
  seconds: ['s', 'a number'],
  wholes: ['n,m', 'whole numbers with commas, each'],
  numbers: ['n,m', 'numbers with commas, each'],
};

/** An option with one number, or several, within bounds. */
export function sized<Kind extends keyof Sizes>(kind: Kind, min: number, max: number, help: string) {
  const [shape, wanted] = sizeTexts[kind];
  const written = kind === 'whole' || kind === 'wholes' ? /^\d+$/ : /^\d+(\.\d+)?$/;
  const one = z.string().regex(written).transform(Number).pipe(z.number().min(min).max(max));
  const all = list(one);
  const seconds = one.transform((value) => Math.round(value * 1_000));
  const schema = { whole: one, number: one, seconds, wholes: all, numbers: all }[kind];
  const spec = { shape, help, wanted: `${wanted} from ${min} to ${max}`, schema };
  return spec as unknown as OptionSpec<Sizes[Kind] | undefined>;
}

type Optional<Value> = OptionSpec<Value | undefined>;

/** An option that names some of these. @param noun what one of them is called: "strategy" */
export function named(choices: readonly string[], noun: string, help: string): Optional<readonly string[]> {
  const error = ({ input }: { readonly input?: unknown }) =>
    `there is no ${noun}${noun && ' '}"${input}"${suggestion(String(input), choices)}`;
  const known = z.string().refine((name) => choices.includes(name), { error });
  const schema = list(
    z
      .string()
      .regex(/^[a-z0-9-]+$/)
      .pipe(known),
  );
  return { shape: 'a,b', help, wanted: 'names with commas between them, without spaces', schema };
}

/** An option with one of these values. */
export const oneOf = <Choice extends string>(choices: readonly Choice[], help: string): Optional<Choice> => ({
  ...{ shape: choices.join('|'), help, wanted: `one of ${choices.join(', ')}`, schema: z.enum(choices) },
});

export const text = (help: string): Optional<string> => ({
  ...{ shape: 'text', help, wanted: 'a text', schema: z.string() },
});

export const flag = (help: string): OptionSpec<boolean> => ({
  ...{
    shape: '',
    help,
    wanted: '',
    schema: z.string().transform((value) => value === 'true'),
    usual: 'false',
  },
});

/** Gives an option its usual value, which `--help` shows. @param smoke left out: the same */
export const usually = <Value>(spec: Optional<Value>, usual: string, smoke?: string): OptionSpec<Value> =>
  ({ ...spec, usual, ...(smoke !== undefined && { smoke }) }) as OptionSpec<Value>;

/** The options that every suite has, as `commonSpecs` explains them. */
export interface CommonOptions extends Readonly<Record<'keep' | 'yes' | 'smoke' | 'canonical', boolean>> {
  readonly rounds: number;
  readonly seed: number;
  readonly out: string;
  readonly idleMs: number;
}

const commonSpecs = {
  rounds: sized('whole', 1, 100, 'each runs every cell once (5; memory, overload, smoke 1)'),
  seed: usually(sized('whole', 0, 4_294_967_295, 'of arrivals and of the order of customers'), '1'),
  idle: usually(
    sized('seconds', 0, 3_600, 'wait at most so long for an idle machine before each trial'),
    '0',
  ),
  out: usually(text('folder for results, which are in a folder named by the UTC time'), 'bench/results'),
  keep: flag('keep the databases of the trials'),
  yes: flag('agree that stampede:* keys in the Redis of REDIS_URL are deleted'),
  smoke: flag('one small round that only shows that everything works'),
  canonical: flag('after a success, replace the committed results of this suite'),
  help: flag('show this'),
};

/** A suite's own options, and what it makes of their values. `read` adds to `mistakes`. */
export interface Optioned<Options, Specs extends OptionSpecs = OptionSpecs> {
  readonly options: Specs;
  read(values: ValuesOf<Specs>, common: CommonOptions, mistakes: string[]): Options;
}

export const optionsOf = <Options, Specs extends OptionSpecs>(
  options: Specs,
  read: Optioned<Options, Specs>['read'],
): Optioned<Options, Specs> => ({ options, read });

export type Parsed<Options> =
  | { readonly kind: 'run'; readonly options: Options; readonly common: CommonOptions }
  | { readonly kind: 'help' }
  | { readonly kind: 'mistakes'; readonly mistakes: readonly string[] };

/** @param usualRounds of a run that is no smoke run */
export function parseOptions<Options>(
  suite: Optioned<Options>,
  usualRounds: number,
  args: readonly string[],
): Parsed<Options> {
  const mistakes: string[] = [];
  const { values, files } = readOptions({ ...suite.options, ...commonSpecs }, args, mistakes);
  const given: Readonly<Record<string, unknown>> = values;
  mistakes.push(...files.map((word) => `"${word}" is not an option; --help lists them`));
  if (values.help && mistakes.length === 0) return { kind: 'help' };
  const { keep, yes, smoke, canonical, seed, out, idle: idleMs } = values;
  const rounds = values.rounds ?? (smoke ? 1 : usualRounds);
  const common: CommonOptions = { keep, yes, smoke, canonical, rounds, seed, out, idleMs };
  const own = Object.fromEntries(Object.keys(suite.options).map((name) => [name, given[name]]));
  const options = suite.read(own, common, mistakes);
  return mistakes.length > 0 ? { kind: 'mistakes', mistakes } : { kind: 'run', options, common };
}

const column = 26;

/** The lines of `--help`: the suite's own options first. */
export function optionLines(specs: OptionSpecs, common: OptionSpecs = commonSpecs): string {
  const lines = Object.entries({ ...specs, ...common }).map(([name, { shape, help, usual, smoke }]) => {
    const left = `  --${name} ${shape}`;
    const values = [usual, smoke === undefined ? [] : `smoke ${smoke}`].flat().join('; ');
    const right = shape === '' || usual === undefined ? help : `${help} (${values})`;
    return `${left.length < column ? left.padEnd(column) : `${left}\n${' '.repeat(column)}`}${right}`;
  });
  return lines.join('\n');
}

/** What a command line says. `files`: its arguments that belong to no option. */
interface Given<Specs extends OptionSpecs> {
  readonly values: ValuesOf<Specs>;
  readonly files: readonly string[];
}

/** Reads the options in `specs`, and adds each mistake to `mistakes`. */
export function readOptions<Specs extends OptionSpecs>(
  specs: Specs,
  args: readonly string[],
  mistakes: string[],
): Given<Specs> {
  const type = ({ shape }: OptionSpec) => ({ type: shape === '' ? 'boolean' : 'string' }) as const;
  const options = Object.fromEntries(Object.entries(specs).map(([name, spec]) => [name, type(spec)]));
  const parsed = parseArgs({ args: [...args], options, strict: false, allowPositionals: true, tokens: true });
  const files: string[] = [];
  const given = new Map<string, unknown>();
  for (const token of parsed.tokens) {
    if (token.kind === 'positional') files.push(token.value);
    if (token.kind !== 'option') continue;
    const { name, rawName, value } = token;
    const spec = specs[name];
    if (spec === undefined) {
      mistakes.push(unknownOption(rawName, Object.keys(specs)));
      continue;
    }
    const { shape, schema, wanted } = spec;
    if (given.has(name)) mistakes.push(`${rawName} is given twice`);
    if (shape === '') {
      if (value !== undefined) mistakes.push(`${rawName} takes no value`);
      given.set(name, true);
    } else if (!value || value.startsWith('--')) {
      mistakes.push(`${rawName} needs a value: ${rawName} ${shape}`);
    } else {
      const { data, error } = schema.safeParse(value);
      given.set(name, data);
      const unknown = error?.issues.filter(({ code }) => code === 'custom') ?? [];
      mistakes.push(...unknown.map(({ message }) => `${rawName}: ${message}`));
      if (error !== undefined && unknown.length === 0)
        mistakes.push(`${rawName} ${value}: must be ${wanted}`);
    }
  }
  const usual = ({ usual, smoke = usual, schema }: OptionSpec): unknown => {
    const written = given.has('smoke') ? smoke : usual;
    return written === undefined ? undefined : schema.parse(written);
  };
  const values = Object.entries(specs).map(([name, spec]) => [name, given.get(name) ?? usual(spec)]);
  return { values: Object.fromEntries(values), files };
}
