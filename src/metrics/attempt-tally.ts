/**
 * Attempts and their durations by outcome. The hot path only adds to plain numbers; each scrape converts them to Prometheus's
 * form. (A prom-client histogram builds and hashes its labels at every observation, which costs more than a sold-out answer.)
 */
import { Counter, type Histogram, type Registry } from 'prom-client';
import type { Outcome } from '../domain/outcome.ts';

type Kind = Outcome['kind'];

/** Upper bounds of the buckets, in seconds. */
const BUCKETS = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5] as const;
const SECONDS = 'stampede_attempt_duration_seconds';

interface Tally {
  readonly buckets: Float64Array;
  count: number;
  sum: number;
}

export interface AttemptTally {
  /** Counts one attempt. @param ms time from the parsed request to the outcome, milliseconds */
  add(kind: Kind, ms: number): void;
}

/** Registers `stampede_attempts_total` and `stampede_attempt_duration_seconds`. */
export function attemptTally(registry: Registry, strategy: string): AttemptTally {
  const tallies = new Map<Kind, Tally>();

  new Counter({
    name: 'stampede_attempts_total',
    help: 'Purchase attempts by strategy and outcome',
    labelNames: ['strategy', 'outcome'],
    registers: [registry],
    collect() {
      this.reset();
      // Alerts need a 0 before the first increment.
      for (const outcome of ['busy', 'unknown']) this.inc({ strategy, outcome }, 0);
      for (const [outcome, { count }] of tallies) this.inc({ strategy, outcome }, count);
    },
  });

  const sample = (outcome: Kind, name: string, value: number, le?: number | string) => ({
    labels: { strategy, outcome, ...(le === undefined ? {} : { le }) },
    metricName: `${SECONDS}${name}`,
    value,
  });
  const histogram = {
    name: SECONDS,
    help: 'Time from the parsed request to the outcome, by strategy and outcome',
    type: 'histogram',
    aggregator: 'sum',
    async get() {
      const values = [...tallies].flatMap(([outcome, { buckets, count, sum }]) => {
        let cumulative = 0;
        const bounded = BUCKETS.map((bound, i) => {
          cumulative += buckets[i]!;
          return sample(outcome, '_bucket', cumulative, bound);
        });
        const all = [sample(outcome, '_bucket', count, '+Inf'), sample(outcome, '_sum', sum)];
        return [...bounded, ...all, sample(outcome, '_count', count)];
      });
      return { name: SECONDS, help: this.help, type: this.type, aggregator: this.aggregator, values };
    },
  };
  // The registry only uses `name` and `get()`.
  registry.registerMetric(histogram as unknown as Histogram);

  return {
    add(kind, ms) {
      let tally = tallies.get(kind);
      if (tally === undefined) {
        tally = { buckets: new Float64Array(BUCKETS.length), count: 0, sum: 0 };
        tallies.set(kind, tally);
      }
      const seconds = ms / 1000;
      tally.count += 1;
      tally.sum += seconds;
      for (let i = 0; i < BUCKETS.length; i++) {
        if (seconds <= BUCKETS[i]!) {
          tally.buckets[i]! += 1;
          return;
        }
      }
    },
  };
}
