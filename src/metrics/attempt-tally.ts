/**
 * Attempts by outcome, and how long they took. The hot path adds to plain numbers; Prometheus's form is made when it is
 * asked for. (A histogram of prom-client builds and hashes its labels at each observation, which costs more than the
 * answer to a sold-out attempt.)
 */
import { Counter, type Histogram, type Registry } from 'prom-client';
import type { Outcome } from '../domain/outcome.ts';

type Kind = Outcome['kind'];

/** Upper ends of the buckets, in seconds. */
const BUCKETS = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5] as const;
const SECONDS = 'stampede_attempt_seconds';

interface Tally {
  readonly buckets: Float64Array;
  count: number;
  sum: number;
}

export interface AttemptTally {
  /** Counts one attempt and the time from the parsed request to its outcome, in milliseconds. */
  add(kind: Kind, ms: number): void;
}

/** Registers `stampede_attempts_total` and `stampede_attempt_seconds`. */
export function attemptTally(registry: Registry, strategy: string): AttemptTally {
  const tallies = new Map<Kind, Tally>();

  new Counter({
    name: 'stampede_attempts_total',
    help: 'Purchase attempts by outcome',
    labelNames: ['strategy', 'outcome'],
    registers: [registry],
    collect() {
      this.reset();
      for (const [outcome, { count }] of tallies) this.inc({ strategy, outcome }, count);
    },
  });

  const labelled = (outcome: Kind, name: string, value: number, le?: number | string) => ({
    labels: { strategy, outcome, ...(le === undefined ? {} : { le }) },
    metricName: `${SECONDS}${name}`,
    value,
  });
  const seconds = {
    name: SECONDS,
    help: 'Time from the parsed request to the outcome',
    type: 'histogram',
    aggregator: 'sum',
    async get() {
      const values = [...tallies].flatMap(([outcome, { buckets, count, sum }]) => {
        let below = 0;
        const upTo = BUCKETS.map((bound, i) => {
          below += buckets[i]!;
          return labelled(outcome, '_bucket', below, bound);
        });
        const all = [labelled(outcome, '_bucket', count, '+Inf'), labelled(outcome, '_sum', sum)];
        return [...upTo, ...all, labelled(outcome, '_count', count)];
      });
      return { name: SECONDS, help: this.help, type: this.type, aggregator: this.aggregator, values };
    },
  };
  // The registry asks for `name` and `get()`, and nothing else.
  registry.registerMetric(seconds as unknown as Histogram);

  return {
    add(kind, ms) {
      let tally = tallies.get(kind);
      if (tally === undefined) {
        tally = { buckets: new Float64Array(BUCKETS.length), count: 0, sum: 0 };
        tallies.set(kind, tally);
      }
      const taken = ms / 1000;
      tally.count += 1;
      tally.sum += taken;
      for (let i = 0; i < BUCKETS.length; i++) {
        if (taken <= BUCKETS[i]!) {
          tally.buckets[i]! += 1;
          return;
        }
      }
    },
  };
}
