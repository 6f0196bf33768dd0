/** The command line of `npm run bench -- --compare`: parsed once, purely; all mistakes are reported together. */
import { parseArgs } from 'node:util';
import { numberOption, optionLines, type Parsed, readOptions } from './command-line.ts';

export interface CompareOptions {
  /** Paths of two results.json. */
  readonly before: string;
  readonly after: string;
  readonly failOnRegression: boolean;
  /** Changes that are smaller are not told, %. */
  readonly marginPercent: number;
}

const specs = {
  'fail-on-regression': {
    type: 'boolean',
    help: 'exit with 1 when something became slower, or an audit worse',
  },
  margin: { type: 'string', value: '%', help: 'changes that are smaller are not told (5)' },
  help: { type: 'boolean', help: 'show this' },
} as const;

export function helpText(): string {
  return `Says whether a change made a strategy faster or slower, beyond the noise of two runs.

  npm run bench -- --compare before/results.json after/results.json [options]

${optionLines(specs, 24)}

Two runs were made at different times, when the machine was not equally fast. So each strategy is divided by the baseline
of its own run, and these quotients are compared.

Exit code: 0 compared; 1 with --fail-on-regression when something became slower, or an audit worse; 2 bad options or files.
`;
}

/** @param args without the leading --compare */
export function parseCompareOptions(args: readonly string[]): Parsed<CompareOptions> {
  const { tokens } = parseArgs({
    args: [...args],
    options: specs,
    strict: false,
    allowPositionals: true,
    tokens: true,
  });
  const paths = tokens.filter((token) => token.kind === 'positional');
  const rest = args.filter((_, index) => !paths.some((path) => path.index === index));
  const mistakes: string[] = [];
  const given = readOptions(specs, rest, mistakes);
  if (given.has('help') && mistakes.length === 0) return { kind: 'help' };

  const range = { min: 0, max: 100, whole: false };
  const marginPercent = numberOption(given, 'margin', 5, range, mistakes);
  const [before, after] = paths.map(({ value }) => value);
  if (before === undefined || after === undefined || paths.length > 2) {
    mistakes.push(
      `--compare needs two files, the older one first: --compare before/results.json after/results.json; there ${
        paths.length === 1 ? 'is 1' : `are ${paths.length}`
      }`,
    );
    return { kind: 'mistakes', mistakes };
  }
  if (mistakes.length > 0) return { kind: 'mistakes', mistakes };
  const failOnRegression = given.has('fail-on-regression');
  return { kind: 'run', options: { before, after, failOnRegression, marginPercent } };
}
