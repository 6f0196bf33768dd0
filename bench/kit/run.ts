/**
 * The one run of every suite:
 *
 *   planned ─▶ running (cell by cell: idle wait, trial, data written) ─▶ finished
 *                 ├─ signal ──────────────────────────────────────────▶ interrupted (130)
 *                 └─ three trials in a row that could not be run ─────▶ broken off (1)
 *
 * A trial that could not be run is noted, and the next one begins. However a run ends, finished trials are reported.
 */
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { describeCommit, describeMachine } from '../../lab/kit/machine.ts';
import { reasonOf } from '../../lab/kit/text.ts';
import type { StoresOptions } from '../../lab/servers/stores.ts';
import { type Environment, MissingServersError, openEnvironment } from './environment.ts';
import { untilIdle } from './idle.ts';
import type { CommonOptions } from './options.ts';
import { cellsWithControl, schedule } from './plan.ts';
import { type Output, Progress } from './progress.ts';
import { htmlReport } from './report/html.ts';
import { figure } from './report/numbers.ts';
import { markdownReport, terminalReport } from './report/text.ts';
import {
  forCommit,
  makeFolder,
  pointLatest,
  type Results,
  readResults,
  withLaterRows,
  writeData,
  writeWhole,
} from './results.ts';
import type { CellBase, Planned, Session, Suite, Trial, TrialBase } from './suite.ts';
import { type Broken, failuresOf, ratioRows, summarize, verdictOf } from './summary.ts';

export const exitCodes = { success: 0, failure: 1, usage: 2, interrupted: 130 } as const;

export interface RunContext {
  readonly common: CommonOptions;
  readonly stores: Pick<StoresOptions, 'databaseUrl' | 'redisUrl'>;
  readonly out: Output;
  readonly signal: AbortSignal;
  readonly say: (line: string) => void;
  /** The folder of the committed results. */
  readonly canonical: string;
}

/** The inputs of a run, and its results so far. */
interface Run {
  readonly suite: Suite;
  readonly planned: Planned;
  readonly trials: readonly Trial[];
  readonly session: Session;
  readonly environment: Environment;
  readonly context: RunContext;
  readonly startedAt: Date;
  readonly commit: string;
  readonly results: TrialBase[];
  readonly broken: Broken[];
  /** Trials that ended, even by an error. */
  done: number;
  ended: 'running' | 'finished' | 'interrupted' | 'broken off';
}

const brokenInARow = 3;

/** @returns the exit code */
export async function runSuite(suite: Suite, options: unknown, context: RunContext): Promise<number> {
  const { common, signal, say } = context;
  const startedAt = new Date();
  const commit = await describeCommit();
  const folder = await makeFolder(common.out, startedAt);
  const results: TrialBase[] = [];
  const stores = { ...context.stores, keep: common.keep, mayDelete: common.yes, say };
  try {
    await using environment = await openEnvironment({ folder, signal, say }, stores);
    const planned = await suite.plan(options, environment);
    if ('mistakes' in planned) {
      for (const mistake of planned.mistakes) say(mistake);
      return exitCodes.usage;
    }
    const session = await suite.open(options, environment);
    await using _closing = { [Symbol.asyncDispose]: async () => session.close?.() };
    signal.throwIfAborted();
    const run: Run = {
      ...{ suite, planned, trials: schedule(planned, common), session, environment, context },
      ...{ startedAt, commit, results, broken: [], done: 0, ended: 'running' },
    };
    await runTrials(run);
    return await finish(run);
  } finally {
    if (results.length === 0) await rm(folder, { recursive: true, force: true });
  }
}

async function runTrials(run: Run): Promise<void> {
  const { trials, environment, context, results, broken } = run;
  const { common, signal, out } = context;
  const progress = new Progress(out, { trials: trials.length, rounds: common.rounds });
  let inARow = 0;
  for (const trial of trials) {
    if (signal.aborted || inARow === brokenInARow) break;
    const { cell, round } = trial;
    if (broken.some((one) => one.missing && one.cell === cell.name)) continue;
    progress.step(trial, 'starting');
    try {
      const own = await runTrial(run, trial, (step) => progress.step(trial, step));
      results.push(...own);
      inARow = 0;
      progress.end(trial, lineOf(run, own, cell));
    } catch (error) {
      if (signal.aborted) break;
      const missing = error instanceof MissingServersError;
      const reason = reasonOf(error);
      broken.push({ cell: cell.name, round, reason, missing });
      if (!missing) inARow++;
      progress.end(trial, `${missing ? 'left out' : 'FAILED'}: ${reason}`);
    }
    run.done++;
    if (results.length > 0) await writeData(environment.folder, await resultsOf(run));
  }
  progress.stop();
  run.ended = signal.aborted ? 'interrupted' : inARow === brokenInARow ? 'broken off' : 'finished';
}

/** All results of a trial, or none. */
async function runTrial(run: Run, trial: Trial, onStep: (step: string) => void): Promise<TrialBase[]> {
  const { common, signal } = run.context;
  if (common.idleMs > 0) onStep('waiting until the machine is idle');
  const busyBefore = common.idleMs > 0 ? await untilIdle(common.idleMs, signal) : 0;
  signal.throwIfAborted();
  const [startedAt, beganMs] = [new Date().toISOString(), performance.now()];
  const bare = await run.session.runTrial(trial, onStep);
  const { cell, round } = trial;
  const durationMs = Math.round(performance.now() - beganMs);
  const stamp = { cell: cell.name, control: cell.control, round, startedAt, durationMs, busyBefore };
  return [bare].flat().map((result) => ({ ...stamp, ...result }));
}

/** "1,234 · 1,240 accepted/s  pass – first finding". */
function lineOf({ suite }: Run, results: readonly TrialBase[], cell: CellBase): string {
  const named = suite.metrics.filter(({ key }) => key === suite.report.lead);
  const isRead = ({ read }: (typeof named)[number]) => results.some((result) => read(result) !== null);
  const lead = [...named, ...suite.metrics].find(isRead) ?? named[0];
  const values = results.map((result) => lead?.read(result) ?? null).filter((value) => value !== null);
  const texts = values.map((value) => figure(value, lead?.unit ?? ''));
  const verdicts = new Set(results.map((result) => verdictOf(suite, result, cell)).filter(Boolean));
  const ignored = results.flatMap(({ invalid }) => invalid.map((why) => `not counted: ${why}`));
  const notes = [...new Set([...ignored, ...results.flatMap(({ findings }) => findings)])];
  const more = notes.length > 1 ? ` (and ${notes.length - 1} more)` : '';
  const note = notes.length === 0 ? '' : ` – ${notes[0]}${more}`;
  return `${texts.join(' · ').padStart(8)} ${lead?.title ?? ''}  ${[...verdicts].join(', ')}${note}`;
}

async function resultsOf(run: Run): Promise<Results> {
  const { suite, planned, trials, session, environment, results, broken } = run;
  const { rounds, seed, smoke } = run.context.common;
  const { points, baseline, ladder, shown } = planned;
  const cells = cellsWithControl(planned, rounds).map(({ name, summary, unsafe, control }) => {
    return { name, summary, unsafe, control };
  });
  const { rows: summary, noise } = summarize(suite, { cells, baseline, ladder }, results);
  const plain = <T extends object>(items: readonly T[] = []): T[] => JSON.parse(JSON.stringify(items)); // without functions
  return {
    schema: 2,
    suite: suite.name,
    startedAt: run.startedAt.toISOString(),
    finishedAt: new Date().toISOString(),
    partial: run.ended !== 'finished',
    smoke,
    commit: run.commit,
    machine: describeMachine(session.versions ?? (await environment.stores()).versions),
    generator: session.generator,
    plan: { rounds, seed, trials: trials.length, cells, points, baseline, ladder, options: shown },
    trials: [...results],
    summary,
    noise,
    ratios: ratioRows(suite.ratios ?? [], summary, { cells, ladder }),
    metrics: plain(suite.metrics),
    curves: plain(suite.curves),
    checks: plain(suite.checks),
    layout: suite.report,
    tables: suite.tables?.(results) ?? [],
    ...(suite.matrices !== undefined && { matrices: suite.matrices(results) }),
    broken: [...broken],
    failures: failuresOf(summary, broken),
  };
}

/** Writes and shows everything. @returns the exit code */
async function finish(run: Run): Promise<number> {
  const { environment, context, trials, done, ended } = run;
  const { common, out, canonical } = context;
  const { folder } = environment;
  const results = await resultsOf(run);
  if (results.trials.length > 0) {
    await writeData(folder, results);
    await writeReports(folder, results);
    await pointLatest(common.out, folder);
    out.write(`\n${terminalReport(results)}\n`);
  }
  for (const text of results.failures) out.write(`WARNING: ${text}\n`);
  if (results.trials.length > 0) out.write(`\nreport: ${folder}/report.html, report.md\n`);
  if (ended !== 'finished') out.write(`${ended}: ${done} of ${trials.length} trials were finished\n`);
  if (ended === 'interrupted') return exitCodes.interrupted;
  if (results.failures.length > 0 || ended === 'broken off') return exitCodes.failure;
  if (common.canonical) out.write(`and ${await writeCanonical(canonical, results)}\n`);
  return exitCodes.success;
}

/** report.md and report.html of a run, with the sweeps that belong to it. */
export async function writeReports(folder: string, results: Results, sweeps: Results[] = []): Promise<void> {
  await writeWhole(join(folder, 'report.md'), markdownReport(results, sweeps));
  await writeWhole(join(folder, 'report.html'), htmlReport(results, sweeps));
}

/**
 * Replaces the committed results of the suite; a sweep has its own file. A run of some rows of a matrix replaces only these.
 * @returns the path
 */
async function writeCanonical(folder: string, results: Results): Promise<string> {
  const { sweep } = results.plan.options;
  const path = join(folder, `${typeof sweep === 'string' ? `sweep-${sweep}` : results.suite}.json`);
  await mkdir(folder, { recursive: true });
  const before = await readResults(path).catch(() => null);
  await writeWhole(path, forCommit((before && withLaterRows(before, results)) ?? results));
  return path;
}
