/** What the kit gives a suite to work in: stores, a folder for its files, a signal, and a way to tell people things. */
import type { BenchStores } from './stores.ts';

export interface Environment {
  /** Local stores, or those of DATABASE_URL and REDIS_URL; started when first asked for, stopped with the run. */
  stores(): Promise<BenchStores>;
  /** The folder of this run's results, for histories. */
  readonly folder: string;
  /** For files that go with the run. */
  readonly scratch: string;
  /** Fires when the user wants to stop: a trial is then abandoned with this signal's reason. */
  readonly signal: AbortSignal;
  /** A line for people. */
  readonly say: (line: string) => void;
}
