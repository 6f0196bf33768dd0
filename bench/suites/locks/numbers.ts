/** The numbers of one measurement, computed from what its processes wrote down. Pure. */
import { type Fairness, fairness } from './fairness.ts';
import type { Cycle, WorkerReport } from './protocol.ts';

/** In ms. Percentiles are exact: the smallest value that p % of all values do not exceed. */
export interface Times {
  readonly p50: number;
  readonly p99: number;
}

export interface Numbers {
  /** Grants that were counted. */
  readonly grants: number;
  readonly perSecond: number;
  /** From the moment a holder called release to the moment the next holder's acquire resolved; null: no two grants. */
  readonly handOffMs: Times | null;
  /** Of these, when the next holder was another waiter; null: it never was. */
  readonly toAnotherMs: Times | null;
  /** Share of hand-offs to another waiter; a waiter that reacquires at once is none. */
  readonly toAnother: number | null;
  /** From asking to being granted. */
  readonly waitMs: Times | null;
  /** The longest of them, waiters without a grant at the end included. */
  readonly longestWaitMs: number;
  readonly fairness: Fairness | null;
  /** Grants at a moment at which an earlier holder had not called release yet. */
  readonly overlaps: number;
  /** Sent by clients, for each grant; null: not counted, or nothing was granted. */
  readonly requestsPerGrant: number | null;
  /** Carried out by the servers, with those that scripts called, for each grant; null as above. */
  readonly commandsPerGrant: number | null;
  /** Acquisitions that failed before time was up, by reason. */
  readonly refusals: Readonly<Record<string, number>>;
}

/** What servers counted between two moments; null: they do not count it. */
export interface ServerCount {
  readonly fromNs: number;
  readonly toNs: number;
  readonly commands: number | null;
  readonly requests: number | null;
}

export interface Span {
  readonly startNs: number;
  readonly endNs: number;
}

export function numbersOf(
  reports: readonly WorkerReport[],
  server: ServerCount,
  waiters: number,
  { startNs, endNs }: Span,
): Numbers {
  const cycles = reports.flatMap((report) => report.cycles).sort((a, b) => a.grantedNs - b.grantedNs);
  const waiting = reports.flatMap((report) => report.waiting);
  const within = (cycle: Cycle): boolean => cycle.grantedNs >= startNs && cycle.grantedNs < endNs;
  const grants = cycles.filter(within).length;
  const handOffs = handOffsOf(cycles, within);
  const toAnother = handOffs.filter(({ another }) => another);
  const waitsNs = cycles.filter(within).map(({ askedNs, grantedNs }) => grantedNs - askedNs);
  const late = [...waiting, ...cycles.filter(({ grantedNs }) => grantedNs >= endNs)];
  const unfinishedNs = late.map(({ askedNs }) => endNs - askedNs);
  return {
    grants,
    perSecond: grants / ((endNs - startNs) / 1e9),
    handOffMs: times(handOffs.map(({ ns }) => ns)),
    toAnotherMs: times(toAnother.map(({ ns }) => ns)),
    toAnother: ratio(toAnother.length, handOffs.length),
    waitMs: times(waitsNs),
    longestWaitMs: [...waitsNs, ...unfinishedNs].reduce((most, ns) => Math.max(most, ns), 0) / 1e6,
    fairness: fairness(cycles, waiting, waiters, within),
    overlaps: overlaps(cycles),
    requestsPerGrant: requestsPerGrant(reports, cycles, server),
    commandsPerGrant: ratio(server.commands, grantsBetween(cycles, server.fromNs, server.toNs)),
    refusals: sumByName(reports.map((report) => report.refusals)),
  };
}

/**
 * Two holders at once. Grants are seen after the server made them and releases before it carries them out, so that a
 * correct lock has no overlap, and a wrong one may have more than are seen.
 * @param cycles in the order of their grants
 */
export function overlaps(cycles: readonly Cycle[]): number {
  let seen = 0;
  let lastReleasedNs = Number.NEGATIVE_INFINITY;
  for (const { grantedNs, releasedNs } of cycles) {
    if (grantedNs < lastReleasedNs) seen++;
    lastReleasedNs = Math.max(lastReleasedNs, releasedNs);
  }
  return seen;
}

interface HandOff {
  readonly ns: number;
  readonly another: boolean;
}

/** @param cycles in the order of their grants */
export function handOffsOf(cycles: readonly Cycle[], isMeasured: (cycle: Cycle) => boolean): HandOff[] {
  return cycles.flatMap((cycle, index) => {
    const before = cycles[index - 1];
    if (before === undefined || !isMeasured(cycle)) return [];
    const ns = cycle.grantedNs - before.releasedNs;
    return ns < 0 ? [] : [{ ns, another: before.waiter !== cycle.waiter }]; // an overlap is no hand-off
  });
}

/** The smallest value that `percent` % of all values do not exceed. */
export function percentile(sorted: ArrayLike<number>, percent: number): number {
  return sorted[Math.max(0, Math.ceil((percent / 100) * sorted.length) - 1)] ?? 0;
}

function times(ns: readonly number[]): Times | null {
  if (ns.length === 0) return null;
  const sorted = Float64Array.from(ns).sort();
  return { p50: percentile(sorted, 50) / 1e6, p99: percentile(sorted, 99) / 1e6 };
}

/** What clients counted; or what the server did, where only the server counts. */
function requestsPerGrant(
  reports: readonly WorkerReport[],
  cycles: readonly Cycle[],
  server: ServerCount,
): number | null {
  if (server.requests !== null) {
    return ratio(server.requests, grantsBetween(cycles, server.fromNs, server.toNs));
  }
  const sent = reports.reduce((sum, report) => sum + report.sent.requests, 0);
  const grants = reports.reduce((sum, { cycles, sent: { fromNs, toNs } }) => {
    return sum + grantsBetween(cycles, fromNs, toNs);
  }, 0);
  return ratio(sent, grants);
}

function grantsBetween(cycles: readonly Cycle[], fromNs: number, toNs: number): number {
  return cycles.filter(({ grantedNs }) => grantedNs >= fromNs && grantedNs < toNs).length;
}

function ratio(value: number | null, by: number): number | null {
  return value === null || by === 0 ? null : value / by;
}

function sumByName(counts: readonly Readonly<Record<string, number>>[]): Record<string, number> {
  const sums: Record<string, number> = {};
  for (const [name, count] of counts.flatMap((each) => Object.entries(each))) {
    sums[name] = (sums[name] ?? 0) + count;
  }
  return sums;
}
