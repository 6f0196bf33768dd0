/** All cells of all rounds, one after the other, results on disk after each. */

import { number } from '../audit/check.ts';
import { exitCodes } from '../command.ts';
import { describeCommit, describeMachine } from '../kit/machine.ts';
import type { BenchStores } from '../kit/stores.ts';
import { turns } from '../locks/contenders.ts';
import { untilAtRest } from '../locks/rest.ts';
import type { Output } from '../report/progress.ts';
import { terminalTable } from '../report/terminal-table.ts';
import { flatGoals, ratioGoals } from './cells.ts';
import { makeFolder, writeCanonical, writeResults } from './files.ts';
import { measureReply, measureService } from './http.ts';
import type { Generator } from './load.ts';
import type { Measured, Measuring, Turn } from './measure.ts';
import type { LimitsOptions } from './options.ts';
import type { Layout } from './pin.ts';
import { measureStatements } from './postgres.ts';
import { TurnProgress } from './progress.ts';
import type { CellResult, CellsResults, Failure, LimitsResults, RunHeader } from './results.ts';
import { measureScript } from './script.ts';
import { cellRows, missedGoals, notes, ratioRows, shortcomings } from './summary.ts';
import { cellColumns, cellTexts, percent, ratioColumns, ratioTexts } from './table.ts';

export interface Run {
  readonly options: LimitsOptions;
  readonly stores: BenchStores;
  readonly layout: Layout;
  readonly generator: Generator;
  /** For what must be written down on the way. */
  readonly folder: string;
  readonly out: Output;
  readonly signal: AbortSignal;
}

/** What has come of a run so far. */
interface State {
  readonly startedAt: Date;
  readonly commit: string;
  readonly results: CellResult[];
  readonly failures: Failure[];
}

/** @returns the exit code */
export async function runCells(run: Run): Promise<number> {
  const { options, out, signal } = run;
  const commit = await describeCommit();
  const state: State = { startedAt: new Date(), commit, results: [], failures: [] };
  const folder = await makeFolder(options.out, state.startedAt);
  const all = turns(options.cells, options.rounds).map(({ round, contender }) => ({
    round,
    cell: contender,
  }));
  const progress = new TurnProgress(
    out,
    all.map(({ round, cell }) => ({ round, name: cell.name })),
  );
  try {
    for (const [index, turn] of all.entries()) {
      if (signal.aborted) break;
      progress.begin(index);
      const line = await takeTurn(run, turn, state, (step) => progress.step(step));
      if (line === null) break;
      progress.end(line);
      await writeResults(folder, resultsOf(run, state));
    }
  } finally {
    progress.stop();
  }
  const results = resultsOf(run, state);
  show(run, results);
  return finish(run, folder, results);
}

/** @returns what to say of it, or null when it was interrupted */
async function takeTurn(
  run: Run,
  turn: Turn,
  { results, failures }: State,
  onStep: (step: string) => void,
): Promise<string | null> {
  const { cell, round } = turn;
  try {
    onStep('until the machine is at rest');
    const busyBefore = await untilAtRest(run.options.restMs, run.signal);
    run.signal.throwIfAborted();
    const measured = await measure(turn, { ...run, onStep });
    if (measured.counted <= 0) throw new Error(nothing(measured));
    const perSecond = measured.counted / (measured.measuredMs / 1_000);
    results.push({ cell: cell.name, round, ...measured, perSecond, busyBefore });
    const findings = measured.findings ?? [];
    const { others, unanswered } = measured;
    const more = others + unanswered === 0 ? '' : `  and ${number(others + unanswered)} other answers`;
    const wrong = findings.length === 0 ? '' : `  AUDIT FAILED: ${findings.join('; ')}`;
    const busy = busyBefore >= 0.5 ? `  (the machine was ${percent(busyBefore)} busy before)` : '';
    return `${number(Math.round(perSecond)).padStart(8)} ${cell.counts}/s${more}${busy}${wrong}`;
  } catch (error) {
    if (run.signal.aborted) return null;
    const reason = error instanceof Error ? error.message : String(error);
    failures.push({ cell: cell.name, round, reason });
    return `FAILED: ${reason}`;
  }
}

/** A rate of nothing would make quotients of nothing. */
function nothing({ others, unanswered, measuredMs }: Measured): string {
  const more = others + unanswered === 0 ? '' : `, ${number(others + unanswered)} otherwise or not at all`;
  return `nothing was answered as expected in ${(measuredMs / 1_000).toFixed(1)} s${more}; --duration makes it longer`;
}

function measure(turn: Turn, measuring: Measuring): Promise<Measured> {
  const { subject } = turn.cell;
  switch (subject.kind) {
    case 'reply':
      return measureReply(subject.server, measuring);
    case 'service':
      return measureService(subject, turn, measuring);
    case 'script':
      return measureScript(subject.batched, turn, measuring);
    case 'statements':
      return measureStatements(turn, measuring);
  }
}

/** What every kind of run says of itself. */
export function headerOf(
  { stores, layout, generator, signal }: Omit<Run, 'options' | 'out'>,
  { startedAt, commit }: Pick<State, 'startedAt' | 'commit'>,
): RunHeader {
  return {
    schema: 1,
    startedAt: startedAt.toISOString(),
    finishedAt: new Date().toISOString(),
    partial: signal.aborted,
    commit,
    machine: describeMachine(stores.versions),
    generator: generator.name,
    pin: layout,
  };
}

function resultsOf(run: Run, state: State): CellsResults {
  const { cells, rounds, durationMs, warmupMs, connections, restMs, only } = run.options;
  const { results, failures } = state;
  const ratios = ratioRows(only === 'flat' ? flatGoals : ratioGoals, cells, results);
  return {
    ...headerOf(run, state),
    kind: only === 'flat' ? 'flat' : 'ratios',
    plan: { rounds, durationMs, warmupMs, connections, restMs, cells: cells.map(({ name }) => name) },
    ratios,
    cells: cellRows(cells, results),
    results: [...results],
    failures: [...failures],
    notes: notes(results),
    missed: missedGoals(ratios),
    shortcomings: shortcomings(results, failures),
  };
}

function show({ out }: Run, { cells, ratios, notes }: CellsResults): void {
  if (cells.length > 0) out.write(`\n${terminalTable(cellColumns, cells.map(cellTexts))}\n`);
  if (ratios.length > 0) out.write(`\n${terminalTable(ratioColumns, ratios.map(ratioTexts))}\n`);
  out.write('\n');
  for (const text of notes) out.write(`NOTE: ${text}\n`);
}

/** Says what is missing, writes everything down. @returns the exit code */
export async function finish(
  { options, out, signal, generator }: Run,
  folder: string,
  results: LimitsResults,
): Promise<number> {
  await writeResults(folder, results);
  for (const text of results.missed) out.write(`MISSED: ${text}\n`);
  for (const text of results.shortcomings) out.write(`WARNING: ${text}\n`);
  out.write(`\nload: ${generator.name}\nresults: ${folder}\n`);
  if (signal.aborted) {
    out.write('interrupted: what was finished is kept\n');
    return exitCodes.interrupted;
  }
  if (results.shortcomings.length > 0) return exitCodes.failure;
  if (options.canonical) out.write(`and ${await writeCanonical(results)}\n`);
  return options.strict && results.missed.length > 0 ? exitCodes.failure : exitCodes.success;
}
