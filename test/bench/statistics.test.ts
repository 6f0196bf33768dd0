/** What the statistics promise: known answers, and simulated runs whose truth is known. */
import { describe, expect, it } from 'vitest';
import {
  type Comparison,
  compare,
  type Interval,
  interval,
  meanOf,
  noiseFloor,
  quotients,
} from '../../bench/kit/statistics.ts';
import { seededRandom } from '../../lab/kit/random.ts';
import { bySize } from '../support/tier.ts';

const of = (median: number, low: number, high: number, rounds = 5): Interval => {
  return { median, low, high, rounds };
};

describe('the interval', () => {
  it.each<[string, readonly number[], Interval | null]>([
    ['one value has no width', [5], of(5, 5, 5, 1)],
    ['nothing is null', [], null],
    ['numbers, not texts', [10, 9, 100], of(10, 9, 100, 3)],
    // As the percentile bootstrap has it.
    ['four rounds is their range', [1, 2, 3, 8], of(2.5, 1, 8, 4)],
    ['five rounds is their range', [9, 7, 1, 8, 3], of(7, 1, 9)],
  ])('of %s', (_, values, expected) => {
    expect(interval(values)).toEqual(expected);
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

it.each<[string, Interval | null, number, Comparison]>([
  ['nothing', null, 0, 'tie'],
  ['one round', of(2, 2, 2, 1), 0, 'tie'],
  ['an interval above 1', of(1.1, 1.01, 1.2), 0, 'faster'],
  ['an interval below 1', of(0.9, 0.8, 0.99), 0, 'slower'],
  ['an interval that touches 1', of(1.1, 1, 1.2), 0, 'tie'],
  ['a difference within the noise of the twin', of(1.02, 1.01, 1.05), 0.03, 'tie'],
  ['a difference beyond it', of(1.05, 1.02, 1.08), 0.03, 'faster'],
  ['a clear difference with one odd round', of(0.9, 0.86, 1.01), 0.02, 'tie'],
  ['three rounds that agree', of(0.9, 0.86, 0.95, 3), 0.04, 'slower'],
  ['three rounds that agree within the noise', of(0.9, 0.86, 0.95, 3), 0.12, 'tie'],
])('a comparison of %s', (_name, quotient, noise, verdict) => {
  expect(compare(quotient, noise)).toBe(verdict);
});

/** Log-normal numbers with median 1, by Box and Muller. */
function lognormal(count: number, deviation: number, seed: number): number[] {
  const random = seededRandom(seed);
  return Array.from({ length: count }, () => {
    const radius = Math.sqrt(-2 * Math.log(1 - random()));
    return Math.exp(deviation * radius * Math.cos(2 * Math.PI * random()));
  });
}

/**
 * The verdict on a contender, as the summary makes it, in a run of five rounds on a shared machine: every round has its own
 * speed (30 %), every trial its own noise (3 %).
 */
function verdictOf(seed: number, effect: number): Comparison {
  const speeds = lognormal(5, 0.3, 4 * seed);
  const row = (nth: number, factor: number): ReadonlyMap<number, number> => {
    const noises = lognormal(5, 0.03, 4 * seed + nth);
    return new Map(speeds.map((speed, n) => [n + 1, 2_000 * factor * speed * noises[n]!] as const));
  };
  const [baseline, twin, contender] = [row(1, 1), row(2, 1), row(3, effect)];
  const over = quotients(contender, meanOf(baseline, twin));
  return compare(interval(over), noiseFloor(quotients(twin, baseline)));
}

it.each<[string, Comparison, number]>([
  ['call identical strategies a tie', 'tie', 1],
  ['find 10 % more', 'faster', 1.1],
  ['find 10 % less', 'slower', 0.9],
])('simulated runs of five rounds %s in 19 of 20', (_, verdict, effect) => {
  const seeds = Array.from({ length: bySize({ core: 500, full: 500, nightly: 2_000 }) }, (_, seed) => seed);
  const right = seeds.filter((seed) => verdictOf(seed, effect) === verdict);
  expect(right.length / seeds.length).toBeGreaterThanOrEqual(0.95);
});
