/** How well an open loop kept its schedule, and whether its figures may be believed. Pure. */

/** A moment that has not come. */
export const never = -1;

/** In ms; all 0 when there is nothing. Exact: the smallest value that p % of all values do not exceed. */
export interface Percentiles {
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
}

/** How well the schedule was kept. */
export interface Sending {
  readonly scheduled: number;
  readonly sent: number;
  /** Never sent: too many were outstanding, or no connection was free for a whole timeout. */
  readonly dropped: number;
  /** Never sent: the connection could not be opened. */
  readonly unconnected: number;
  /** The load was ended before their time. */
  readonly notBegun: number;
  /** From the intended start until the request was handed to its socket. */
  readonly lagMs: Percentiles;
  /** The same without waiting for a connection: what the generator itself was late. */
  readonly ownLagMs: Percentiles;
  /** Share of the schedule's time in which the generator's event loop was busy, 0 to 1. */
  readonly utilization: number;
}

/** Beyond these the schedule counts as not kept. */
const bounds = { utilization: 0.95, lagMs: 50, unsentShare: 0.01 };

/** How much later than `schedule` the moments are, without those that never came. */
export function lagOf(momentsUs: Float64Array, schedule: Float64Array): Percentiles {
  const lags = momentsUs.map((us, n) => (us === never ? never : us - (schedule[n] ?? 0))).sort();
  const from = lags.findIndex((us) => us !== never);
  return percentiles(from === -1 ? new Float64Array() : lags.subarray(from));
}

/** Of times in µs, ascending. */
export function percentiles(sortedUs: Float64Array): Percentiles {
  const percentileMs = (percent: number): number =>
    Math.round(sortedUs[Math.max(0, Math.ceil((percent / 100) * sortedUs.length) - 1)] ?? 0) / 1_000;
  return { p50: percentileMs(50), p99: percentileMs(99), max: percentileMs(100) };
}

/**
 * Why the schedule counts as not kept; empty: it was.
 * @param mayWait the server may be slower than attempts come: waiting for a connection, and drops, are its doing
 */
export function whyInvalid(
  sending: Sending,
  {
    connections,
    maxOutstanding,
    mayWait = false,
  }: { readonly connections: number; readonly maxOutstanding: number; readonly mayWait?: boolean },
): string[] {
  const { scheduled, dropped, unconnected, lagMs, ownLagMs, utilization } = sending;
  const percent = (share: number): string => `${(share * 100).toFixed(1)} %`;
  const most = percent(bounds.unsentShare);
  const reasons: string[] = [];
  if (utilization > bounds.utilization) {
    const limit = percent(bounds.utilization);
    reasons.push(`the generator was busy ${percent(utilization)} of the time, at most ${limit} may be`);
  }
  const judged = mayWait ? ownLagMs : lagMs;
  if (judged.p99 > bounds.lagMs) {
    const why =
      ownLagMs.p99 > bounds.lagMs
        ? 'the generator was late'
        : `they waited for one of ${connections} connections`;
    const late = `1 of 100 attempts was sent ${Math.round(judged.p99)} ms late or more`;
    reasons.push(`${late}, at most ${bounds.lagMs} ms may be: ${why}`);
  }
  if (!mayWait && dropped > scheduled * bounds.unsentShare) {
    const share = percent(dropped / scheduled);
    reasons.push(
      `${share} of the attempts were dropped, at most ${most} may be: ${maxOutstanding} were outstanding`,
    );
  }
  if (unconnected > scheduled * bounds.unsentShare) {
    const share = percent(unconnected / scheduled);
    reasons.push(`${share} of the attempts found no connection, at most ${most} may`);
  }
  return reasons;
}
