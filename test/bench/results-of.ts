import type { Interval } from '../../bench/kit/statistics.ts';
import type { Sweep } from '../../bench/options.ts';
import { label } from '../../bench/plan.ts';
import type { Results } from '../../bench/report/results.ts';
import type { Point } from '../../bench/result.ts';
import type { RushRow, Spread, SummaryRow } from '../../bench/summary.ts';
import { oversoldTrial, trialOf, untroubled, usualOptions } from './trial-of.ts';

const stock = 2_000;
const home: Point = { rttMs: 0, connections: 64, sales: 1 };
/** A row that passed, of a strategy with this speed; everything else follows from it. */
export function rowOf(strategy: string, perSecond: number, changes: Partial<SummaryRow> = {}): SummaryRow {
  const soldOutMs = (stock / perSecond) * 1_000;
  return {
    strategy,
    lock: null,
    unsafe: false,
    twin: false,
    point: home,
    trials: 5,
    invalid: 0,
    acceptedPerSecond: spreadOf(perSecond),
    acceptedInterval: intervalOf(perSecond),
    attemptsPerSecond: spreadOf(perSecond * 4),
    toBaseline: intervalOf(perSecond / 1_400),
    comparison: perSecond > 1_500 ? 'faster' : perSecond < 1_300 ? 'slower' : 'tie',
    latencyMs: { p50: spreadOf(2), p90: spreadOf(4), p99: spreadOf(9) },
    timeToSellOutMs: spreadOf(soldOutMs),
    cost: {
      cpu: {
        service: 1 + 3_000 / perSecond,
        redis: 0.4 + 200 / perSecond,
        postgres: 0.8 + 9_000 / perSecond,
      },
      redisCommands: 2,
      postgresTransactions: 1,
    },
    roundTrips: { redis: 1, postgres: perSecond > 5_000 ? 1 : 4 },
    remainingOverTime: remaining(soldOutMs, stock),
    rush: {
      fixed: rushOf(1_000, 900 / perSecond),
      share: rushOf(perSecond * 0.7, 0.6 + 300 / (perSecond + 600)),
    },
    worst: untroubled,
    verdict: 'pass',
    rank: 1,
    tie: false,
    findings: [],
    ...changes,
  };
}

/** A control that oversold by 700. */
export function unsafeRow(changes: Partial<SummaryRow> = {}): SummaryRow {
  return rowOf('unsafe', 5_200, {
    unsafe: true,
    verdict: 'fail',
    rank: null,
    worst: { ...untroubled, oversold: 700 },
    findings: [1, 2, 3, 4, 5].map(
      (round) => `round ${round}: sold 2,${round + 2}00 of 2,000: ${round + 2}00 oversold`,
    ),
    remainingOverTime: remaining(520, stock + 700),
    ...changes,
  });
}

/** How long attempts wait grows with how busy the strategy is. */
function rushOf(perSecond: number, busy: number): RushRow {
  const p50 = 1.8 + 1 / Math.max(0.02, 1 - busy);
  const factors = [0.3, 0.6, 0.8, 1, 1.4, 2.1, 2.9, 6, 8, 15, 22];
  const percents = [0, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 100];
  const turnedDown = Math.max(0, 1 - 1 / Math.max(busy, 0.01));
  return {
    rounds: 5,
    invalid: 0,
    perSecond: spreadOf(perSecond),
    acceptedShare: spreadOf(0.2 * (1 - turnedDown)),
    turnedDownShare: spreadOf(turnedDown),
    latencyMs: { p50: spreadOf(p50), p90: spreadOf(p50 * 2.1), p99: spreadOf(p50 * 6) },
    latencyCurve: percents.map((percent, index) => [percent, p50 * (factors[index] ?? 1)] as const),
    firstComeShare: spreadOf(0.95),
  };
}

function remaining(untilMs: number, sold: number): (readonly [number, number])[] {
  return Array.from(
    { length: 21 },
    (_, step) => [(untilMs * step) / 20, stock - (sold * step) / 20] as const,
  );
}

function spreadOf(median: number): Spread {
  return { median, min: median * 0.95, max: median * 1.06 };
}

function intervalOf(median: number): Interval {
  return { median, low: median * 0.95, high: median * 1.06, rounds: 5 };
}

/** Eight strategies, of which one oversold, one was measured twice, and one has neither open loops nor costs. */
export function summaryOf(): SummaryRow[] {
  const baseline = { toBaseline: null, comparison: null };
  return [
    rowOf('lua', 9_300),
    rowOf('group-commit', 8_700, { rank: 2, tie: true }),
    rowOf('skip-locked', 8_100, { rank: 2, tie: true, invalid: 1 }),
    rowOf('<b>&"bold"', 1_900, { rank: 4, rush: { fixed: null, share: null }, cost: null, roundTrips: null }),
    rowOf('for-update', 1_400, { rank: 5, ...baseline }),
    rowOf('advisory-lock', 1_350, {
      rank: 5,
      cost: {
        cpu: { service: 3, redis: null, postgres: null },
        redisCommands: null,
        postgresTransactions: null,
      },
    }),
    rowOf('global-lock', 420, { lock: 'redis-no-owner', rank: 7 }),
    rowOf('for-update', 1_380, { twin: true, rank: null, comparison: 'tie' }),
    unsafeRow(),
  ];
}

/** The results of a whole run, with changes. */
export function resultsOf(
  changes: Partial<Omit<Results, 'plan'>> = {},
  plan: Partial<Results['plan']> = {},
): Results {
  const summary = changes.summary ?? summaryOf();
  const contenders = summary.map(({ strategy, lock, unsafe, twin }) => ({ strategy, lock, unsafe, twin }));
  return {
    schema: 1,
    startedAt: '2026-11-21T07:38:00.000Z',
    finishedAt: '2026-11-21T08:20:00.000Z',
    partial: false,
    commit: '0123456789abcdef0123456789abcdef01234567',
    machine: {
      cpu: 'Model & Maker <3.0 GHz>',
      cores: 2,
      memoryBytes: 8 * 2 ** 30,
      os: 'Linux 6.1 x64',
      node: 'v20.19.0',
      postgres: '18.4',
      redis: '7.2.5',
    },
    plan: {
      ...usualOptions(),
      durationMs: 10_000,
      warmupMs: 3_000,
      ratePerSecond: 1_000,
      rushMs: 10_000,
      baseline: 'for-update',
      contenders,
      trials: contenders.length * 5,
      serviceEnv: {},
      ...plan,
    },
    trials: summary.flatMap(trialsOf),
    noise: { baseline: 'for-update', twin: { median: 0.98, low: 0.93, high: 1.04, rounds: 5 }, floor: 0.04 },
    shortcomings: [],
    ...changes,
    summary,
  };
}

function trialsOf({ strategy, lock, unsafe, twin, point, rush: open }: SummaryRow): Results['trials'] {
  const contender = { strategy, lock, unsafe, twin };
  const common = {
    ...contender,
    point,
    rush: null,
    cost: null,
    roundTrips: null,
    generatorUtilization: null,
    invalid: [],
    acceptedLatencyMs: { p50: 1.5, p90: 2.5, p99: 9.125, max: 20 },
    refusedLatencyMs: null,
    latencyCurve: [],
    firstComeShare: null,
    remainingOverTime: [],
  };
  const make = unsafe ? oversoldTrial : trialOf;
  const lagMs = { p50: 0.5, p99: 1, max: 9 };
  const rush = { rate: 'fixed', perSecond: 1_000, scheduled: 10_000, dropped: 0, lagMs } as const;
  const share = { ...rush, rate: 'share', perSecond: 1_400 } as const;
  return [1, 2, 3, 4, 5].flatMap((round) => [
    make({ ...common, round, history: `history-${round}-${label(contender)}` }),
    ...(open.fixed === null ? [] : [rush, share]).map((rush) =>
      make({ ...common, round, load: 'open', timeToSellOutMs: null, rush }),
    ),
  ]);
}

const steps: Readonly<
  Record<Sweep, { readonly points: readonly Point[]; factor(point: Point, perSecond: number): number }>
> = {
  rtt: {
    points: [0, 0.5, 1, 2, 5].map((rttMs) => ({ ...home, rttMs })),
    factor: ({ rttMs }, perSecond) => 1 / (1 + rttMs * (2_000 / perSecond)),
  },
  connections: {
    points: [8, 16, 32, 64, 128, 256].map((connections) => ({ ...home, connections })),
    factor: ({ connections }, perSecond) => Math.min(1, connections / 64) ** (perSecond / 9_000),
  },
  sales: {
    points: [1, 4, 16, 64].map((sales) => ({ ...home, sales })),
    factor: ({ sales }, perSecond) => Math.min(sales, 8) ** (200 / perSecond),
  },
};

/** A run along one axis. */
export function sweepOf(sweep: Sweep): Results {
  const { points, factor } = steps[sweep];
  const rows = points.flatMap((point) =>
    summaryOf().map((row) => {
      const perSecond = row.acceptedPerSecond.median;
      return {
        ...row,
        point,
        acceptedInterval: intervalOf(perSecond * factor(point, perSecond)),
        rush: { fixed: null, share: null },
      };
    }),
  );
  return resultsOf({ summary: rows, noise: null }, { sweep, points, load: ['closed'], baseline: null });
}
