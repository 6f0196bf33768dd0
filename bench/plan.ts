/** What will be measured, in which order. Pure: the same options and the same catalogue give the same plan. */
import type { BenchOptions } from './options.ts';
import { suggestion } from './suggest.ts';

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
}

/** One trial to be run. */
export interface TrialPlan extends Contender {
  /** Counted from 1 over the whole run. */
  readonly number: number;
  /** Counted from 1. */
  readonly round: number;
  /** Of the list of attempts; the same for all strategies of a round. */
  readonly seed: number;
}

/** "lua", "global-lock (redis)". */
export function label({ strategy, lock }: Pick<Contender, 'strategy' | 'lock'>): string {
  return lock === null ? strategy : `${strategy} (${lock})`;
}

/** The rows of the comparison, or every mistake in the names. */
export function contenders(
  options: Pick<BenchOptions, 'strategies' | 'locks'>,
  catalogue: readonly CatalogueEntry[],
): { readonly rows: readonly Contender[]; readonly mistakes: readonly string[] } {
  const known = catalogue.map(({ name }) => name);
  const wanted = options.strategies === 'all' ? known : options.strategies;
  const mistakes = wanted
    .filter((name) => !known.includes(name))
    .map((name) => `--strategies: there is no strategy "${name}"${suggestion(name, known)}`);
  const rows = wanted.flatMap((name): Contender[] => {
    const entry = catalogue.find((candidate) => candidate.name === name);
    if (entry === undefined) return [];
    const unsafe = !entry.neverOversells;
    if (!entry.usesLock) return [{ strategy: name, lock: null, unsafe }];
    return options.locks.map((lock) => ({ strategy: name, lock, unsafe }));
  });
  return { rows, mistakes };
}

/**
 * All trials in order. Strategies are interleaved: every round runs each once, and each round begins one further in
 * the list, so that none always runs first, last, or after the same neighbour's leftovers in the machine's caches.
 */
export function schedule(rows: readonly Contender[], rounds: number, seed: number): TrialPlan[] {
  const trials: TrialPlan[] = [];
  for (let round = 1; round <= rounds; round++) {
    for (const row of rotate(rows, round - 1)) {
      trials.push({ ...row, number: trials.length + 1, round, seed: seed + round - 1 });
    }
  }
  return trials;
}

function rotate<T>(items: readonly T[], by: number): T[] {
  const from = items.length === 0 ? 0 : by % items.length;
  return [...items.slice(from), ...items.slice(0, from)];
}
