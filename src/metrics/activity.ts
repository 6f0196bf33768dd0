/** Rates, latencies and queues of a service between two readings of its metrics, for the console. */
import type { Degradation } from './loop-health.ts';

/** Values by name and labels, as in the text that Prometheus reads. */
export type Reading = ReadonlyMap<string, number>;

export function readMetrics(text: string): Reading {
  const reading = new Map<string, number>();
  for (const line of text.split('\n')) {
    const space = line.lastIndexOf(' ');
    if (space > 0 && line[0] !== '#') reading.set(line.slice(0, space), Number(line.slice(space + 1)));
  }
  return reading;
}

/** Sums all series of a metric whose labels contain `label`. */
function sum(reading: Reading, name: string, label = ''): number {
  let total = 0;
  for (const [key, value] of reading)
    if ((key === name || key.startsWith(`${name}{`)) && key.includes(label)) total += value;
  return total;
}

export interface Activity {
  /** Attempts a second, by outcome. */
  readonly perSecond: {
    readonly accepted: number;
    readonly replayed: number;
    /** Sold out, too few units, over the limit of a customer, not open, or unknown sale. */
    readonly refused: number;
    readonly busy: number;
    readonly unknown: number;
  };
  /** Response times of all attempts between the readings, milliseconds; null: there were none. */
  readonly p50Ms: number | null;
  readonly p99Ms: number | null;
  /** Attempts per decision, and orders per commit, on average; null: there were none. */
  readonly attemptBatch: number | null;
  readonly commitBatch: number | null;
  readonly queued: number;
  readonly inFlight: number;
  readonly limit: number;
  readonly commitQueue: number;
  /** Since the start: units by which Redis was repaired, and reservations that the reaper resolved. */
  readonly driftUnits: number;
  readonly reaped: number;
  /** Tasks that are not done, by state. */
  readonly tasks: Readonly<Record<string, number>>;
  /** Share of one core. */
  readonly cpu: number;
  readonly memoryBytes: number;
}

/** What the console is sent. */
export interface ConsoleEvent extends Activity {
  readonly stores: Readonly<Record<string, string>>;
  readonly degraded: readonly Degradation[];
}

const REFUSALS = ['sold-out', 'not-enough-units', 'over-limit', 'not-open', 'unknown-sale'] as const;

/** @param seconds between the two readings */
export function activityBetween(before: Reading, after: Reading, seconds: number): Activity {
  const gained = (name: string, label?: string) =>
    Math.max(0, sum(after, name, label) - sum(before, name, label));
  const rate = (outcome: string) => gained('stampede_attempts_total', `outcome="${outcome}"`) / seconds;
  const mean = (name: string) => {
    const n = gained(`${name}_count`);
    return n === 0 ? null : gained(`${name}_sum`) / n;
  };
  const at = (name: string) => sum(after, name);
  return {
    perSecond: {
      accepted: rate('accepted'),
      replayed: rate('replayed'),
      refused: REFUSALS.reduce((sum, outcome) => sum + rate(outcome), 0),
      busy: rate('busy'),
      unknown: rate('unknown'),
    },
    p50Ms: quantile(before, after, 0.5),
    p99Ms: quantile(before, after, 0.99),
    attemptBatch: mean('stampede_attempt_batch_size'),
    commitBatch: mean('stampede_commit_batch_orders'),
    queued: at('stampede_admission_queued'),
    inFlight: at('stampede_admission_in_flight'),
    limit: at('stampede_admission_limit'),
    commitQueue: at('stampede_commit_queue_orders'),
    driftUnits: at('stampede_redis_drift_units_total'),
    reaped: at('stampede_reservations_reaped_total'),
    tasks: Object.fromEntries(
      [...after].flatMap(([key, value]) => {
        const state = /^stampede_tasks\{state="([^"]+)"/.exec(key)?.[1];
        return state === undefined ? [] : [[state, value]];
      }),
    ),
    cpu: gained('process_cpu_seconds_total') / seconds,
    memoryBytes: at('process_resident_memory_bytes'),
  };
}

/** From the buckets of the histogram, linear within a bucket, as in Prometheus. */
function quantile(before: Reading, after: Reading, q: number): number | null {
  const counts = new Map<number, number>();
  for (const [key, value] of after) {
    const le = /^stampede_attempt_duration_seconds_bucket\{.*le="([^"]+)"/.exec(key)?.[1];
    if (le === undefined) continue;
    const bound = le === '+Inf' ? Number.POSITIVE_INFINITY : Number(le);
    counts.set(bound, (counts.get(bound) ?? 0) + value - (before.get(key) ?? 0));
  }
  const buckets = [...counts].sort(([a], [b]) => a - b);
  const total = buckets.at(-1)?.[1] ?? 0;
  if (total <= 0) return null;
  let [lower, below] = [0, 0];
  for (const [bound, cumulative] of buckets) {
    if (cumulative >= q * total) {
      if (bound === Number.POSITIVE_INFINITY) return lower * 1_000;
      return (lower + ((bound - lower) * (q * total - below)) / Math.max(1, cumulative - below)) * 1_000;
    }
    [lower, below] = [bound, cumulative];
  }
  return null;
}
