/** `npm run bench [-- suite]`: the entry point of the bench; reads the command line and signals. */
import { dirname, join } from 'node:path';
import { reasonOf } from '../lab/kit/text.ts';
import { onStopSignals } from '../src/config/stop-signals.ts';
import { suggestion } from '../src/config/suggest.ts';
import { compareResults, comparisonText, regressions } from './kit/compare.ts';
import { flag, optionLines, parseOptions, readOptions, sized, usually } from './kit/options.ts';
import { readResults } from './kit/results.ts';
import { exitCodes, runSuite, writeReports } from './kit/run.ts';
import type { Suite } from './kit/suite.ts';
import { faults } from './suites/faults/suite.ts';
import { innodbSuite } from './suites/innodb/suite.ts';
import { flat, limits, memory, scale } from './suites/limits/suite.ts';
import { locks } from './suites/locks/suite.ts';
import { overloadSuite } from './suites/overload/suite.ts';
import { pointsSuite } from './suites/points/suite.ts';
import { strategies } from './suites/strategies/suite.ts';
import { tasksSuite } from './suites/tasks/suite.ts';

const all: readonly Suite[] = [
  ...[strategies, locks, limits, flat, memory, scale],
  ...[overloadSuite, faults, pointsSuite, tasksSuite, innodbSuite],
];

const say = (line: string): void => void process.stderr.write(`${line}\n`);

function refuse(mistakes: readonly string[]): number {
  for (const mistake of mistakes) say(mistake);
  return exitCodes.usage;
}

async function suiteCommand(suite: Suite, args: readonly string[], signal: AbortSignal): Promise<number> {
  const parsed = parseOptions(suite, suite.rounds, args);
  if (parsed.kind === 'mistakes') return refuse(parsed.mistakes);
  if (parsed.kind === 'help') {
    process.stdout.write(helpOf(suite));
    return exitCodes.success;
  }
  const { DATABASE_URL, REDIS_URL } = process.env;
  return runSuite(suite, parsed.options, {
    common: parsed.common,
    stores: { databaseUrl: DATABASE_URL || undefined, redisUrl: REDIS_URL || undefined },
    canonical: join(import.meta.dirname, 'results', 'canonical'),
    out: process.stdout,
    signal,
    say,
  });
}

function helpOf({ name, title, options, help }: Suite): string {
  return `${title}

  npm run bench -- ${name === 'strategies' ? '' : `${name} `}[options]

${optionLines(options)}

${help}

Suites (npm run bench -- <suite> --help):
${all.map((suite) => `  ${suite.name.padEnd(12)}${suite.title}`).join('\n')}

  npm run bench -- --compare before/results.json after/results.json [--fail-on-regression] [--margin %]
  npm run bench -- --report results.json [sweep/results.json ...]

Exit code: 0 every safe cell passed its audit and the unsafe ones failed theirs; 1 not so;
2 bad options; 130 interrupted (finished trials are reported).
`;
}

const compareSpecs = {
  'fail-on-regression': flag('exit with 1 when something became worse'),
  margin: usually(sized('number', 0, 100, 'changes that are smaller are ties, %'), '5'),
};

async function compareCommand(args: readonly string[]): Promise<number> {
  const mistakes: string[] = [];
  const { values, files } = readOptions(compareSpecs, args, mistakes);
  const [before, after, ...more] = files;
  if (before === undefined || after === undefined || more.length > 0) {
    mistakes.push('--compare needs two files, the older one first: before/results.json after/results.json');
  }
  if (mistakes.length > 0) return refuse(mistakes);
  const [old, now] = [await readResults(before!), await readResults(after!)];
  const report = compareResults(old, now, values.margin);
  process.stdout.write(`${comparisonText(report)}\n`);
  const isWorse = values['fail-on-regression'] && regressions(report).length > 0;
  return isWorse ? exitCodes.failure : exitCodes.success;
}

async function reportCommand([path, ...sweeps]: readonly string[]): Promise<number> {
  if (path === undefined)
    return refuse(['--report needs a results.json, and may have those of sweeps behind it']);
  const folder = dirname(path);
  await writeReports(folder, await readResults(path), await Promise.all(sweeps.map(readResults)));
  process.stdout.write(`report: ${folder}/report.html, report.md\n`);
  return exitCodes.success;
}

/** What runs no suite. */
const commands: Readonly<Record<string, (args: readonly string[]) => Promise<number>>> = {
  compare: compareCommand,
  report: reportCommand,
};

async function main(args: readonly string[], signal: AbortSignal): Promise<number> {
  const [first = '', ...rest] = args;
  const command = first.startsWith('--') ? commands[first.slice(2)] : undefined;
  if (command !== undefined) return command(rest);
  const isNamed = first !== '' && !first.startsWith('-');
  const suite = all.find(({ name }) => name === (isNamed ? first : 'strategies'));
  const names = all.map(({ name }) => name);
  if (suite === undefined) return refuse([`there is no suite "${first}"${suggestion(first, names)}`]);
  return suiteCommand(suite, isNamed ? rest : args, signal);
}

const interrupt = new AbortController();
onStopSignals(process, {
  first() {
    say('\nstopping: finished trials are reported; a second signal ends it at once');
    interrupt.abort(new Error('interrupted'));
  },
  later: () => process.exit(exitCodes.interrupted),
});
try {
  process.exitCode = await main(process.argv.slice(2), interrupt.signal);
} catch (error) {
  if (!interrupt.signal.aborted) say(reasonOf(error));
  process.exitCode = interrupt.signal.aborted ? exitCodes.interrupted : exitCodes.failure;
}
