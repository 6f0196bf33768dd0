/**
 * Conclusions from a few noisy rounds. Pure and deterministic: resampling is seeded.
 *
 * On a shared machine, one minute can run at half the speed of the next. Two strategies are therefore compared within a
 * round, as a quotient, and only the quotients of several rounds are combined:
 *
 *   rounds ─▶ quotients ─▶ median, and a 95 % interval by the percentile bootstrap
 *                             ├─ the interval spans 1 ──────────────────────▶ tie
 *                             ├─ the median is within the noise of a control ─▶ tie
 *                             └─ otherwise ─────────────────────────────────▶ faster or slower
 *
 * The percentile bootstrap is Efron's (B. Efron, R. Tibshirani: An Introduction to the Bootstrap, 1993, chapter 13). With
 * up to five rounds, its interval is their range, which covers the true median in 1 − 2^(1 − rounds) of all runs: 94 % with
 * five rounds, 75 % with three. The A/A control (one strategy measured twice in each round) compensates: it shows how far
 * apart identical rows of this run are, and the mean of the two, the divisor of the others, is less noisy (`meanOf`).
 */
import { seededRandom } from '../../lab/kit/random.ts';

/** A value with the 95 % interval of what repeating the run would give. */
export interface Interval {
  readonly median: number;
  readonly low: number;
  readonly high: number;
  /** Rounds behind it. */
  readonly rounds: number;
}

const resamples = 2_000;
const confidence = 0.95;

/** The middle value; of an even number of values, the mean of the middle two; NaN without values. */
export function median(values: readonly number[]): number {
  return middle(Float64Array.from(values).sort());
}

function middle(sorted: Float64Array): number {
  const half = sorted.length >> 1;
  const at = (index: number): number => sorted[index] ?? Number.NaN;
  return sorted.length % 2 === 1 ? at(half) : (at(half - 1) + at(half)) / 2;
}

/** The median with its percentile-bootstrap interval. Null without values. A single value is also its low and high. */
export function interval(values: readonly number[]): Interval | null {
  if (values.length === 0) return null;
  return { median: median(values), ...bootstrap(resampledMedians(values, 1)), rounds: values.length };
}

/**
 * The median of one run's values ÷ that of another's. Values are not paired: each run is resampled on its own. Null if one
 * has no values, or the divisor is 0.
 */
export function quotientOfMedians(over: readonly number[], under: readonly number[]): Interval | null {
  const divisor = median(under);
  if (over.length === 0 || under.length === 0 || divisor === 0) return null;
  const [drawOver, drawUnder] = [resampledMedians(over, 1), resampledMedians(under, 2)];
  return {
    median: median(over) / divisor,
    ...bootstrap(() => drawOver() / drawUnder()),
    rounds: Math.min(over.length, under.length),
  };
}

/** Draws medians of samples that are taken from the values with replacement; the values' order does not matter. */
function resampledMedians(values: readonly number[], seed: number): () => number {
  const random = seededRandom(seed);
  const sorted = Float64Array.from(values).sort();
  const sample = new Float64Array(sorted.length);
  return () => {
    for (let n = 0; n < sample.length; n++) {
      sample[n] = sorted[Math.floor(random() * sorted.length)] ?? Number.NaN;
    }
    return middle(sample.sort());
  };
}

function bootstrap(draw: () => number): { readonly low: number; readonly high: number } {
  const drawn = Float64Array.from({ length: resamples }, draw).sort();
  const at = (share: number): number => drawn[Math.round(share * (resamples - 1))] ?? Number.NaN;
  const tail = (1 - confidence) / 2;
  return { low: at(tail), high: at(1 - tail) };
}

/** A value by round. */
export type Rates = ReadonlyMap<number, number>;

/** `over` ÷ `under`, round by round; rounds that only one of them has, or whose divisor is 0, are left out. */
export function quotients(over: Rates, under: Rates): number[] {
  return [...over].flatMap(([round, value]) => {
    const divisor = under.get(round);
    return divisor === undefined || divisor === 0 ? [] : [value / divisor];
  });
}

/** How far from 1 the quotients of two identical rows typically are: the median of their distances; 0 if none. */
export function noiseFloor(controlQuotients: readonly number[]): number {
  const distances = controlQuotients.map((quotient) => Math.abs(quotient - 1));
  return distances.length === 0 ? 0 : median(distances);
}

export type Comparison = 'faster' | 'slower' | 'tie';

/** The divisor of other rows: in each round the mean of the two, or the one that was measured. */
export function meanOf(baseline: Rates, control: Rates): Rates {
  const both = [...baseline].map(
    ([round, value]) => [round, (value + (control.get(round) ?? value)) / 2] as const,
  );
  return new Map([...control, ...both]);
}

/**
 * Classifies an interval of quotients. A single round is always a tie.
 *
 * In simulated runs with 3 % noise in each trial and five rounds (test/bench/statistics.test.ts makes them), 97 % of those with
 * identical strategies are a tie, and 97 % of those with 10 % between them are not.
 * @param noise of `noiseFloor`; 0: there is no control, and the interval alone decides
 */
export function compare(quotient: Interval | null, noise: number): Comparison {
  if (quotient === null || quotient.rounds < 2) return 'tie';
  const spansOne = quotient.low <= 1 && quotient.high >= 1;
  if (spansOne || Math.abs(quotient.median - 1) <= noise) return 'tie';
  return quotient.median > 1 ? 'faster' : 'slower';
}
