/**
 * When attempts come in an open loop: computed before the load begins, from a seed, so that every strategy meets the
 * same arrivals. A schedule is the intended start of each attempt in µs since the load began, in order; the list of
 * attempts (attempts.ts) names the customer of each.
 *
 * Customers know nothing of each other, so arrivals are a Poisson process. A sequence with rate 1 is drawn first (gaps
 * are exponential with mean 1), then stretched to the rate that is wanted: the same seed gives the same crowd, denser
 * or less dense.
 */
import { type Random, seededRandom } from '../kit/random.ts';

interface Constant {
  /** Mean arrivals a second, more than 0. */
  readonly ratePerSecond: number;
  readonly durationMs: number;
  readonly seed: number;
}

interface Ramp {
  /** Arrivals a second at the beginning; may be 0. */
  readonly fromPerSecond: number;
  /** Arrivals a second at the end of the ramp, and as long as it holds; more than 0. */
  readonly toPerSecond: number;
  /** How long the rate takes from the one to the other, on a straight line; may be 0. */
  readonly rampMs: number;
  /** How long it then stays; may be 0. */
  readonly holdMs: number;
  readonly seed: number;
}

const usPerSecond = 1_000_000;

/** Arrivals at a constant mean rate. Throws a RangeError when a number makes no sense. */
export function poisson({ ratePerSecond, durationMs, seed }: Constant): Float64Array {
  return ramp({
    fromPerSecond: ratePerSecond,
    toPerSecond: ratePerSecond,
    rampMs: 0,
    holdMs: durationMs,
    seed,
  });
}

/** Arrivals whose mean rate grows (or falls) in a straight line, then holds. Throws a RangeError like `poisson`. */
export function ramp({ fromPerSecond, toPerSecond, rampMs, holdMs, seed }: Ramp): Float64Array {
  for (const [name, value] of Object.entries({ fromPerSecond, toPerSecond, rampMs, holdMs })) {
    if (!Number.isFinite(value) || value < 0) throw new RangeError(`schedule: ${name} is ${value}`);
  }
  if (toPerSecond === 0) throw new RangeError('schedule: toPerSecond is 0');
  const from = fromPerSecond / usPerSecond;
  const to = toPerSecond / usPerSecond;
  const rampUs = rampMs * 1_000;
  const endUs = rampUs + holdMs * 1_000;
  const slope = rampUs === 0 ? 0 : (to - from) / rampUs;
  const inRamp = ((from + to) / 2) * rampUs;

  const starts: number[] = [];
  const random = seededRandom(seed);
  for (let arrivals = gap(random); ; arrivals += gap(random)) {
    // The moment until which so many arrivals are expected; in the ramp, the root of ∫ rate = arrivals.
    const startUs =
      arrivals < inRamp
        ? (2 * arrivals) / (from + Math.sqrt(from * from + 2 * slope * arrivals))
        : rampUs + (arrivals - inRamp) / to;
    if (startUs >= endUs) return Float64Array.from(starts);
    starts.push(startUs);
  }
}

/** Exponential with mean 1. Half a step of `random` keeps the logarithm from 0 and from 1: it is finite, and more than 0. */
function gap(random: Random): number {
  return -Math.log(random() + 2 ** -33);
}
