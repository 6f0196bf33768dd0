/** The comparison: one row per contender from its measurements in all rounds. Pure. */
import { type Spread, spread } from '../summary.ts';
import { CONTROL } from './contenders.ts';
import { type Failure, type Measurement, type ShapeName, shapeNames } from './results.ts';

/** What all others are compared with, in the same round. */
export const REFERENCE = 'redis';

/** Over the rounds; null: there was no such number in any round. */
export interface ShapeSummary {
  readonly rounds: number;
  readonly perSecond: Spread;
  /** perSecond ÷ that of the reference in the same round and shape. */
  readonly ratio: Spread | null;
  readonly handOffP50Ms: Spread | null;
  readonly handOffP99Ms: Spread | null;
  readonly toAnother: Spread | null;
  readonly toAnotherP50Ms: Spread | null;
  readonly toAnotherP99Ms: Spread | null;
  readonly waitP50Ms: Spread | null;
  readonly waitP99Ms: Spread | null;
  readonly longestWaitMs: Spread | null;
  readonly requestsPerGrant: Spread | null;
  readonly commandsPerGrant: Spread | null;
  readonly order: Spread | null;
  readonly oldestFirst: Spread | null;
  readonly jain: Spread | null;
  readonly mostOverMean: Spread | null;
}

export interface SummaryRow {
  readonly contender: string;
  /** A shape that was measured in no round is null. */
  readonly shapes: Readonly<Record<ShapeName, ShapeSummary | null>>;
  /** Of all rounds and shapes. */
  readonly overlaps: number;
  readonly refusals: Readonly<Record<string, number>>;
}

/** The fastest in several processes first. */
export function summarize(measurements: readonly Measurement[]): SummaryRow[] {
  const names = [...new Set(measurements.map(({ contender }) => contender))];
  return names
    .map((name) => rowOf(name, measurements))
    .sort((a, b) => speed(b) - speed(a) || a.contender.localeCompare(b.contender));
}

const speed = ({ shapes }: SummaryRow): number => shapes.apart?.perSecond.median ?? -1;

function rowOf(contender: string, all: readonly Measurement[]): SummaryRow {
  const own = all.filter((measurement) => measurement.contender === contender);
  const shapes = Object.fromEntries(shapeNames.map((shape) => [shape, shapeOf(shape, own, all)]));
  const refusals: Record<string, number> = {};
  for (const [reason, count] of own.flatMap((measurement) => Object.entries(measurement.refusals))) {
    refusals[reason] = (refusals[reason] ?? 0) + count;
  }
  return {
    contender,
    shapes: shapes as Record<ShapeName, ShapeSummary | null>,
    overlaps: own.reduce((sum, { overlaps }) => sum + overlaps, 0),
    refusals,
  };
}

function shapeOf(
  shape: ShapeName,
  own: readonly Measurement[],
  all: readonly Measurement[],
): ShapeSummary | null {
  const rounds = own.filter((measurement) => measurement.shape === shape);
  if (rounds.length === 0) return null;
  const over = (read: (measurement: Measurement) => number | null | undefined): Spread | null => {
    const values = rounds.map(read).filter((value) => value !== null && value !== undefined);
    return values.length === 0 ? null : spread(values);
  };
  return {
    rounds: rounds.length,
    perSecond: spread(rounds.map(({ perSecond }) => perSecond)),
    ratio: over((measurement) => ratioOf(measurement, all)),
    handOffP50Ms: over(({ handOffMs }) => handOffMs?.p50),
    handOffP99Ms: over(({ handOffMs }) => handOffMs?.p99),
    toAnother: over(({ toAnother }) => toAnother),
    toAnotherP50Ms: over(({ toAnotherMs }) => toAnotherMs?.p50),
    toAnotherP99Ms: over(({ toAnotherMs }) => toAnotherMs?.p99),
    waitP50Ms: over(({ waitMs }) => waitMs?.p50),
    waitP99Ms: over(({ waitMs }) => waitMs?.p99),
    longestWaitMs: over(({ longestWaitMs }) => longestWaitMs),
    requestsPerGrant: over(({ requestsPerGrant }) => requestsPerGrant),
    commandsPerGrant: over(({ commandsPerGrant }) => commandsPerGrant),
    order: over(({ fairness }) => fairness?.order),
    oldestFirst: over(({ fairness }) => fairness?.oldestFirst),
    jain: over(({ fairness }) => fairness?.jain),
    mostOverMean: over(({ fairness }) => fairness?.mostOverMean),
  };
}

function ratioOf({ round, shape, perSecond }: Measurement, all: readonly Measurement[]): number | null {
  const reference = all.find((other) => {
    return other.contender === REFERENCE && other.round === round && other.shape === shape;
  });
  return reference === undefined || reference.perSecond === 0 ? null : perSecond / reference.perSecond;
}

/** Why a run is not a success; empty: what is installed was measured, and only the control let two holders in. */
export function shortcomings(rows: readonly SummaryRow[], failures: readonly Failure[]): string[] {
  if (rows.length === 0) return ['nothing could be measured'];
  const failed = failures.flatMap(({ contender, round, reason, missing }) =>
    missing ? [] : [`${contender}: the measurement of round ${round} failed: ${reason}`],
  );
  const wrong = rows.flatMap(({ contender, overlaps }) => {
    if (contender !== CONTROL) {
      return overlaps === 0 ? [] : [`${contender}: two holders at once, seen ${overlaps} times`];
    }
    return overlaps > 0 ? [] : [`${contender} locks nothing, but two holders at once were not seen`];
  });
  return [...failed, ...wrong];
}
