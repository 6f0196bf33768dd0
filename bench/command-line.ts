/** Reading the command line of a bench: by its table of options, purely; all mistakes are reported together. */
import { parseArgs } from 'node:util';
import { suggestion } from '../src/config/suggest.ts';

/** One option of a command. */
export interface OptionSpec {
  readonly type: 'string' | 'boolean';
  /** What stands behind the option in the help. */
  readonly value?: string;
  readonly help: string;
}

export type OptionSpecs = Readonly<Record<string, OptionSpec>>;

/** The options that were given, by name; switches with an empty text. */
export type Given<Name extends string> = ReadonlyMap<Name, string>;

/** What a command line says. */
export type Parsed<Options> =
  | { readonly kind: 'run'; readonly options: Options }
  | { readonly kind: 'help' }
  | { readonly kind: 'mistakes'; readonly mistakes: readonly string[] };

const nameList = /^[a-z0-9-]+(,[a-z0-9-]+)*$/;

/** @param width columns that names and values have; what is longer has a line of its own */
export function optionLines(specs: OptionSpecs, width: number): string {
  const lines = Object.entries(specs).map(([name, { value, help }]) => {
    const left = `  --${name}${value === undefined ? '' : ` ${value}`}`;
    return left.length < width ? `${left.padEnd(width)}${help}` : `${left}\n${' '.repeat(width)}${help}`;
  });
  return lines.join('\n');
}

/** Reads options that are in the table; what is wrong with them is added to the mistakes. */
export function readOptions<Specs extends OptionSpecs>(
  specs: Specs,
  args: readonly string[],
  mistakes: string[],
): Given<keyof Specs & string> {
  type Name = keyof Specs & string;
  const known = Object.keys(specs);
  const given = new Map<Name, string>();
  const lenient = { options: specs, strict: false, allowPositionals: true, tokens: true } as const;
  for (const token of parseArgs({ args: [...args], ...lenient }).tokens) {
    if (token.kind === 'positional') mistakes.push(`"${token.value}" is not an option; --help lists them`);
    if (token.kind !== 'option') continue;
    const { name, rawName, value } = token;
    if (!known.includes(name)) {
      mistakes.push(`there is no option ${rawName}${nearOption(name, known)}`);
      continue;
    }
    const spec: OptionSpec = specs[name]!;
    if (given.has(name as Name)) mistakes.push(`${rawName} is given twice`);
    if (spec.type === 'boolean' && value !== undefined) mistakes.push(`${rawName} takes no value`);
    if (spec.type === 'string' && (value === undefined || value === '' || value.startsWith('--'))) {
      mistakes.push(`${rawName} needs a value: ${rawName} ${spec.value}`);
      continue;
    }
    given.set(name as Name, value ?? '');
  }
  return given;
}

function nearOption(name: string, known: readonly string[]): string {
  const hint = suggestion(name, known);
  return hint.startsWith('; did') ? hint.replace('"', '"--') : '; --help lists them';
}

/** A number within a range; the fallback where none, or a wrong one, was given. */
export function numberOption<Name extends string>(
  given: Given<Name>,
  name: Name,
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

/** Names with commas between them, each once; null: none were given, or they are wrong. */
export function namesOption<Name extends string>(
  given: Given<Name>,
  name: Name,
  mistakes: string[],
): readonly string[] | null {
  const text = given.get(name);
  if (text === undefined) return null;
  if (nameList.test(text)) return [...new Set(text.split(','))];
  mistakes.push(`--${name} ${text}: must be names with commas between them, without spaces`);
  return null;
}
