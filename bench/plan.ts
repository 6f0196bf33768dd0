/** What will be measured, in which order. Pure: the same options and the same catalogue give the same plan. */

import { suggestion } from '../src/config/suggest.ts';
import type { BenchOptions } from './options.ts';
import type { Point } from './result.ts';

/** A strategy as `GET /strategies` describes it, as far as the bench needs it. */
export interface CatalogueEntry {
  readonly name: string;
  /** Whether it runs once for each lock of `--locks`. */
  readonly usesLock: boolean;
  /** False for the control that must be seen to oversell. */
  readonly neverOversells: boolean;
}

/** One strategy, with its lock where it uses one: a row of the comparison. */
export interface Contender {
  readonly strategy: string;
  /** The `LOCK` that it runs with; null: it uses none. */
  readonly lock: string | null;
  /** Declared unsafe: its audit is expected to fail. */
  readonly unsafe: boolean;
  /** The baseline once more: it has no rank, and shows how far apart two identical rows are. */
  readonly twin: boolean;
}

/** One trial to be run: the loads of one strategy at one point in one round, in one service on empty stores. */
export interface TrialPlan extends Contender {
  readonly point: Point;
  /** Counted from 1 over the whole run. */
  readonly number: number;
  /** Counted from 1. */
  readonly round: number;
  /** Of the list of attempts; the same for all strategies of a round. */
  readonly seed: number;
}

/** "lua", "global-lock (redis)", "for-update, again". */
export function label({ strategy, lock, twin }: Pick<Contender, 'strategy' | 'lock' | 'twin'>): string {
  const name = lock === null ? strategy : `${strategy} (${lock})`;
  return twin ? `${name}, again` : name;
}

/** The strategy that others are divided by where there is a choice: what a textbook does. */
const usualBaseline = 'for-update';

/**
 * The rows of the comparison, or every mistake in the names. Where rounds can tell noise from difference, the baseline is
 * there a second time, as its own twin.
 */
export function contenders(
  options: Pick<BenchOptions, 'strategies' | 'locks' | 'baseline' | 'rounds' | 'sweep'>,
  catalogue: readonly CatalogueEntry[],
): { readonly rows: readonly Contender[]; readonly mistakes: readonly string[] } {
  const known = catalogue.map(({ name }) => name);
  const wanted = options.strategies === 'all' ? known : options.strategies;
  const mistakes = wanted
    .filter((name) => !known.includes(name))
    .map((name) => `--strategies: there is no strategy "${name}"${suggestion(name, known)}`);
  if (options.baseline !== null && !wanted.includes(options.baseline))
    mistakes.push(`--baseline: "${options.baseline}" is not among the strategies that are compared`);
  const rows = wanted.flatMap((name): Contender[] => {
    const entry = catalogue.find((candidate) => candidate.name === name);
    if (entry === undefined) return [];
    const row = { strategy: name, lock: null, unsafe: !entry.neverOversells, twin: false };
    return entry.usesLock ? options.locks.map((lock) => ({ ...row, lock })) : [row];
  });
  const baseline = baselineOf(rows, options.baseline);
  const worthTwin = baseline !== null && rows.length > 1 && options.rounds > 1 && options.sweep === null;
  return { rows: worthTwin ? [...rows, { ...baseline, twin: true }] : rows, mistakes };
}

/** The row that the others are divided by; null: there is no row. */
export function baselineOf<T extends Contender>(rows: readonly T[], wanted: string | null): T | null {
  const own = rows.filter(({ twin }) => !twin);
  const named = (name: string | null): T | undefined => own.find(({ strategy }) => strategy === name);
  return named(wanted) ?? named(usualBaseline) ?? own.find(({ unsafe }) => !unsafe) ?? own[0] ?? null;
}

/**
 * All trials in order. Strategies are interleaved: every round runs each once at each point, and each round begins one
 * further in the list, so that none always runs first, last, or after the same neighbour's leftovers in the machine's caches.
 */
export function schedule(
  rows: readonly Contender[],
  { rounds, seed, points }: Pick<BenchOptions, 'rounds' | 'seed' | 'points'>,
): TrialPlan[] {
  const trials: TrialPlan[] = [];
  for (let round = 1; round <= rounds; round++) {
    for (const point of points) {
      for (const row of rotate(rows, round - 1)) {
        trials.push({ ...row, point, number: trials.length + 1, round, seed: seed + round - 1 });
      }
    }
  }
  return trials;
}

function rotate<T>(items: readonly T[], by: number): T[] {
  const from = items.length === 0 ? 0 : by % items.length;
  return [...items.slice(from), ...items.slice(0, from)];
}
