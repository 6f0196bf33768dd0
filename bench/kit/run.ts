/**
 * The one run of every suite:
 *
 *   planned ─▶ running (cell by cell: idle wait, trial, data written) ─▶ finished
 *                 ├─ signal ──────────────────────────────────────────▶ interrupted (130)
 *                 └─ three trials in a row that could not be run ─────▶ broken off (1)
 *
 * A trial that could not be run is noted, and the next one begins. Whatever ends a run, what was finished is reported.
 */
import { rm } from 'node:fs/promises';
import { type Environment, MissingServersError, openEnvironment } from './environment.ts';
import { untilIdle } from './idle.ts';
import { describeCommit, describeMachine } from './machine.ts';
import type { CommonOptions } from './options.ts';
import { cellsWithControl, schedule } from './plan.ts';
import { type Output, Progress } from './progress.ts';
import { makeFolder, pointLatest, type Results, writeData } from './results.ts';
import type { CellBase, Planned, Session, Suite, Trial, TrialBase } from './suite.ts';
import { failuresOf, goalRows, summarize } from './summary.ts';
import { reasonOf } from './text.ts';

export const exitCodes = { success: 0, failure: 1, usage: 2, interrupted: 130 } as const;

export interface RunContext {
  readonly common: CommonOptions;
  readonly databaseUrl: string | undefined;
  readonly redisUrl: string | undefined;
  readonly out: Output;
  readonly signal: AbortSignal;
  readonly say: (line: string) => void;
  /** Writes report.md and report.html. */
  readonly writeReports: (folder: string, results: Results) => Promise<void>;
  /** What the terminal shows at the end. */
  readonly terminalReport: (results: Results) => string;
  /** Replaces the committed results. @returns the path */
  readonly writeCanonical: (results: Results) => Promise<string>;
}

/** What has come of a run so far. */
interface State<Result extends TrialBase> {
  readonly startedAt: Date;
  readonly commit: string;
  readonly results: Result[];
  readonly broken: Results['broken'][number][];
  /** Trials that were begun and came to an end. */
  done: number;
  ended: 'running' | 'finished' | 'interrupted' | 'broken off';
}

const brokenInARow = 3;

/** @returns the exit code */
export async function runSuite<Options, Cell extends CellBase, Result extends TrialBase>(
  suite: Suite<Options, Cell, Result>,
  options: Options,
  context: RunContext,
): Promise<number> {
  const { common, signal, say, databaseUrl, redisUrl } = context;
  const startedAt = new Date();
  const folder = await makeFolder(common.out, startedAt);
  const place = { folder, signal, say, databaseUrl, redisUrl, keep: common.keep, yes: common.yes };
  const state: State<Result> = {
    startedAt,
    commit: await describeCommit(),
    results: [],
    broken: [],
    done: 0,
    ended: 'running',
  };
  try {
    await using environment = await openEnvironment(place);
    const planned = await suite.plan(options, environment);
    if ('mistakes' in planned) {
      for (const mistake of planned.mistakes) say(mistake);
      return exitCodes.usage;
    }
    await using session = await suite.open(options, environment);
    signal.throwIfAborted();
    const run = { suite, planned, session, environment, context, state };
    await runTrials(run);
    return await finish(run, await resultsOf(run));
  } finally {
    if (state.results.length === 0) await rm(folder, { recursive: true, force: true });
  }
}

interface Run<Options, Cell extends CellBase, Result extends TrialBase> {
  readonly suite: Suite<Options, Cell, Result>;
  readonly planned: Planned<Cell>;
  readonly session: Session<Cell, Result>;
  readonly environment: Environment;
  readonly context: RunContext;
  readonly state: State<Result>;
}

async function runTrials<Options, Cell extends CellBase, Result extends TrialBase>(
  run: Run<Options, Cell, Result>,
): Promise<void> {
  const { planned, environment, context, state } = run;
  const { common, signal, out } = context;
  const trials = schedule(planned, common);
  const progress = new Progress(out, trials, common.rounds);
  let inARow = 0;
  try {
    for (const trial of trials) {
      if (signal.aborted || inARow === brokenInARow) break;
      if (state.broken.some(({ cell, missing }) => missing && cell === trial.cell.name)) continue;
      progress.begin(trial);
      try {
        const results = await runTrial(run, trial, (step) => progress.step(step));
        state.results.push(...results);
        inARow = 0;
        progress.end(trial, lineOf(run, results, trial.cell));
      } catch (error) {
        if (signal.aborted) break;
        const missing = error instanceof MissingServersError;
        const reason = reasonOf(error);
        state.broken.push({ cell: trial.cell.name, round: trial.round, reason, missing });
        if (!missing) inARow++;
        progress.end(trial, `${missing ? 'left out' : 'FAILED'}: ${reason}`);
      }
      state.done++;
      if (state.results.length > 0) await writeData(environment.folder, await resultsOf(run));
    }
  } finally {
    progress.stop();
  }
  state.ended = signal.aborted ? 'interrupted' : inARow === brokenInARow ? 'broken off' : 'finished';
}

/** The whole trial or nothing of it. */
async function runTrial<Options, Cell extends CellBase, Result extends TrialBase>(
  { session, context }: Run<Options, Cell, Result>,
  trial: Trial<Cell>,
  onStep: (step: string) => void,
): Promise<Result[]> {
  const { smoke, idleMs } = context.common;
  onStep('waiting until the machine is idle');
  const busyBefore = smoke || idleMs === 0 ? 0 : await untilIdle(idleMs, context.signal);
  context.signal.throwIfAborted();
  const [startedAt, beganMs] = [new Date().toISOString(), performance.now()];
  const bare = await session.runTrial(trial, onStep);
  const { cell, round } = trial;
  const durationMs = Math.round(performance.now() - beganMs);
  const stamp = { cell: cell.name, control: cell.control, round, startedAt, durationMs, busyBefore };
  return bare.map((result) => ({ ...stamp, ...result }) as unknown as Result);
}

/** "1,234 accepted/s  pass", for each result. */
function lineOf<Options, Cell extends CellBase, Result extends TrialBase>(
  { suite }: Run<Options, Cell, Result>,
  results: readonly Result[],
  cell: Cell,
): string {
  const lead = suite.metrics.find(({ key }) => key === suite.report.lead);
  const texts = results.flatMap((result) => {
    const value = lead?.read(result) ?? null;
    return value === null
      ? []
      : [`${value >= 100 ? Math.round(value).toLocaleString('en-US') : value.toFixed(2)}`];
  });
  const verdicts = [...new Set(results.map((result) => suite.verdict(result, cell)).filter(Boolean))];
  const notes = [
    ...new Set(
      results.flatMap(({ invalid, findings }) => [
        ...invalid.map((why) => `not counted: ${why}`),
        ...findings,
      ]),
    ),
  ];
  const note =
    notes[0] === undefined
      ? ''
      : ` – ${notes[0]}${notes.length > 1 ? ` (and ${notes.length - 1} more)` : ''}`;
  return `${texts.join(' · ').padStart(8)} ${lead?.title ?? ''}  ${verdicts.join(', ')}${note}`;
}

async function resultsOf<Options, Cell extends CellBase, Result extends TrialBase>({
  suite,
  planned,
  session,
  environment,
  context,
  state,
}: Run<Options, Cell, Result>): Promise<Results<Result>> {
  const { rounds, seed, smoke } = context.common;
  const { points, baseline, ladder, shown } = planned;
  const cells = cellsWithControl(planned, rounds);
  const { rows: summary, noise } = summarize(suite, { cells, baseline, ladder }, state.results);
  const plain = <T extends object>(items: readonly T[]): T[] =>
    items.map((item) => JSON.parse(JSON.stringify(item)) as T); // without the functions
  return {
    schema: 2,
    suite: suite.name,
    startedAt: state.startedAt.toISOString(),
    finishedAt: new Date().toISOString(),
    partial: state.ended !== 'finished',
    smoke,
    commit: state.commit,
    machine: describeMachine({ ...(await versionsOf(session, environment)) }),
    generator: session.generator,
    plan: {
      rounds,
      seed,
      trials: schedule(planned, { rounds, seed }).length,
      cells: cells.map(({ name, summary, unsafe, control }) => ({ name, summary, unsafe, control })),
      points,
      baseline,
      ladder,
      options: shown,
    },
    trials: [...state.results],
    summary,
    noise,
    goals: goalRows(suite.goals, summary, { cells, ladder }),
    metrics: plain(suite.metrics),
    curves: plain(suite.curves),
    checks: plain(suite.checks),
    layout: suite.report,
    tables: suite.tables?.(state.results) ?? [],
    broken: state.broken,
    failures: failuresOf(summary, state.broken),
  };
}

async function versionsOf(
  { versions }: { readonly versions?: Readonly<Record<string, string>> },
  environment: Environment,
): Promise<Readonly<Record<string, string>>> {
  return versions ?? (await environment.stores()).versions;
}

/** Writes and shows everything. @returns the exit code */
async function finish<Options, Cell extends CellBase, Result extends TrialBase>(
  { environment: { folder }, context, state, planned }: Run<Options, Cell, Result>,
  results: Results<Result>,
): Promise<number> {
  const { common, out, terminalReport, writeReports, writeCanonical } = context;
  if (results.trials.length > 0) {
    await writeData(folder, results);
    await writeReports(folder, results);
    await pointLatest(common.out, folder);
    out.write(`\n${terminalReport(results)}\n`);
  }
  for (const text of results.failures) out.write(`WARNING: ${text}\n`);
  if (results.trials.length > 0) out.write(`\nreport: ${folder}/report.html, report.md\n`);
  const all = schedule(planned, common).length;
  if (state.ended !== 'finished') out.write(`${state.ended}: ${state.done} of ${all} trials were finished\n`);
  if (state.ended === 'interrupted') return exitCodes.interrupted;
  if (results.failures.length > 0 || state.ended === 'broken off') return exitCodes.failure;
  if (common.canonical) out.write(`and ${await writeCanonical(results)}\n`);
  const missed = results.goals.some(({ verdict }) => verdict !== 'reached');
  return common.strict && missed ? exitCodes.failure : exitCodes.success;
}
