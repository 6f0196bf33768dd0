/** The arithmetic of the suite locks, against known answers. */
import { describe, expect, it } from 'vitest';
import { fairness, handOffsOf, numbersOf, overlaps } from '../../bench/suites/locks/numbers.ts';
import type { ContentionReport, Cycle } from '../../lab/clients/protocol.ts';

const ms = 1_000_000;

/** A cycle with its times in ms. */
const cycle = (waiter: number, asked: number, granted: number, released: number): Cycle => {
  return { waiter, askedNs: asked * ms, grantedNs: granted * ms, releasedNs: released * ms };
};
const all = () => true;

it('overlaps are grants before any earlier holder released', () => {
  expect(overlaps([cycle(0, 0, 1, 2), cycle(1, 0, 2, 3), cycle(0, 2, 4, 5)])).toBe(0);
  expect(overlaps([cycle(0, 0, 1, 3), cycle(1, 0, 2, 4)])).toBe(1);
  const long = [cycle(0, 0, 1, 100), cycle(1, 0, 10, 11), cycle(2, 0, 20, 21), cycle(1, 0, 100, 101)];
  expect(overlaps(long)).toBe(2);
});

it('hand-offs run from release to the next grant, unless the two overlap', () => {
  const cycles = [cycle(0, 0, 1, 2), cycle(0, 2, 3, 4), cycle(1, 0, 9, 10)];
  expect(handOffsOf(cycles, all)).toEqual([
    { ns: 1 * ms, another: false },
    { ns: 5 * ms, another: true },
  ]);
  expect(handOffsOf(cycles, ({ waiter }) => waiter === 1)).toHaveLength(1);
  expect(handOffsOf([cycle(0, 0, 1, 3), cycle(1, 0, 2, 4)], all)).toEqual([]);
});

describe('fairness', () => {
  const first = [cycle(0, 0, 10, 11), cycle(1, 1, 12, 13), cycle(2, 2, 14, 15), cycle(0, 11, 16, 17)];
  const starving = [{ waiter: 1, askedNs: 0 }];

  it.each<[string, Cycle[], number, number, typeof starving?]>([
    ['first come, first served', [...first, cycle(1, 13, 18, 19), cycle(2, 15, 20, 21)], 1, 1],
    // At the last grant, no other contender waits that could have been passed over.
    ['last come, first served', [cycle(2, 2, 10, 11), cycle(1, 1, 12, 13), cycle(0, 0, 14, 15)], -1, 1],
    // Waiter 2 is passed over by waiter 0; waiter 1 asks when both have been served.
    [
      'contenders that wait at that moment',
      [cycle(0, 5, 10, 11), cycle(2, 1, 12, 13), cycle(1, 20, 21, 22)],
      -1,
      1,
    ],
    ['never served', [cycle(0, 5, 10, 11), cycle(0, 11, 12, 13), cycle(0, 13, 14, 15)], -1, 0.5, starving],
  ])('of %s', (_, cycles, order, jain, waiting = []) => {
    expect(fairness(cycles, waiting, waiting.length === 0 ? 3 : 2, all)).toEqual({ order, jain });
    expect(fairness(cycles, [], 3, () => false)).toBeNull();
  });
});

const report = (cycles: Cycle[], requests = 0): ContentionReport => {
  return { cycles, waiting: [], sent: { fromNs: 0, toNs: 1_000 * ms, requests }, refusals: {} };
};

describe('the numbers of a measurement', () => {
  const noServer = { fromNs: 0, toNs: 1_000 * ms, commands: null, requests: null };
  const span = { startNs: 100 * ms, endNs: 1_000 * ms };

  it('count grants within the duration, in the order of all processes', () => {
    const one = report([cycle(0, 0, 50, 60), cycle(0, 60, 300, 310)], 7);
    const other = report([cycle(1, 0, 200, 210), cycle(1, 210, 1_001, 1_002)], 5);
    expect(numbersOf([one, other], noServer, 2, span)).toMatchObject({
      ...{ grants: 2, perSecond: expect.closeTo(2 / 0.9), overlaps: 0, toAnother: 1 },
      ...{ handOffMs: { p50: 90, p99: 140 }, waitMs: { p50: 200, p99: 240 }, commandsPerGrant: null },
      // 12 requests, and three grants in the period in which they were counted.
      requestsPerGrant: 4,
    });
  });

  it('include contenders without a grant', () => {
    const stuck = { ...report([]), waiting: [{ waiter: 0, askedNs: 0 }], refusals: { contended: 2 } };
    expect(numbersOf([stuck, stuck], { ...noServer, commands: 9 }, 2, span)).toMatchObject({
      ...{ grants: 0, perSecond: 0, waitMs: null, handOffMs: null, fairness: null },
      ...{ longestWaitMs: 1_000, commandsPerGrant: null, refusals: { contended: 4 } },
    });
  });
});
