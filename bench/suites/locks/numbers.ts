/** The numbers of one measurement, computed from the reports of its processes. Pure. */
import type { ContentionReport, Cycle, Span, Waiting } from '../../../lab/clients/protocol.ts';
import { overlapsOf } from '../../../lab/overlaps.ts';
import { percentile } from '../../kit/percentile.ts';

/** The figures of one measurement; those per grant are null when they were not counted. */
export type Numbers = Readonly<ReturnType<typeof numbersOf>>;

/** How evenly, and in which order, waiters were served. */
export interface Fairness {
  /**
   * Kendall's tau of each grant and all other waiters: a pair agrees when the granted one had asked first.
   * 1: first come, first served; 0: a draw; -1: last come, first served. 1 when no other waiter was ever there.
   */
  readonly order: number;
  /** Jain's index of grants per waiter: 1 when all got as many, 1/n when one of n got everything. */
  readonly jain: number;
}

/** Counts of the servers between two moments; null: they do not count it. */
export interface ServerCount {
  readonly fromNs: number;
  readonly toNs: number;
  readonly commands: number | null;
  readonly requests: number | null;
}

export function numbersOf(
  reports: readonly ContentionReport[],
  server: ServerCount,
  waiters: number,
  { startNs, endNs }: Span,
) {
  const cycles = reports.flatMap((report) => report.cycles).sort((a, b) => a.grantedNs - b.grantedNs);
  const waiting = reports.flatMap((report) => report.waiting);
  const within = ({ grantedNs }: Cycle): boolean => grantedNs >= startNs && grantedNs < endNs;
  const granted = cycles.filter(within);
  const handOffs = handOffsOf(cycles, within);
  const waitsNs = granted.map(({ askedNs, grantedNs }) => grantedNs - askedNs);
  const unfinished = [...waiting, ...cycles.filter(({ grantedNs }) => grantedNs >= endNs)];
  const allNs = [...waitsNs, ...unfinished.map(({ askedNs }) => endNs - askedNs)];
  const onServer = grantsIn(cycles, server);
  const sent = reports.reduce((sum, report) => sum + report.sent.requests, 0);
  const onClients = reports.reduce((sum, report) => sum + grantsIn(report.cycles, report.sent), 0);
  return {
    grants: granted.length,
    perSecond: granted.length / ((endNs - startNs) / 1e9),
    /** From the moment a holder called release to the moment the next holder's acquire resolved. */
    handOffMs: times(handOffs.map(({ ns }) => ns)),
    /** Share of hand-offs to another waiter; the rest are reacquisitions. */
    toAnother: ratio(handOffs.filter(({ another }) => another).length, handOffs.length),
    /** From asking to being granted. */
    waitMs: times(waitsNs),
    /** Includes waiters without a grant at the end. */
    longestWaitMs: allNs.reduce((most, ns) => Math.max(most, ns), 0) / 1e6,
    fairness: fairness(cycles, waiting, waiters, within),
    overlaps: overlaps(cycles),
    /** The server's count, or else the requests that clients sent. */
    requestsPerGrant: server.requests === null ? ratio(sent, onClients) : ratio(server.requests, onServer),
    /** Executed by the servers, including those in scripts. */
    commandsPerGrant: ratio(server.commands, onServer),
    /** Acquisitions that failed before time was up, by reason. */
    refusals: sumByName(reports.map((report) => report.refusals)),
  };
}

/**
 * Grants while an earlier holder had not released. A grant is seen after the server makes it, a release before the server
 * carries it out: a correct lock has no overlap, and a wrong one may have more than are seen.
 */
export function overlaps(cycles: readonly Cycle[]): number {
  const spans = cycles.map(({ grantedNs, releasedNs }) => ({ from: grantedNs, to: releasedNs }));
  const seen = new Set<object>();
  for (const { other } of overlapsOf(spans)) seen.add(other);
  return seen.size;
}

/** @param cycles in the order of their grants; an overlap is not a hand-off */
export function handOffsOf(
  cycles: readonly Cycle[],
  isMeasured: (cycle: Cycle) => boolean,
): { readonly ns: number; readonly another: boolean }[] {
  return cycles.flatMap((cycle, index) => {
    const before = cycles[index - 1];
    if (before === undefined || !isMeasured(cycle)) return [];
    const ns = cycle.grantedNs - before.releasedNs;
    return ns < 0 ? [] : [{ ns, another: before.waiter !== cycle.waiter }];
  });
}

/** (Σx)² ÷ (n Σx²) */
export function jainIndex(counts: readonly number[]): number {
  const sum = counts.reduce((total, count) => total + count, 0);
  const squares = counts.reduce((total, count) => total + count * count, 0);
  return squares === 0 ? 1 : (sum * sum) / (counts.length * squares);
}

/**
 * @param cycles in the order of their grants, all of the run
 * @param isMeasured which of them count
 * @returns null when none counts
 */
export function fairness(
  cycles: readonly Cycle[],
  waiting: readonly Waiting[],
  waiters: number,
  isMeasured: (cycle: Cycle) => boolean,
): Fairness | null {
  /** When each waiter asked, and how many of its requests were granted; a request without a grant comes last. */
  const requests = new Map<number, { readonly askedNs: number[]; granted: number }>();
  for (const { waiter, askedNs } of [...cycles, ...waiting]) {
    const request = requests.get(waiter) ?? { askedNs: [], granted: 0 };
    request.askedNs.push(askedNs);
    requests.set(waiter, request);
  }
  const counts = Array<number>(waiters).fill(0);
  const pairs = { agree: 0, disagree: 0 };
  for (const cycle of cycles) {
    const own = requests.get(cycle.waiter)!;
    if (isMeasured(cycle)) {
      counts[cycle.waiter]! += 1;
      for (const { askedNs, granted } of requests.values()) {
        const asked = askedNs[granted];
        if (asked === undefined || asked > cycle.grantedNs) continue; // no request yet
        if (asked < cycle.askedNs) pairs.disagree++;
        else if (asked > cycle.askedNs) pairs.agree++;
      }
    }
    own.granted++;
  }
  if (counts.every((count) => count === 0)) return null;
  const compared = pairs.agree + pairs.disagree;
  return {
    order: compared === 0 ? 1 : (pairs.agree - pairs.disagree) / compared,
    jain: jainIndex(counts),
  };
}

/** In ms. Percentiles are exact: the smallest value that p % of all values do not exceed. Null: there is none. */
function times(ns: readonly number[]): { readonly p50: number; readonly p99: number } | null {
  if (ns.length === 0) return null;
  const sorted = Float64Array.from(ns).sort();
  return { p50: percentile(sorted, 50) / 1e6, p99: percentile(sorted, 99) / 1e6 };
}

const grantsIn = (cycles: readonly Cycle[], { fromNs, toNs }: { fromNs: number; toNs: number }): number =>
  cycles.filter(({ grantedNs }) => grantedNs >= fromNs && grantedNs < toNs).length;

const ratio = (value: number | null, by: number): number | null =>
  value === null || by === 0 ? null : value / by;

function sumByName(counts: readonly Readonly<Record<string, number>>[]): Record<string, number> {
  const sums: Record<string, number> = {};
  for (const [name, count] of counts.flatMap((each) => Object.entries(each))) {
    sums[name] = (sums[name] ?? 0) + count;
  }
  return sums;
}
