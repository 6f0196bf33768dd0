/** All turns, one after the other: fresh servers, the three measurements, results on disk after each. */

import { number } from '../audit/check.ts';
import { exitCodes } from '../command.ts';
import { describeCommit, describeMachine } from '../kit/machine.ts';
import type { Output } from '../report/progress.ts';
import { terminalTable } from '../report/terminal-table.ts';
import { type Contender, turns } from './contenders.ts';
import { copyToLatest, makeFolder, writeCanonical, writeResults } from './files.ts';
import { legend } from './markdown.ts';
import { measure, type Shape } from './measure.ts';
import type { LocksOptions } from './options.ts';
import { untilAtRest } from './rest.ts';
import { type Failure, type LocksResults, type Measurement, type ShapeName, shapeNames } from './results.ts';
import type { ServerRoom, Versions } from './servers.ts';
import { shortcomings, summarize } from './summary.ts';
import { cells, columns } from './table.ts';

export interface Run {
  readonly options: LocksOptions;
  readonly contenders: readonly Contender[];
  readonly room: ServerRoom;
  readonly out: Output;
  readonly signal: AbortSignal;
}

interface Turn {
  readonly round: number;
  readonly contender: Contender;
}

/** What has come of a run so far. */
interface State {
  readonly startedAt: Date;
  readonly commit: string;
  readonly measurements: Measurement[];
  readonly failures: Failure[];
}

/** The servers of a contender could not be started, which says nothing of the contender. */
class MissingServersError extends Error {
  override readonly name = 'MissingServersError';
}

/** @returns the exit code */
export async function runAll(run: Run): Promise<number> {
  const { options, contenders, out, signal } = run;
  const commit = await describeCommit();
  const state: State = { startedAt: new Date(), commit, measurements: [], failures: [] };
  const folder = await makeFolder(options.out, state.startedAt);
  const all = turns(contenders, options.rounds);
  for (const [index, turn] of all.entries()) {
    if (signal.aborted) break;
    if (state.failures.some(({ contender, missing }) => missing && contender === turn.contender.name))
      continue;
    const left = remaining(state.startedAt, index, all.length);
    const line = await takeTurn(run, turn, state, (step) => show(out, `${step}${left}`));
    clear(out);
    if (line === null) break;
    out.write(`  round ${turn.round}  ${turn.contender.name.padEnd(22)} ${line}\n`);
    await writeResults(folder, resultsOf(run, state));
  }
  return finish(run, folder, resultsOf(run, state));
}

/** @returns what to say of it, or null when it was interrupted */
async function takeTurn(
  run: Run,
  turn: Turn,
  { measurements, failures }: State,
  onStep: (step: string) => void,
): Promise<string | null> {
  try {
    const measured = await measureAll(run, turn, onStep);
    measurements.push(...measured);
    const rates = measured.map(({ shape, perSecond }) => {
      return `${shape} ${number(Math.round(perSecond)).padStart(6)}/s`;
    });
    const busy = Math.round((measured[0]?.busyBefore ?? 0) * 100);
    return busy >= 50 ? `${rates.join('  ')}  (the machine was ${busy} % busy before)` : rates.join('  ');
  } catch (error) {
    if (run.signal.aborted) return null;
    const reason = error instanceof Error ? error.message : String(error);
    const missing = error instanceof MissingServersError;
    failures.push({ contender: turn.contender.name, round: turn.round, reason, missing });
    return `${missing ? 'left out' : 'FAILED'}: ${reason}`;
  }
}

/** The whole turn or nothing of it. */
async function measureAll(
  { options, room, signal }: Run,
  { round, contender: { name, servers: kind } }: Turn,
  onStep: (step: string) => void,
): Promise<Measurement[]> {
  onStep(`round ${round}  ${name}: until the machine is at rest`);
  const busyBefore = await untilAtRest(options.restMs, signal);
  signal.throwIfAborted();
  onStep(`round ${round}  ${name}: servers`);
  await using servers = await room.open(kind).catch((cause: unknown) => {
    throw new MissingServersError(cause instanceof Error ? cause.message : String(cause), { cause });
  });
  const { warmupMs, durationMs } = options;
  const measured: Measurement[] = [];
  for (const shape of shapeNames) {
    onStep(`round ${round}  ${name}: ${shape}`);
    const resource = `bench-${name}-${round}-${shape}`;
    const measuring = { contender: name, servers, resource, warmupMs, durationMs, signal };
    const numbers = await measure({ ...measuring, shape: shapeOf(shape, options) });
    measured.push({ contender: name, round, shape, busyBefore, ...numbers });
  }
  return measured;
}

function shapeOf(name: ShapeName, { waiters, processes }: LocksOptions): Shape {
  if (name === 'alone') return { processes: 1, waiters: 1 };
  return name === 'together' ? { processes: 1, waiters } : { processes, waiters };
}

function resultsOf({ options, contenders, room, signal }: Run, state: State): LocksResults {
  const { startedAt, commit, measurements, failures } = state;
  const { rounds, durationMs, warmupMs, waiters, processes, restMs } = options;
  const summary = summarize(measurements);
  return {
    schema: 1,
    startedAt: startedAt.toISOString(),
    finishedAt: new Date().toISOString(),
    partial: signal.aborted,
    commit,
    machine: machineOf(room.versions),
    plan: { rounds, durationMs, warmupMs, waiters, processes, restMs, contenders },
    scriptCallsCounted: room.scriptCallsCounted,
    measurements: [...measurements],
    summary,
    failures: [...failures],
    shortcomings: shortcomings(summary, failures),
  };
}

function machineOf({ redis, postgres, zookeeper }: Versions): LocksResults['machine'] {
  const none = 'not used';
  const machine = describeMachine({ redis: redis ?? none, postgres: postgres ?? none });
  return { ...machine, zookeeper: zookeeper ?? none };
}

async function finish(run: Run, folder: string, results: LocksResults): Promise<number> {
  const { options, out, signal } = run;
  await writeResults(folder, results);
  await copyToLatest(options.out, folder);
  if (results.summary.length > 0)
    out.write(`\n${terminalTable(columns, results.summary.map(cells))}\n\n${legend(results)}\n`);
  for (const { contender, reason, missing } of results.failures) {
    if (missing) out.write(`left out ${contender}: ${reason}\n`);
  }
  for (const text of results.shortcomings) out.write(`WARNING: ${text}\n`);
  out.write(`\nresults: ${folder}\n`);
  if (signal.aborted) return exitCodes.interrupted;
  if (results.shortcomings.length > 0) return exitCodes.failure;
  if (options.canonical) out.write(`and ${await writeCanonical(results)}\n`);
  return exitCodes.success;
}

/** How much of the run is left, from how long it took so far. */
function remaining(startedAt: Date, done: number, all: number): string {
  const leftMs = done === 0 ? null : ((Date.now() - startedAt.getTime()) / done) * (all - done);
  const left = leftMs === null ? '' : `, about ${Math.ceil(leftMs / 60_000)} min left`;
  return `  (${done + 1} of ${all}${left})`;
}

/** A line that changes in place, where that is possible. */
function show(out: Output, text: string): void {
  if (out.isTTY) out.write(`\r\u001b[2K${text.slice(0, (out.columns ?? 80) - 1)}`);
}

function clear(out: Output): void {
  if (out.isTTY) out.write('\r\u001b[2K');
}
