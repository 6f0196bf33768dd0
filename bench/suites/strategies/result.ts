/** The numbers of one load of a trial, computed from its history. Pure. */
import type { AuditReport } from '../../../lab/audit/audit.ts';
import type { RoundTrips } from '../../../lab/far-stores.ts';
import type { AttemptOutcome, HistoryRecord } from '../../../lab/history.ts';
import { type Percentiles, percentileMs, percentilesMs } from '../../kit/percentile.ts';
import type { Point, TrialBase } from '../../kit/suite.ts';
import type { PostLoadCounts } from '../../load/post-load.ts';
import type { Reference } from '../../reference/pgbench.ts';

/** `closed`: capacity. `open`: selling out. `k6`: the two scripts. */
export type LoadKind = 'closed' | 'open' | 'k6';

export interface StrategyPoint extends Point {
  /** Round-trip time between service and stores that a proxy adds, ms; 0: no proxy. */
  readonly rttMs: number;
  /** Clients of the closed loop. */
  readonly connections: number;
  /** Sales that are attempted at the same time. */
  readonly sales: number;
}

/** The cost of attempts during the load; null: it could not be read. */
export interface Cost {
  /** CPU seconds for 10,000 answered attempts. */
  readonly cpu: {
    readonly service: number | null;
    readonly redis: number | null;
    readonly postgres: number | null;
  };
  /** Commands that Redis executed for each attempt, those inside scripts included. */
  readonly redisCommands: number | null;
  /** Share of one processor that the service used. */
  readonly serviceUtilization: number | null;
}

/** The figures of a history. Every attempt that was sent is counted in exactly one outcome. */
type LoadNumbers = Readonly<ReturnType<typeof loadNumbers>>;

/** One load of one trial. */
export interface StrategyResult extends TrialBase, LoadNumbers {
  readonly point: StrategyPoint;
  readonly strategy: string;
  readonly lock: string | null;
  /** Declared unsafe: the audit is expected to fail. */
  readonly unsafe: boolean;
  readonly load: LoadKind;
  /** The arrivals of an open loop, in which latency counts from the intended start; null: a closed loop. */
  readonly rush: {
    readonly perSecond: number;
    readonly scheduled: number;
    /** Never sent: too many were outstanding, or no connection was available. */
    readonly dropped: number;
    /** From the intended start until the request was handed to its socket; null: the generator does not report it. */
    readonly lagMs: Percentiles | null;
  } | null;
  readonly cost: Cost | null;
  /** Measured in the first round. */
  readonly roundTrips: RoundTrips | null;
  /** pgbench with the strategy's statements, for strategies that decide in Postgres. */
  readonly reference: Reference | null;
  /** CPU seconds of the generator, and of service, Redis and Postgres; null: not known. */
  readonly generator: { readonly cpuS: number | null; readonly systemCpuS: number | null };
  /** After the load: orders paid, cancelled, and paid after they were cancelled. */
  readonly postLoad: PostLoadCounts;
  readonly audit: AuditReport;
  /** The history's file name, in the folder of the results. */
  readonly history: string;
  /** The service process ended by itself. */
  readonly serviceDied: boolean;
}

const curvePercents = [0, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 100];
const timelinePoints = 40;

interface LoadFacts {
  /** Units on offer, all sales together. */
  readonly stock: number;
  /** Orders reached the stock. */
  readonly soldOut: boolean;
  /** The intended start of each attempt by its id, µs since the load began; null: when the request was sent. */
  readonly schedule: Float64Array | null;
  /** Answers whose attempt the generator cannot name: they are unknown in the history, and busy here. */
  readonly refused?: number;
}

export function loadNumbers(history: readonly HistoryRecord[], facts: LoadFacts) {
  const { stock, soldOut, schedule, refused = 0 } = facts;
  const count = (wanted: AttemptOutcome): number =>
    history.filter(({ outcome }) => outcome === wanted).length;
  const answered = history.filter(({ completedUs }) => completedUs !== null);
  const accepted = answered.filter(({ outcome }) => outcome === 'accepted');
  const completed = (records: readonly HistoryRecord[]) => sorted(records.map((one) => one.completedUs ?? 0));
  const latencies = (records: readonly HistoryRecord[]) =>
    sorted(records.map((one) => (one.completedUs ?? 0) - startUs(one, schedule)));
  const acceptedAtUs = completed(accepted);
  const acceptedUs = latencies(accepted);
  const firstInvokedUs = history.reduce((first, one) => Math.min(first, one.invokedUs), Infinity);
  const sellingUs = (acceptedAtUs.at(-1) ?? 0) - firstInvokedUs;
  const isSold = accepted.length > 0;
  const answeredUs = (completed(answered).at(-1) ?? 0) - firstInvokedUs;
  const curve = isSold
    ? curvePercents.map((percent) => [percent, percentileMs(acceptedUs, percent)] as const)
    : [];
  return {
    attempts: history.length,
    accepted: count('accepted'),
    replayed: count('replayed'),
    /** Or fewer units were left than asked for. */
    soldOut: count('sold-out') + count('not-enough-units'),
    notOpen: count('not-open'),
    busy: count('busy') + refused,
    /** No answer was seen, or the service answered that the outcome is unknown. */
    unknown: Math.max(0, count('unknown') - refused),
    /** Answers outside the contract. */
    unexpected: count('unexpected'),
    /** From the first invocation to the completion of the last accepted attempt. */
    acceptedPerSecond: perSecond(accepted.length, sellingUs),
    /** Answered attempts, from the first invocation to the last completion. */
    attemptsPerSecond: perSecond(answered.length + refused, answeredUs),
    latencyMs: latency(latencies(answered)),
    /** Null: orders did not reach the stock. */
    timeToSellOutMs: soldOut && isSold ? sellingUs / 1_000 : null,
    acceptedLatencyMs: latency(acceptedUs),
    refusedLatencyMs: latency(latencies(answered.filter(({ outcome }) => outcome === 'sold-out'))),
    /** Latency of accepted attempts: ms by percent, ascending. */
    latencyCurve: curve,
    firstComeShare: firstComeShare(history, facts),
    /** Units by ms after the first invocation. */
    remainingOverTime: remainingOverTime(accepted, firstInvokedUs, stock),
  };
}

const sorted = (values: readonly number[]): Float64Array => Float64Array.from(values).sort();

/** The intended start, or else the time of sending. */
const startUs = ({ id, invokedUs }: HistoryRecord, schedule: Float64Array | null): number =>
  schedule?.[id] ?? invokedUs;

/** Rounded to a tenth; 0 when nothing was counted. */
function perSecond(count: number, us: number): number {
  return count === 0 || us <= 0 ? 0 : Math.round((count / us) * 10_000_000) / 10;
}

const latency = (valuesUs: Float64Array): Percentiles | null =>
  valuesUs.length === 0 ? null : percentilesMs(valuesUs);

/** Share of the orders that went to the first customers to come, as many as the stock is for, 0 to 1; null: none was sold. */
function firstComeShare(history: readonly HistoryRecord[], { stock, schedule }: LoadFacts): number | null {
  const winners = new Set(history.flatMap(({ outcome, userId }) => (outcome === 'accepted' ? [userId] : [])));
  if (winners.size === 0) return null;
  const inOrder = [...history].sort((a, b) => startUs(a, schedule) - startUs(b, schedule));
  const wanted = new Map(inOrder.map(({ userId, units = 1 }) => [userId, units]));
  let left = stock;
  const first: string[] = [];
  for (const [user, units] of wanted) if (units <= left) left -= first.push(user) && units;
  return first.filter((user) => winners.has(user)).length / Math.min(winners.size, first.length);
}

/** Below zero where more were accepted than there were units. */
function remainingOverTime(
  accepted: readonly HistoryRecord[],
  originUs: number,
  stock: number,
): [number, number][] {
  const inOrder = [...accepted].sort((a, b) => a.completedUs! - b.completedUs!);
  const { length } = inOrder;
  const steps = Math.min(timelinePoints, length);
  let [next, remaining] = [0, stock];
  const points = Array.from({ length: steps }, (_, step): [number, number] => {
    const last = Math.round(((step + 1) * length) / steps);
    while (next < last) remaining -= inOrder[next++]!.units ?? 1;
    return [Math.round((inOrder[last - 1]!.completedUs! - originUs) / 100) / 10, remaining];
  });
  return [[0, stock], ...points];
}
