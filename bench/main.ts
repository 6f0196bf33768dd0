/** `npm run bench [-- suite]`: the only file of the bench that reads the command line and signals. */
import { mkdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { compareResults, comparisonText, regressions } from './kit/compare.ts';
import { type OptionSpecs, optionLines, parseOptions, readOptions } from './kit/options.ts';
import { htmlReport, markdownReport, terminalReport } from './kit/report/index.ts';
import { forCommit, type Results, readResults, writeWhole } from './kit/results.ts';
import { exitCodes, runSuite } from './kit/run.ts';
import type { CellBase, Suite, TrialBase } from './kit/suite.ts';
import { reasonOf } from './kit/text.ts';
import { flat, limits, memory } from './suites/limits/suite.ts';
import { locks } from './suites/locks/suite.ts';
import { overloadSuite } from './suites/overload/suite.ts';
import { strategies } from './suites/strategies/suite.ts';

/** A suite whose types only the suite itself knows. */
interface AnySuite {
  readonly name: string;
  readonly title: string;
  run(args: readonly string[], signal: AbortSignal): Promise<number>;
}

const suites: ReadonlyMap<string, AnySuite> = new Map(
  [
    runnable(strategies),
    runnable(locks),
    runnable(limits),
    runnable(flat),
    runnable(memory),
    runnable(overloadSuite),
  ].map((suite) => [suite.name, suite]),
);
const usual = strategies.name;

const canonical = fileURLToPath(new URL('results/canonical', import.meta.url));

const say = (line: string): void => void process.stderr.write(`${line}\n`);

function refuse(mistakes: readonly string[]): number {
  for (const mistake of mistakes) say(mistake);
  return exitCodes.usage;
}

function runnable<Options, Cell extends CellBase, Result extends TrialBase>(
  suite: Suite<Options, Cell, Result>,
): AnySuite {
  const help = (): string => `${suite.title}

  npm run bench -- ${suite.name === usual ? '' : `${suite.name} `}[options]

${optionLines(suite.options)}

${suite.help}

${others()}
Exit code: 0 every safe cell passed its audit and the unsafe ones failed theirs; 1 not so, or with --strict a missed goal;
2 bad options; 130 interrupted (finished trials are reported).
`;
  return {
    name: suite.name,
    title: suite.title,
    async run(args, signal) {
      const parsed = parseOptions(suite, args);
      if (parsed.kind === 'mistakes') return refuse(parsed.mistakes);
      if (parsed.kind === 'help') {
        process.stdout.write(help());
        return exitCodes.success;
      }
      return runSuite(suite, parsed.options, {
        common: parsed.common,
        databaseUrl: process.env.DATABASE_URL || undefined,
        redisUrl: process.env.REDIS_URL || undefined,
        out: process.stdout,
        signal,
        say,
        writeReports,
        terminalReport,
        writeCanonical,
      });
    },
  };
}

function others(): string {
  const names = [...suites.values()].map(({ name, title }) => `  ${name.padEnd(12)}${title}`);
  return `Suites (npm run bench -- <suite> --help):
${names.join('\n')}

  npm run bench -- --compare before/results.json after/results.json [--fail-on-regression] [--margin %]
  npm run bench -- --report results.json [sweep/results.json ...]
`;
}

async function writeReports(
  folder: string,
  results: Results,
  sweeps: readonly Results[] = [],
): Promise<void> {
  await writeWhole(join(folder, 'report.md'), markdownReport(results, sweeps));
  await writeWhole(join(folder, 'report.html'), htmlReport(results, sweeps));
}

/** Sweeps of the strategies stand beside the comparison. */
async function writeCanonical(results: Results): Promise<string> {
  const { sweep } = results.plan.options;
  const path = join(canonical, `${typeof sweep === 'string' ? `sweep-${sweep}` : results.suite}.json`);
  await mkdir(canonical, { recursive: true });
  await writeWhole(path, forCommit(results));
  return path;
}

const compareSpecs: OptionSpecs = {
  'fail-on-regression': { kind: 'flag', help: 'exit with 1 when something became worse' },
  margin: { kind: 'number', min: 0, max: 100, help: 'changes that are smaller are ties, % (5)' },
};

/** Splits file names from options. */
function filesOf(args: readonly string[], withValue: readonly string[]): { files: string[]; rest: string[] } {
  const files: string[] = [];
  const rest: string[] = [];
  for (const [n, arg] of args.entries()) {
    const isValue = withValue.includes(args[n - 1] ?? '');
    (arg.startsWith('--') || isValue ? rest : files).push(arg);
  }
  return { files, rest };
}

async function compareCommand(args: readonly string[]): Promise<number> {
  const mistakes: string[] = [];
  const { files, rest } = filesOf(args, ['--margin']);
  const given = readOptions(compareSpecs, rest, mistakes);
  const [before, after] = files;
  if (before === undefined || after === undefined || files.length > 2) {
    mistakes.push('--compare needs two files, the older one first: before/results.json after/results.json');
  }
  if (mistakes.length > 0 || before === undefined || after === undefined) return refuse(mistakes);
  const report = compareResults(
    await readResults(before),
    await readResults(after),
    given.number('margin', 5),
  );
  process.stdout.write(`${comparisonText(report)}\n`);
  const isWorse = given.has('fail-on-regression') && regressions(report).length > 0;
  return isWorse ? exitCodes.failure : exitCodes.success;
}

async function reportCommand(paths: readonly string[]): Promise<number> {
  const [first, ...sweeps] = paths;
  if (first === undefined)
    return refuse(['--report needs a results.json, and may have those of sweeps behind it']);
  const folder = dirname(first);
  await writeReports(folder, await readResults(first), await Promise.all(sweeps.map(readResults)));
  process.stdout.write(`report: ${folder}/report.html, report.md\n`);
  return exitCodes.success;
}

async function main(args: readonly string[], signal: AbortSignal): Promise<number> {
  const [first = '', ...rest] = args;
  if (first === '--compare') return compareCommand(rest);
  if (first === '--report') return reportCommand(rest);
  if (first === '' || first.startsWith('-')) return suites.get(usual)!.run(args, signal);
  const suite = suites.get(first);
  if (suite === undefined)
    return refuse([`there is no suite "${first}"; there are ${[...suites.keys()].join(', ')}`]);
  return suite.run(rest, signal);
}

const interrupt = new AbortController();
for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
  process.on(name, () => {
    if (interrupt.signal.aborted) process.exit(exitCodes.interrupted);
    say('\nstopping: finished trials are reported; a second signal ends it at once');
    interrupt.abort(new Error('interrupted'));
  });
}
try {
  process.exitCode = await main(process.argv.slice(2), interrupt.signal);
} catch (error) {
  if (!interrupt.signal.aborted) say(reasonOf(error));
  process.exitCode = interrupt.signal.aborted ? exitCodes.interrupted : exitCodes.failure;
}
