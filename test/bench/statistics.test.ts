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
  quotientOfMedians,
  quotients,
} from '../../bench/kit/statistics.ts';
import { seededRandom } from '../../lab/kit/random.ts';

/** Numbers whose logarithms are normal round 0: their median is 1. By Box and Muller. */
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
    expect(median([10, 9, 100])).toBe(10); // as numbers, not as text
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

  it('is the same for the same seed, whatever the order', () => {
    const some = lognormal(11, 0.1, 1);
    const before = [...some];
    expect(interval(some, 7)).toEqual(interval(some, 7));
    expect(interval([...some].reverse(), 7)).toEqual(interval(some, 7));
    expect(some).toEqual(before);
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

  it('shrinks with more values', () => {
    const width = (count: number): number => {
      const { low, high } = interval(lognormal(count, 0.1, 3)) as Interval;
      return high - low;
    };
    expect(width(25)).toBeLessThan(width(5));
    expect(width(100)).toBeLessThan(width(25) * 0.75);
  });

  it('of 11 rounds covers the true value in about 95 % of all runs', () => {
    // The bootstrap's ends are the third of 11 from below and from above, and now and then the value beside them. Such a
    // range covers the median with 93.5 % (1 − 2 × 67 / 2,048), that of the second with 98.8 %. Of 1,000 samples the share
    // has a standard deviation of 0.8 %: three of them below the one, and no more than halfway to the other.
    const samples = Array.from(
      { length: 1_000 },
      (_, n) => interval(lognormal(11, 0.2, 100 + n)) as Interval,
    );
    const covered = samples.filter(({ low, high }) => low <= 1 && high >= 1).length / samples.length;
    expect(covered, `${(covered * 100).toFixed(1)} % covered`).toBeGreaterThan(0.91);
    expect(covered, `${(covered * 100).toFixed(1)} % covered`).toBeLessThan(0.97);
  });
});

describe('the quotient of two medians', () => {
  it('is exact without spread, and missing without values or divisor', () => {
    expect(quotientOfMedians([3, 3, 3], [2, 2])).toEqual({ median: 1.5, low: 1.5, high: 1.5, rounds: 2 });
    expect(quotientOfMedians([], [1])).toBeNull();
    expect(quotientOfMedians([1], [])).toBeNull();
    expect(quotientOfMedians([1, 2], [0, 0, 5])).toBeNull();
  });

  it('is wider than that of the dividend alone, and inverts with the quotient', () => {
    const [over, under] = [lognormal(9, 0.1, 1), lognormal(9, 0.1, 2)];
    const quotient = quotientOfMedians(over, under) as Interval;
    const single = interval(over) as Interval;
    expect(quotient.high / quotient.low).toBeGreaterThan(single.high / single.low);
    const turned = quotientOfMedians(under, over) as Interval;
    expect(turned.median).toBeCloseTo(1 / quotient.median, 9);
    expect(turned.low).toBeCloseTo(1 / quotient.high, 1);
  });
});

describe('rounds', () => {
  /** Of rounds 1, 2, …; null: the round does not have it. */
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

/** A run of the bench as it is on a shared machine: every round has a speed of its own, every trial noise of its own. */
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

/** As the summary does it. */
function paired({ baseline, twin, contender }: Simulated): Comparison {
  const over = quotients(contender, meanOf(baseline, twin));
  return compare(interval(over), noiseFloor(quotients(twin, baseline)));
}

/** As it must not be done: all rounds of the one against all rounds of the other. */
function acrossRounds({ baseline, contender }: Simulated): Comparison {
  return compare(quotientOfMedians([...contender.values()], [...baseline.values()]), 0);
}

/** Enough for a share of 95 % to be known to 0.5 % (one standard deviation). */
const runs = 2_000;
const fewerRuns = 400;

/** Share of the runs with this verdict. */
function share(
  verdict: Comparison,
  effect: number,
  noise: number,
  { judge = paired, rounds = 5, count = fewerRuns } = {},
): number {
  const seeds = Array.from({ length: count }, (_, seed) => seed);
  return seeds.filter((seed) => judge(simulate(seed, effect, noise, rounds)) === verdict).length / count;
}

const percent = (value: number): string => `${(value * 100).toFixed(1)} %`;

describe('simulated runs of five rounds', () => {
  it('call identical strategies a tie in 19 of 20', () => {
    const ties = share('tie', 1, 0.03, { count: runs });
    expect(ties, percent(ties)).toBeGreaterThanOrEqual(0.95);
  });

  it('find 10 % more, and 10 % less, in 19 of 20', () => {
    const faster = share('faster', 1.1, 0.03, { count: runs });
    const slower = share('slower', 0.9, 0.03, { count: runs });
    expect(faster, `faster: ${percent(faster)}`).toBeGreaterThanOrEqual(0.95);
    expect(slower, `slower: ${percent(slower)}`).toBeGreaterThanOrEqual(0.95);
  });

  // Ties do not depend on how noisy trials are, because the twin is as noisy; what can be found does.
  it.each([
    { noise: 0.02, least: 0.99, most: 1 },
    { noise: 0.05, least: 0.6, most: 0.8 },
  ])('with noise of $noise in each trial are as often a tie; a tenth is found in $least or more', (given) => {
    const { noise, least, most } = given;
    const ties = share('tie', 1, noise);
    expect(ties, `ties: ${percent(ties)}`).toBeGreaterThanOrEqual(0.95);
    for (const found of [share('faster', 1.1, noise), share('slower', 0.9, noise)]) {
      expect(found, percent(found)).toBeGreaterThanOrEqual(least);
      expect(found, percent(found)).toBeLessThanOrEqual(most);
    }
  });

  it('of three rounds call identical strategies different more often, and find 20 %', () => {
    // Three rounds that happen to agree are one in four; the noise of the A/A control keeps half of them back.
    const ties = share('tie', 1, 0.03, { rounds: 3 });
    expect(ties, `ties: ${percent(ties)}`).toBeGreaterThanOrEqual(0.85);
    const found = share('slower', 0.8, 0.03, { rounds: 3 });
    expect(found, percent(found)).toBeGreaterThanOrEqual(0.95);
  });

  it('show nothing when rounds are not paired: the speed of the machine hides 10 %', () => {
    const found = share('slower', 0.9, 0.03, { judge: acrossRounds });
    expect(found, percent(found)).toBeLessThan(0.2);
  });

  it('call most identical strategies different when the higher median wins', () => {
    const higher = ({ baseline, contender }: Simulated): Comparison =>
      median([...contender.values()]) > median([...baseline.values()]) * 1.01 ? 'faster' : 'tie';
    const wrong = share('faster', 1, 0.03, { judge: higher });
    expect(wrong, percent(wrong)).toBeGreaterThan(0.3);
  });
});

describe('the simulated noise', () => {
  it('has the documented size', () => {
    const logs = lognormal(20_000, 0.3, 5).map(Math.log);
    const mean = logs.reduce((sum, log) => sum + log, 0) / logs.length;
    const deviation = Math.sqrt(logs.reduce((sum, log) => sum + (log - mean) ** 2, 0) / logs.length);
    expect(mean).toBeCloseTo(0, 2);
    expect(deviation).toBeCloseTo(0.3, 2);
  });
});
