import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { seededRandom } from '../../bench/kit/random.ts';
import { poisson, ramp } from '../../bench/load/schedule.ts';

/** How many starts lie in each `windowMs`. */
function counts(schedule: Float64Array, windowMs: number, windows: number): number[] {
  const found = new Array<number>(windows).fill(0);
  for (const us of schedule) found[Math.floor(us / 1_000 / windowMs)]! += 1;
  return found;
}

const mean = (values: ArrayLike<number>): number =>
  Array.from(values).reduce((sum, value) => sum + value, 0) / values.length;

/** What a count of independent arrivals may differ from what is expected, once in 15,000 times. */
const within4Sigma = (count: number, expected: number): boolean =>
  Math.abs(count - expected) < 4 * Math.sqrt(expected);

describe('arrivals at a constant rate', () => {
  const schedule = poisson({ ratePerSecond: 5_000, durationMs: 20_000, seed: 7 });
  const gaps = schedule.map((us, n) => us - (schedule[n - 1] ?? 0));

  it('are as many as the rate says', () => {
    expect(within4Sigma(schedule.length, 100_000)).toBe(true);
    for (const count of counts(schedule, 1_000, 20)) expect(within4Sigma(count, 5_000)).toBe(true);
  });

  it('have exponential gaps that know nothing of each other', () => {
    const meanUs = mean(gaps);
    expect(meanUs).toBeGreaterThan(198);
    expect(meanUs).toBeLessThan(202);
    for (const times of [0.1, 0.5, 1, 2, 3]) {
      const share = gaps.filter((us) => us > times * 200).length / gaps.length;
      expect(Math.abs(share - Math.exp(-times)), `longer than ${times} × the mean`).toBeLessThan(0.007);
    }
    const deviation = Math.sqrt(mean(gaps.map((us) => (us - meanUs) ** 2)));
    expect(deviation / meanUs).toBeCloseTo(1, 1);
    const together = mean(gaps.subarray(1).map((us, n) => (us - meanUs) * (gaps[n]! - meanUs)));
    expect(Math.abs(together / deviation ** 2)).toBeLessThan(0.015);
  });

  it('come in bursts, as those of independent customers do', () => {
    const perWindow = counts(schedule, 10, 2_000);
    const variance = mean(perWindow.map((count) => (count - 50) ** 2));
    expect(variance).toBeGreaterThan(45);
    expect(variance).toBeLessThan(55);
  });

  it('are the logarithms of the seed’s numbers, added up', () => {
    const random = seededRandom(7);
    let us = 0;
    for (const start of schedule.subarray(0, 100)) {
      us += -Math.log(random() + 2 ** -33) * 200;
      expect(start).toBeCloseTo(us, 4);
    }
  });
});

describe('a ramp', () => {
  it('grows in a straight line, then holds', () => {
    const schedule = ramp({
      fromPerSecond: 1_000,
      toPerSecond: 3_000,
      rampMs: 10_000,
      holdMs: 5_000,
      seed: 3,
    });
    for (const [second, count] of counts(schedule, 1_000, 15).entries()) {
      const expected = second < 10 ? 1_000 + 200 * (second + 0.5) : 3_000;
      expect(within4Sigma(count, expected), `second ${second}: ${count}, expected ${expected}`).toBe(true);
    }
  });

  it('may begin with nobody, or fall', () => {
    const rising = ramp({ fromPerSecond: 0, toPerSecond: 2_000, rampMs: 10_000, holdMs: 0, seed: 4 });
    expect(within4Sigma(rising.length, 10_000)).toBe(true);
    expect(within4Sigma(counts(rising, 1_000, 10)[0]!, 100)).toBe(true);
    const falling = ramp({ fromPerSecond: 2_000, toPerSecond: 1, rampMs: 10_000, holdMs: 0, seed: 4 });
    expect(within4Sigma(falling.length, 10_000)).toBe(true);
    expect(counts(falling, 1_000, 10)[9]).toBeLessThan(150);
  });

  it('without a slope is a constant rate', () => {
    const constant = poisson({ ratePerSecond: 300, durationMs: 4_000, seed: 5 });
    const flat = ramp({ fromPerSecond: 300, toPerSecond: 300, rampMs: 3_000, holdMs: 1_000, seed: 5 });
    expect(flat.length).toBe(constant.length);
    for (const [n, us] of flat.entries()) expect(us).toBeCloseTo(constant[n]!, 3);
  });
});

it('a schedule is ascending, ends in time, and depends on the seed alone', () => {
  const rate = fc.double({ min: 0, max: 5_000, noNaN: true });
  const time = fc.double({ min: 0, max: 500, noNaN: true });
  fc.assert(
    fc.property(rate, rate, time, time, fc.nat(), (fromPerSecond, to, rampMs, holdMs, seed) => {
      const options = { fromPerSecond, toPerSecond: to + 1, rampMs, holdMs, seed };
      const schedule = ramp(options);
      let before = 0;
      for (const us of schedule) {
        expect(us).toBeGreaterThan(before);
        before = us;
      }
      expect(before).toBeLessThanOrEqual((rampMs + holdMs) * 1_000);
      expect(ramp(options)).toEqual(schedule);
    }),
  );
  const busy = { ratePerSecond: 1_000, durationMs: 1_000 };
  expect(poisson({ ...busy, seed: 1 })).not.toEqual(poisson({ ...busy, seed: 2 }));
});

it.each([
  ['ratePerSecond', { ratePerSecond: 0, durationMs: 1, seed: 1 }],
  ['a negative rate', { ratePerSecond: -1, durationMs: 1, seed: 1 }],
  ['an endless one', { ratePerSecond: 1, durationMs: Number.POSITIVE_INFINITY, seed: 1 }],
  ['no number', { ratePerSecond: Number.NaN, durationMs: 1, seed: 1 }],
])('refuses %s', (_name, options) => {
  expect(() => poisson(options)).toThrow(RangeError);
});
