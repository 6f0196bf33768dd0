/** Runs the trials of a plan one after the other and writes the reports. */
import { exitCodes } from './command.ts';
import { describeCommit, type Machine } from './kit/machine.ts';
import type { BenchOptions } from './options.ts';
import { type Contender, schedule, type TrialPlan } from './plan.ts';
import { makeFolder, pointLatest, removeFolder, writeData, writeReports } from './report/files.ts';
import { type Output, Progress } from './report/progress.ts';
import type { Results } from './report/results.ts';
import { axisTitles, sweepTable } from './report/sweep-table.ts';
import { cells, columns, findingLines, noiseText } from './report/table.ts';
import { terminalTable } from './report/terminal-table.ts';
import type { TrialResult } from './result.ts';
import { shortcomings, summarize } from './summary.ts';

/** What the run needs from outside; the tests give it trials that are no trials. */
export interface RunContext {
  readonly options: BenchOptions;
  readonly contenders: readonly Contender[];
  readonly machine: Machine;
  readonly serviceEnv: Readonly<Record<string, string>>;
  readonly out: Output;
  /** Fires when the user wants to stop. */
  readonly signal: AbortSignal;
  readonly runTrial: (
    trial: TrialPlan,
    context: { readonly folder: string; readonly onStep: (step: string) => void },
  ) => Promise<readonly TrialResult[]>;
}

/** Of each row, on the terminal. */
const findingsShown = 3;

/** Runs everything; returns the exit code. */
export async function runPlan(context: RunContext): Promise<number> {
  const { options, contenders, out, signal } = context;
  const startedAt = new Date();
  const trials = schedule(contenders, options);
  const folder = await makeFolder(options.out, startedAt);
  const commit = await describeCommit();
  const finished: TrialResult[] = [];
  let done = 0;
  const results = (): Results =>
    resultsOf(context, { startedAt, commit, planned: trials.length, done, finished });

  const broken = await runTrials(context, trials, folder, async (loads) => {
    finished.push(...loads);
    done++;
    await writeData(folder, results());
  });
  if (finished.length > 0) {
    await writeReports(folder, results());
    await pointLatest(options.out, folder);
    showResults(out, results(), folder);
  } else await removeFolder(folder);
  if (signal.aborted) {
    out.write(`\ninterrupted: ${done} of ${trials.length} trials were finished\n`);
    return exitCodes.interrupted;
  }
  if (broken !== null) {
    out.write(`\nbroken off after ${done} of ${trials.length} trials: ${broken.message}\n`);
    return exitCodes.failure;
  }
  return results().shortcomings.length === 0 ? exitCodes.success : exitCodes.failure;
}

/** Runs trials until all are done, the user interrupts, or one cannot be run; returns why it could not. */
async function runTrials(
  { options, out, signal, runTrial }: RunContext,
  trials: readonly TrialPlan[],
  folder: string,
  onResult: (loads: readonly TrialResult[]) => Promise<void>,
): Promise<Error | null> {
  const progress = new Progress(out, trials, options.rounds);
  try {
    for (const trial of trials) {
      if (signal.aborted) break;
      progress.begin(trial);
      const loads = await runTrial(trial, { folder, onStep: (step) => progress.step(step) });
      progress.end(trial, loads);
      await onResult(loads);
    }
    return null;
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error));
  } finally {
    progress.stop();
  }
}

function resultsOf(
  { options, contenders, machine, serviceEnv }: RunContext,
  run: {
    readonly startedAt: Date;
    readonly commit: string;
    /** Trials. */
    readonly planned: number;
    readonly done: number;
    /** The loads of those that are done. */
    readonly finished: readonly TrialResult[];
  },
): Results {
  const { rows: summary, noise } = summarize(run.finished, options.baseline);
  return {
    schema: 1,
    startedAt: run.startedAt.toISOString(),
    finishedAt: new Date().toISOString(),
    partial: run.done < run.planned,
    commit: run.commit,
    machine,
    plan: { ...options, contenders, trials: run.planned, serviceEnv },
    trials: [...run.finished],
    summary,
    noise,
    shortcomings: shortcomings(summary),
  };
}

function showResults(out: Output, results: Results, folder: string): void {
  const { sweep } = results.plan;
  if (sweep === null)
    out.write(`\n${terminalTable(columns, results.summary.map(cells))}\n\n${noiseText(results)}\n`);
  else out.write(`\naccepted/s by ${axisTitles[sweep]}\n${terminalTable(...sweepTable(results, sweep))}\n`);
  const findings = findingLines(results.summary, findingsShown);
  if (findings.length > 0) out.write(`\n${findings.join('\n')}\n`);
  for (const text of results.shortcomings) out.write(`\nWARNING: ${text}\n`);
  out.write(`\nreport: ${folder}/report.html, report.md\n`);
}
