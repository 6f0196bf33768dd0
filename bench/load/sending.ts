/** How well an open loop kept its schedule, and whether its figures say more about the service than about the generator. */
import type { Percentiles } from '../kit/percentile.ts';

/** Every scheduled attempt is sent, dropped, unconnected or not begun. */
export interface Sending {
  readonly scheduled: number;
  readonly sent: number;
  /** Never sent: too many were outstanding, or no connection was free for a whole timeout. */
  readonly dropped: number;
  /** Never sent: the connection could not be opened. */
  readonly unconnected: number;
  /** Not due before the load was ended. */
  readonly notBegun: number;
  /** From the intended start until the request was handed to its socket. */
  readonly lagMs: Percentiles;
  /** From the intended start until the generator looked for a connection: its own part of the lag. */
  readonly ownLagMs: Percentiles;
  /** Share of the schedule's time in which the generator's event loop was busy, 0 to 1. */
  readonly utilization: number;
}

/**
 * Why the schedule counts as not kept; empty: it was kept.
 * @param load `mayWait`: the server may be slower than the arrivals; it then causes waits for a connection, and drops
 */
export function whyInvalid(
  { scheduled, dropped, unconnected, lagMs, ownLagMs, utilization }: Sending,
  load: { readonly connections: number; readonly maxOutstanding: number; readonly mayWait?: boolean },
): string[] {
  const { connections, maxOutstanding, mayWait = false } = load;
  const percent = (share: number): string => `${(share * 100).toFixed(1)} %`;
  const [drops, misses] = [mayWait ? 0 : dropped / scheduled, unconnected / scheduled];
  const lateMs = (mayWait ? ownLagMs : lagMs).p99;
  const why = ownLagMs.p99 > 50 ? 'the generator was late' : `${connections} connections were busy`;
  const rules: readonly (readonly [found: number, most: number, reason: string])[] = [
    [utilization, 0.95, `the generator was busy ${percent(utilization)} of the time, at most 95 % may be`],
    [
      lateMs,
      50,
      `1 of 100 attempts was sent ${Math.round(lateMs)} ms late or more, at most 50 ms may be: ${why}`,
    ],
    [
      drops,
      0.01,
      `${percent(drops)} of the attempts were dropped, at most 1 % may be: ${maxOutstanding} were outstanding`,
    ],
    [misses, 0.01, `${percent(misses)} of the attempts found no connection, at most 1 % may`],
  ];
  return rules.flatMap(([found, most, reason]) => (found > most ? [reason] : []));
}
