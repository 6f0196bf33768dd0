/**
 * The figures of an overload, computed from what clients were told, and their goals. Pure.
 *
 * An attempt belongs to the second in which it was due, whenever its answer came, and its latency counts from that
 * moment: whoever came in a bad second is seen in it. Admitted means accepted or replayed.
 */
import type { AttemptOutcome, HistoryRecord } from '../history.ts';
import type { OpenResult } from '../load/open.ts';
import { type Percentiles, percentiles } from '../load/sending.ts';

/** One second of the overload. */
export interface Second {
  /** Counted from 0. */
  readonly second: number;
  readonly due: number;
  readonly admitted: number;
  readonly busy: number;
  /** Sent, and neither admitted nor told `busy`. */
  readonly other: number;
  /** Dropped by the generator, or without a connection. */
  readonly unsent: number;
  /** How much later than due they were sent; null here and below: there were none. */
  readonly lagP99Ms: number | null;
  readonly admittedP99Ms: number | null;
  readonly busyP99Ms: number | null;
}

/** All of the overload. */
export interface Overload {
  /** Of those that were sent. */
  readonly outcomes: Readonly<Partial<Record<AttemptOutcome, number>>>;
  /** From the moment at which they were due; null: there were none. */
  readonly admittedMs: Percentiles | null;
  readonly busyMs: Percentiles | null;
  readonly seconds: readonly Second[];
}

/** The rate of new orders after the load. */
export interface Recovery {
  /** From the end of the load to the end of the first half second with 90 % of the capacity; null: there was none. */
  readonly fullSpeedAfterMs: number | null;
  /** Accepted in each 100 ms since the end of the load, as a rate a second. */
  readonly acceptedPerSecond: readonly number[];
}

export interface Goal {
  readonly what: string;
  /** What was found, in words. */
  readonly found: string;
  readonly goal: string;
  readonly reached: boolean;
}

const usPerSecond = 1_000_000;
/** The share of the capacity that counts as full speed. */
const fullSpeedShare = 0.9;
const windowUs = usPerSecond / 2;
const stepUs = 50_000;
const binUs = 100_000;

/** Accepted a second among the answers that came in [`fromMs`, `untilMs`) of a load. */
export function acceptedRate(history: readonly HistoryRecord[], fromMs: number, untilMs: number): number {
  const accepted = acceptedAtUs(history);
  const within = accepted.filter((us) => us >= fromMs * 1_000 && us < untilMs * 1_000).length;
  return within / ((untilMs - fromMs) / 1_000);
}

/** @param schedule when each attempt was due, µs */
export function overloadOf(history: readonly HistoryRecord[], schedule: Float64Array): Overload {
  const outcomes: Partial<Record<AttemptOutcome, number>> = {};
  const latencies = new Latencies();
  const bySecond = new Map<number, SecondCount>();
  const secondOf = (dueUs: number): SecondCount => {
    const second = Math.floor(dueUs / usPerSecond);
    const count = bySecond.get(second) ?? new SecondCount(second);
    bySecond.set(second, count);
    return count;
  };
  for (const dueUs of schedule) secondOf(dueUs).due += 1;
  for (const { id, outcome, invokedUs, completedUs } of history) {
    const dueUs = schedule[id] ?? 0;
    outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
    const second = secondOf(dueUs);
    second.lagsUs.push(invokedUs - dueUs);
    if (completedUs === null) continue;
    latencies.add(outcome, completedUs - dueUs);
    second.latencies.add(outcome, completedUs - dueUs);
  }
  const seconds = [...bySecond.values()].sort((a, b) => a.second - b.second).map((count) => count.figures());
  return {
    outcomes,
    admittedMs: percentilesOf(latencies.admittedUs),
    busyMs: percentilesOf(latencies.busyUs),
    seconds,
  };
}

class Latencies {
  readonly admittedUs: number[] = [];
  readonly busyUs: number[] = [];

  add(outcome: AttemptOutcome, us: number): void {
    if (outcome === 'accepted' || outcome === 'replayed') this.admittedUs.push(us);
    else if (outcome === 'busy') this.busyUs.push(us);
  }
}

class SecondCount {
  readonly second: number;
  readonly latencies = new Latencies();
  readonly lagsUs: number[] = [];
  due = 0;

  constructor(second: number) {
    this.second = second;
  }

  figures(): Second {
    const { admittedUs, busyUs } = this.latencies;
    const sent = this.lagsUs.length;
    return {
      second: this.second,
      due: this.due,
      admitted: admittedUs.length,
      busy: busyUs.length,
      other: sent - admittedUs.length - busyUs.length,
      unsent: this.due - sent,
      lagP99Ms: percentilesOf(this.lagsUs)?.p99 ?? null,
      admittedP99Ms: percentilesOf(admittedUs)?.p99 ?? null,
      busyP99Ms: percentilesOf(busyUs)?.p99 ?? null,
    };
  }
}

function percentilesOf(valuesUs: readonly number[]): Percentiles | null {
  return valuesUs.length === 0 ? null : percentiles(Float64Array.from(valuesUs).sort());
}

/** @param history of the load that began when the overload ended; `durationMs` is how long it went on */
export function recoveryOf(
  history: readonly HistoryRecord[],
  { durationMs, capacityPerSecond }: { readonly durationMs: number; readonly capacityPerSecond: number },
): Recovery {
  const accepted = acceptedAtUs(history).sort();
  const untilUs = durationMs * 1_000;
  const within = (fromUs: number, toUs: number): number =>
    lowerBound(accepted, toUs) - lowerBound(accepted, fromUs);
  const enough = fullSpeedShare * capacityPerSecond * (windowUs / usPerSecond);
  let fullSpeedAfterMs: number | null = null;
  for (let us = 0; us + windowUs <= untilUs && fullSpeedAfterMs === null; us += stepUs) {
    if (within(us, us + windowUs) >= enough) fullSpeedAfterMs = (us + windowUs) / 1_000;
  }
  const bins = Math.floor(untilUs / binUs);
  const acceptedPerSecond = Array.from(
    { length: bins },
    (_, bin) => within(bin * binUs, (bin + 1) * binUs) * (usPerSecond / binUs),
  );
  return { fullSpeedAfterMs, acceptedPerSecond };
}

function acceptedAtUs(history: readonly HistoryRecord[]): Float64Array {
  const accepted = history.filter(({ outcome }) => outcome === 'accepted');
  return Float64Array.from(accepted, ({ completedUs }) => completedUs ?? 0);
}

/** How many of these, ascending, are less than `limit`. */
function lowerBound(sorted: Float64Array, limit: number): number {
  let from = 0;
  let to = sorted.length;
  while (from < to) {
    const middle = (from + to) >> 1;
    if ((sorted[middle] ?? 0) < limit) from = middle + 1;
    else to = middle;
  }
  return from;
}

/** What the goals are judged by. */
export interface Evidence {
  readonly capacityPerSecond: number;
  /** How many times the capacity was asked for. */
  readonly times: number;
  /** Mean rate at which attempts were due. */
  readonly duePerSecond: number;
  readonly open: Pick<OpenResult, 'valid' | 'reasons'>;
  readonly overload: Overload;
  readonly recovery: Recovery;
  readonly serviceDied: boolean;
  readonly audit: { readonly verdict: 'pass' | 'fail' | 'unknown'; readonly findings: readonly string[] };
}

const goals = { admittedP99Ms: 250, busyP99Ms: 250, fullSpeedAfterMs: 2_000 };
/** A Poisson schedule is not exactly as long as its rate says. */
const timesTolerance = 0.05;

export function judge(evidence: Evidence): Goal[] {
  const { capacityPerSecond, times, duePerSecond, open, overload, recovery, serviceDied, audit } = evidence;
  const found = duePerSecond / capacityPerSecond;
  const { accepted = 0, replayed = 0, busy = 0, ...others } = overload.outcomes;
  const other = Object.values(others).reduce((sum, count) => sum + count, 0);
  const total = other + accepted + replayed + busy;
  const back = recovery.fullSpeedAfterMs;
  return [
    {
      what: 'load',
      found: `${found.toFixed(1)} × capacity${open.valid ? '' : `, not as scheduled: ${open.reasons.join('; ')}`}`,
      goal: `${times} ×`,
      reached: open.valid && found >= times * (1 - timesTolerance),
    },
    below('p99 of admitted attempts', overload.admittedMs, goals.admittedP99Ms, false),
    below('p99 of busy answers', overload.busyMs, goals.busyP99Ms, true),
    {
      what: 'neither admitted nor busy',
      found: `${other} of ${total}${other === 0 ? '' : ` (${JSON.stringify(others)})`}`,
      goal: '0',
      reached: other === 0,
    },
    { what: 'crash', found: serviceDied ? 'yes' : 'none', goal: 'none', reached: !serviceDied },
    {
      what: 'audit',
      found: [audit.verdict, ...audit.findings].join('; '),
      goal: 'pass',
      reached: audit.verdict === 'pass',
    },
    {
      what: 'full speed after the load',
      found: back === null ? 'not seen' : `after ${back} ms`,
      goal: `within ${goals.fullSpeedAfterMs} ms`,
      reached: back !== null && back <= goals.fullSpeedAfterMs,
    },
  ];
}

function below(what: string, times: Percentiles | null, goalMs: number, mayBeNone: boolean): Goal {
  return {
    what,
    found: times === null ? 'there was none' : `${times.p99.toFixed(1)} ms`,
    goal: `below ${goalMs} ms`,
    reached: times === null ? mayBeNone : times.p99 < goalMs,
  };
}
