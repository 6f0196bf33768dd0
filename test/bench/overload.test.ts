import { describe, expect, it } from 'vitest';
import { type AttemptOutcome, type HistoryRecord, resultOf } from '../../bench/history.ts';
import {
  acceptedRate,
  type Evidence,
  judge,
  overloadOf,
  recoveryOf,
} from '../../bench/limits/overload-figures.ts';

function record(id: number, outcome: AttemptOutcome, completedMs: number | null): HistoryRecord {
  return {
    id,
    op: 'purchase',
    saleId: 1,
    userId: `u-${id}`,
    invokedUs: 0,
    completedUs: completedMs === null ? null : completedMs * 1_000,
    result: resultOf[outcome],
    outcome,
    orderId: null,
    status: null,
  };
}

/** Accepted at each of these moments. */
const acceptedAt = (...ms: number[]): HistoryRecord[] => ms.map((at, id) => record(id, 'accepted', at));
/** Moments from `fromMs` on, `everyMs` apart. */
const moments = (fromMs: number, untilMs: number, everyMs: number): number[] =>
  Array.from({ length: Math.ceil((untilMs - fromMs) / everyMs) }, (_, n) => fromMs + n * everyMs);

describe('the figures of an overload', () => {
  it('counts accepted answers between two moments', () => {
    const history = [...acceptedAt(999, 1_000, 1_500, 2_999, 3_000), record(9, 'busy', 1_200)];
    expect(acceptedRate(history, 1_000, 3_000)).toBe(1.5);
  });

  it('puts each attempt into the second in which it was due, with its latency from then', () => {
    const schedule = Float64Array.of(100, 500, 900, 950, 1_100, 1_900, 3_500).map((ms) => ms * 1_000);
    const history = [
      record(0, 'accepted', 150),
      record(1, 'busy', 510),
      record(2, 'replayed', 1_300), // Answered in the next second, and counted in its own.
      record(4, 'unknown', null),
      record(5, 'unexpected', 1_950),
    ].map((sent) => ({ ...sent, invokedUs: schedule[sent.id]! + 3_000 }));
    const nothing = { admitted: 0, busy: 0, other: 0, admittedP99Ms: null, busyP99Ms: null };
    const mixed = { admitted: 2, busy: 1, other: 0, admittedP99Ms: 400, busyP99Ms: 10 };
    expect(overloadOf(history, schedule)).toEqual({
      outcomes: { accepted: 1, busy: 1, replayed: 1, unknown: 1, unexpected: 1 },
      admittedMs: { p50: 50, p99: 400, max: 400 },
      busyMs: { p50: 10, p99: 10, max: 10 },
      seconds: [
        { second: 0, due: 4, unsent: 1, lagP99Ms: 3, ...mixed },
        { second: 1, due: 2, unsent: 0, lagP99Ms: 3, ...nothing, other: 2 },
        { second: 3, due: 1, unsent: 1, lagP99Ms: null, ...nothing },
      ],
    });
  });
});

describe('the recovery', () => {
  const options = { durationMs: 3_000, capacityPerSecond: 100 };

  it('is over when half a second had 90 % of the capacity', () => {
    const soon = recoveryOf(acceptedAt(...moments(0, 3_000, 10)), options);
    expect(soon.fullSpeedAfterMs).toBe(500);
    const late = recoveryOf(acceptedAt(...moments(1_200, 3_000, 10)), options);
    expect(late.fullSpeedAfterMs).toBe(1_650);
    expect(late.acceptedPerSecond).toEqual([...new Array(12).fill(0), ...new Array(18).fill(100)]);
  });

  it('is not seen when the rate stays below, or comes too late', () => {
    expect(recoveryOf(acceptedAt(...moments(0, 3_000, 12)), options).fullSpeedAfterMs).toBeNull();
    expect(recoveryOf(acceptedAt(...moments(2_700, 3_000, 10)), options).fullSpeedAfterMs).toBeNull();
    expect(recoveryOf([record(0, 'busy', 10)], options).fullSpeedAfterMs).toBeNull();
  });
});

describe('the goals', () => {
  const times = { p50: 1, p99: 249.9, max: 900 };
  const good: Evidence = {
    capacityPerSecond: 1_000,
    times: 10,
    duePerSecond: 9_990,
    open: { valid: true, reasons: [] },
    overload: { outcomes: { accepted: 10, busy: 90 }, admittedMs: times, busyMs: times, seconds: [] },
    recovery: { fullSpeedAfterMs: 2_000, acceptedPerSecond: [] },
    serviceDied: false,
    audit: { verdict: 'pass', findings: [] },
  };
  const missed = (change: Partial<Evidence>): string[] =>
    judge({ ...good, ...change }).flatMap(({ what, found, reached }) =>
      reached ? [] : [`${what}: ${found}`],
    );

  it('are all reached by a service that keeps them', () => {
    expect(judge(good)).toHaveLength(7);
    expect(missed({})).toEqual([]);
    // Nobody had to be told `busy`.
    expect(missed({ overload: { ...good.overload, outcomes: { accepted: 9 }, busyMs: null } })).toEqual([]);
  });

  it.each<[string, Partial<Evidence>, string]>([
    ['less load', { duePerSecond: 4_000 }, 'load: 4.0 × capacity'],
    [
      'load that was not sent',
      { open: { valid: false, reasons: ['late'] } },
      'load: 10.0 × capacity, not as scheduled: late',
    ],
    [
      'slow',
      { overload: { ...good.overload, admittedMs: { ...times, p99: 250 } } },
      'p99 of admitted attempts: 250.0 ms',
    ],
    [
      'nobody',
      { overload: { ...good.overload, admittedMs: null } },
      'p99 of admitted attempts: there was none',
    ],
    [
      'late refusals',
      { overload: { ...good.overload, busyMs: { ...times, p99: 900 } } },
      'p99 of busy answers: 900.0 ms',
    ],
    [
      'no answers',
      { overload: { ...good.overload, outcomes: { accepted: 1, busy: 2, unknown: 3 } } },
      'neither admitted nor busy: 3 of 6 ({"unknown":3})',
    ],
    ['dead', { serviceDied: true }, 'crash: yes'],
    ['wrong', { audit: { verdict: 'fail', findings: ['2 lost'] } }, 'audit: fail; 2 lost'],
    [
      'slow to return',
      { recovery: { ...good.recovery, fullSpeedAfterMs: 2_050 } },
      'full speed after the load: after 2050 ms',
    ],
    [
      'never back',
      { recovery: { ...good.recovery, fullSpeedAfterMs: null } },
      'full speed after the load: not seen',
    ],
  ])('are missed by one that is %s', (_name, change, expected) => {
    expect(missed(change)).toEqual([expected]);
  });
});
