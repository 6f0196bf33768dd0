/** What the statistics promise: known answers, and simulated runs whose truth is known. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type Comparison,
  compare,
  type Interval,
  interval,
  meanOf,
  median,
  noiseFloor,
  quotients,
} from '../../bench/kit/statistics.ts';
import { seededRandom } from '../../lab/kit/random.ts';

/** Log-normal numbers with median 1, by Box and Muller. */
function lognormal(count: number, deviation: number, seed: number): number[] {
  const random = seededRandom(seed);
  return Array.from({ length: count }, () => {
    const radius = Math.sqrt(-2 * Math.log(1 - random()));
    return Math.exp(deviation * radius * Math.cos(2 * Math.PI * random()));
  });
}

const values = fc.array(fc.double({ min: 0.001, max: 1e6, noNaN: true }), { minLength: 1, maxLength: 12 });

describe('the median', () => {
  it('is the middle value, or the mean of the middle two', () => {
    expect(median([3, 1, 2])).toBe(2);
    expect(median([4, 1, 2, 10])).toBe(3);
    expect(median([7])).toBe(7);
    expect(median([10, 9, 100])).toBe(10); // sorted as numbers, not as text
    expect(median([])).toBeNaN();
  });

  it('does not depend on the order, and scales with its values', () => {
    fc.assert(
      fc.property(values, fc.integer({ min: 1, max: 1_000 }), (some, factor) => {
        expect(median([...some].reverse())).toBe(median(some));
        expect(median(some.map((value) => value * factor))).toBeCloseTo(median(some) * factor, 6);
      }),
    );
  });
});

describe('the interval', () => {
  it('has no width without spread, or with one value', () => {
    expect(interval([5, 5, 5, 5, 5])).toEqual({ median: 5, low: 5, high: 5, rounds: 5 });
    expect(interval([5])).toEqual({ median: 5, low: 5, high: 5, rounds: 1 });
    expect(interval([])).toBeNull();
  });

  it('of three to five rounds is their range, as the percentile bootstrap has it', () => {
    expect(interval([1, 2, 4])).toEqual({ median: 2, low: 1, high: 4, rounds: 3 });
    expect(interval([1, 2, 3, 8])).toEqual({ median: 2.5, low: 1, high: 8, rounds: 4 });
    expect(interval([9, 7, 1, 8, 3])).toEqual({ median: 7, low: 1, high: 9, rounds: 5 });
  });

  it('contains the median, stays within the values, and scales with them', () => {
    fc.assert(
      fc.property(values, fc.integer({ min: 1, max: 1_000 }), (some, factor) => {
        const plain = interval(some) as Interval;
        expect(plain.low).toBeLessThanOrEqual(plain.median);
        expect(plain.high).toBeGreaterThanOrEqual(plain.median);
        expect(plain.low).toBeGreaterThanOrEqual(Math.min(...some));
        expect(plain.high).toBeLessThanOrEqual(Math.max(...some));
        const scaled = interval(some.map((value) => value * factor)) as Interval;
        for (const end of ['low', 'median', 'high'] as const) {
          expect(scaled[end]).toBeCloseTo(plain[end] * factor, 5);
        }
      }),
      { numRuns: 50 },
    );
  });
});

describe('rounds', () => {
  /** Values of rounds 1, 2, …; null: the round has none. */
  const byRound = (...all: readonly (number | null)[]): Map<number, number> =>
    new Map(all.flatMap((value, index) => (value === null ? [] : [[index + 1, value] as const])));

  it('are divided pair by pair; unpaired ones are left out', () => {
    expect(quotients(byRound(10, 30, 50, null, 7), byRound(5, 10, 0, 1))).toEqual([2, 3]);
  });

  it('have the mean of baseline and control, or the one that exists', () => {
    const baseline = byRound(10, 20);
    expect(meanOf(baseline, byRound(20, null, 5))).toEqual(byRound(15, 20, 5));
    expect(meanOf(baseline, new Map())).toEqual(baseline);
  });

  it('of a control show how far apart identical rows are', () => {
    expect(noiseFloor([1.02, 0.9, 1.04])).toBeCloseTo(0.04, 12);
    expect(noiseFloor([])).toBe(0);
  });
});

describe('a comparison', () => {
  const of = (median: number, low: number, high: number, rounds = 5): Interval => {
    return { median, low, high, rounds };
  };

  it.each<[string, Interval | null, number, Comparison]>([
    ['nothing', null, 0, 'tie'],
    ['one round', of(2, 2, 2, 1), 0, 'tie'],
    ['an interval above 1', of(1.1, 1.01, 1.2), 0, 'faster'],
    ['an interval below 1', of(0.9, 0.8, 0.99), 0, 'slower'],
    ['an interval that spans 1', of(1.1, 0.99, 1.2), 0, 'tie'],
    ['an interval that touches 1', of(1.1, 1, 1.2), 0, 'tie'],
    ['no difference at all', of(1, 1, 1), 0, 'tie'],
    ['a difference within the noise of the twin', of(1.02, 1.01, 1.05), 0.03, 'tie'],
    ['a difference beyond it', of(1.05, 1.02, 1.08), 0.03, 'faster'],
    ['a clear difference with one odd round', of(0.9, 0.86, 1.01), 0.02, 'tie'],
    ['three rounds that agree', of(0.9, 0.86, 0.95, 3), 0.04, 'slower'],
    ['three rounds that agree within the noise', of(0.9, 0.86, 0.95, 3), 0.12, 'tie'],
  ])('of %s', (_name, quotient, noise, verdict) => {
    expect(compare(quotient, noise)).toBe(verdict);
  });
});

/** A run of the bench as on a shared machine: every round has its own speed, every trial its own noise. */
interface Simulated {
  readonly baseline: ReadonlyMap<number, number>;
  readonly twin: ReadonlyMap<number, number>;
  readonly contender: ReadonlyMap<number, number>;
}

const machineSpread = 0.3;

function simulate(seed: number, effect: number, noise: number, rounds = 5): Simulated {
  const speeds = lognormal(rounds, machineSpread, 4 * seed);
  const row = (nth: number, factor: number): ReadonlyMap<number, number> => {
    const noises = lognormal(rounds, noise, 4 * seed + nth);
    return new Map(
      speeds.map((speed, index) => [index + 1, 2_000 * factor * speed * (noises[index] ?? 1)] as const),
    );
  };
  return { baseline: row(1, 1), twin: row(2, 1), contender: row(3, effect) };
}

/** Compares as the summary does. */
function paired({ baseline, twin, contender }: Simulated): Comparison {
  const over = quotients(contender, meanOf(baseline, twin));
  return compare(interval(over), noiseFloor(quotients(twin, baseline)));
}

/** Enough for a share of 95 % to be known to 0.5 % (one standard deviation). */
const runs = 2_000;

/** Share of the runs of five rounds with this verdict. */
function share(verdict: Comparison, effect: number): number {
  const seeds = Array.from({ length: runs }, (_, seed) => seed);
  return seeds.filter((seed) => paired(simulate(seed, effect, 0.03)) === verdict).length / runs;
}

const percent = (value: number): string => `${(value * 100).toFixed(1)} %`;

describe('simulated runs of five rounds', () => {
  it('call identical strategies a tie in 19 of 20', () => {
    const ties = share('tie', 1);
    expect(ties, percent(ties)).toBeGreaterThanOrEqual(0.95);
  });

  it('find 10 % more, and 10 % less, in 19 of 20', () => {
    const faster = share('faster', 1.1);
    const slower = share('slower', 0.9);
    expect(faster, `faster: ${percent(faster)}`).toBeGreaterThanOrEqual(0.95);
    expect(slower, `slower: ${percent(slower)}`).toBeGreaterThanOrEqual(0.95);
  });
});
