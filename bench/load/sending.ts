/** How well an open loop kept its schedule, and whether its figures say more about the service than about the generator. */

/** In ms; all 0 when there is nothing. Exact: the smallest value that p % of all values do not exceed. */
export interface Percentiles {
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
}

/** Every scheduled attempt is sent, dropped, unconnected or not begun. */
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
  /** From the intended start until the generator looked for a connection: its own part of the lag. */
  readonly ownLagMs: Percentiles;
  /** Share of the schedule's time in which the generator's event loop was busy, 0 to 1. */
  readonly utilization: number;
}

/** Beyond these the schedule counts as not kept. */
const bounds = { utilization: 0.95, lagMs: 50, unsentShare: 0.01 };

export function percentiles(valuesUs: ArrayLike<number>): Percentiles {
  const sorted = Float64Array.from(valuesUs).sort();
  const atMs = (percent: number): number =>
    Math.round(sorted[Math.max(0, Math.ceil((percent / 100) * sorted.length) - 1)] ?? 0) / 1_000;
  return { p50: atMs(50), p99: atMs(99), max: atMs(100) };
}

/**
 * Why the schedule counts as not kept; empty: it was kept.
 * @param mayWait the server may be slower than attempts come: waits for a connection, and drops, are its doing
 */
export function whyInvalid(
  { scheduled, dropped, unconnected, lagMs, ownLagMs, utilization }: Sending,
  load: { readonly connections: number; readonly maxOutstanding: number; readonly mayWait?: boolean },
): string[] {
  const { connections, maxOutstanding, mayWait = false } = load;
  const percent = (share: number): string => `${(share * 100).toFixed(1)} %`;
  const lateMs = (mayWait ? ownLagMs : lagMs).p99;
  const why = ownLagMs.p99 > bounds.lagMs ? 'the generator was late' : `${connections} connections were busy`;
  const [most, busiest] = [percent(bounds.unsentShare), percent(bounds.utilization)];
  const rules: readonly (readonly [holds: boolean, reason: string])[] = [
    [
      utilization <= bounds.utilization,
      `the generator was busy ${percent(utilization)} of the time, at most ${busiest} may be`,
    ],
    [
      lateMs <= bounds.lagMs,
      `1 of 100 attempts was sent ${Math.round(lateMs)} ms late or more, at most ${bounds.lagMs} ms may be: ${why}`,
    ],
    [
      mayWait || dropped <= scheduled * bounds.unsentShare,
      `${percent(dropped / scheduled)} of the attempts were dropped, at most ${most} may be: ${maxOutstanding} were outstanding`,
    ],
    [
      unconnected <= scheduled * bounds.unsentShare,
      `${percent(unconnected / scheduled)} of the attempts found no connection, at most ${most} may`,
    ],
  ];
  return rules.flatMap(([holds, reason]) => (holds ? [] : [reason]));
}
