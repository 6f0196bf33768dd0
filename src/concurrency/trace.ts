/**
 * What `npm run bench -- limits --trace` records: batches, and the calls of stores in them, on a diagnostics channel of Node. Without a
 * subscriber nothing is recorded.
 */
import { tracingChannel } from 'node:diagnostics_channel';

export interface Traced {
  /** Of a batch the queue, of a call the statement or the script. */
  readonly name: string;
  /** Of a batch only. */
  readonly batch?: {
    readonly size: number;
    /** When its first member was submitted, on `performance.now()`'s clock. */
    readonly sinceMs: number;
    /** Items of the same key that stay queued. */
    readonly left: number;
  };
}

const traced = tracingChannel<Traced>('stampede:trace');

/** Runs the work. A subscriber gets the same context object when it starts and when it has ended. */
export function trace<T>(context: Traced, work: () => Promise<T>): Promise<T> {
  return traced.hasSubscribers ? traced.tracePromise(work, context) : work();
}
