/** The quotients and the rates over the rounds, and what is to be said of them in words. Pure. */
import { spread } from '../summary.ts';
import type { Cell, Goal } from './cells.ts';
import type { CellResult, CellRow, Failure, RatioRow } from './results.ts';

/**
 * Of all answers, the share that may be of another kind. A closed loop that is told `busy` comes again at once, so that
 * what it measures beyond this is how fast a service turns it down.
 */
const othersWithin = 0.1;

const passed = ({ findings }: CellResult): boolean => findings === null || findings.length === 0;
const otherShare = ({ counted, others, unanswered }: CellResult): number => {
  const all = counted + others + unanswered;
  return all === 0 ? 1 : (others + unanswered) / all;
};
/** A rate counts when the audit passed, and when it is a rate of what should be measured. */
const counts = (result: CellResult): boolean => passed(result) && otherShare(result) <= othersWithin;

/** A row for each goal of which both cells were to be measured; a quotient is taken within a round. */
export function ratioRows(
  goals: readonly Goal[],
  cells: readonly Cell[],
  results: readonly CellResult[],
): RatioRow[] {
  const names = new Set(cells.map(({ name }) => name));
  return goals.filter(({ of, by }) => names.has(of) && names.has(by)).map((goal) => ratioRow(goal, results));
}

function ratioRow(goal: Goal, results: readonly CellResult[]): RatioRow {
  const valid = results.filter(counts);
  const rounds = valid
    .filter(({ cell }) => cell === goal.of)
    .flatMap(({ round, perSecond }) => {
      const by = valid.find((other) => other.cell === goal.by && other.round === round);
      return by === undefined || by.perSecond === 0 ? [] : [{ round, value: perSecond / by.perSecond }];
    })
    .sort((a, b) => a.round - b.round);
  if (rounds.length === 0) return { ...goal, rounds, spread: null, verdict: 'not measured' };
  const over = spread(rounds.map(({ value }) => value));
  const reached = over.median >= goal.atLeast && (goal.atMost === null || over.median <= goal.atMost);
  return { ...goal, rounds, spread: over, verdict: reached ? 'reached' : 'missed' };
}

/** A row for each cell that was measured, in the order of `cells`. */
export function cellRows(cells: readonly Cell[], results: readonly CellResult[]): CellRow[] {
  return cells.flatMap(({ name, counts: what, summary }) => {
    const own = results.filter(({ cell }) => cell === name);
    const [first] = own;
    if (first === undefined) return [];
    const latencies = own.flatMap(({ latencyMs }) => latencyMs ?? []);
    const audited = own.some(({ findings }) => findings !== null);
    return {
      cell: name,
      counts: what,
      summary,
      rounds: own.length,
      perSecond: spread(own.map(({ perSecond }) => perSecond)),
      latencyMs:
        latencies.length === 0
          ? null
          : { p50: spread(latencies.map(({ p50 }) => p50)), p99: spread(latencies.map(({ p99 }) => p99)) },
      processors: first.processors.map((_, index) => {
        return spread(own.map(({ processors }) => processors[index] ?? 0)).median;
      }),
      others: own.reduce((sum, { others }) => sum + others, 0),
      unanswered: own.reduce((sum, { unanswered }) => sum + unanswered, 0),
      how: first.how,
      audit: audited ? (own.every(passed) ? 'pass' : 'fail') : null,
    };
  });
}

/** "at least 0.40", "0.85 to 1.15". */
export function goalText({ atLeast, atMost }: Pick<Goal, 'atLeast' | 'atMost'>): string {
  return atMost === null ? `at least ${figure(atLeast)}` : `${figure(atLeast)} to ${figure(atMost)}`;
}

/** Two places, or fewer where they would say nothing. */
export const figure = (value: number): string => (value >= 10 ? value.toFixed(1) : value.toFixed(2));

/** The goals that were missed, in words. */
export function missedGoals(rows: readonly RatioRow[]): string[] {
  return rows.flatMap((row) => {
    const name = `${row.of} ÷ ${row.by}`;
    if (row.verdict === 'reached') return [];
    if (row.spread === null) return [`${name} was not measured; the goal is ${goalText(row)}`];
    const { median, min, max } = row.spread;
    const range = `${figure(min)} … ${figure(max)}`;
    return [`${name} is ${figure(median)} (${range}); the goal is ${goalText(row)}`];
  });
}

/** Rates that do not count although their audit passed, in words. */
export function notes(results: readonly CellResult[]): string[] {
  return results
    .filter((result) => passed(result) && !counts(result))
    .map((result) => {
      const share = `${Math.round(otherShare(result) * 100)} %`;
      const why = 'were of another kind, busy for instance, or missing: no ratio counts with it';
      return `${result.cell}: of the answers of round ${result.round} ${share} ${why}`;
    });
}

/** Why a run is not valid; empty: every cell was measured, and every audit passed. */
export function shortcomings(results: readonly CellResult[], failures: readonly Failure[]): string[] {
  if (results.length === 0) return ['nothing could be measured'];
  const failed = failures.map(({ cell, round, reason }) => `${cell}: round ${round} failed: ${reason}`);
  const wrong = results
    .filter((result) => !passed(result))
    .map(({ cell, round, findings }) => {
      return `${cell}: the audit of round ${round} failed: ${findings?.join('; ')}`;
    });
  return [...failed, ...wrong];
}
