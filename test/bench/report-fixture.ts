/** Results of a small made-up suite, summarized by the kit, for tests of reports and comparisons. */
import type { Results } from '../../bench/kit/results.ts';
import type { CellBase, Curve, Metric, Point, TrialBase } from '../../bench/kit/suite.ts';
import { summarize } from '../../bench/kit/summary.ts';

interface MadeUp extends TrialBase {
  readonly rate: number;
  readonly p99: number;
  readonly oversold: number | null;
}

const shared = { unit: '/s', better: 'higher', help: 'What it means.' } as const;
const metrics: readonly Metric<MadeUp>[] = [
  { ...shared, key: 'rate', title: 'accepted/s', read: ({ rate }) => rate },
  { ...shared, key: 'p99', title: 'p99', unit: 'ms', better: 'lower', read: ({ p99 }) => p99 },
  { ...shared, key: 'p50', title: 'p50', unit: 'ms', better: 'lower', read: ({ p99 }) => p99 / 2 },
];
const curve: Curve<MadeUp> = {
  ...{ key: 'left', title: 'Units left over time' },
  ...{ x: { title: 'time', unit: 'ms' }, y: { title: 'units left', unit: '' } },
  read: ({ rate }) => [0, 1, 2, 3].map((n) => [(n * 1e5) / rate, 90 - 30 * n] as const),
};

export const layout: Results['layout'] = {
  ...{ title: 'Strategies compared', lead: 'rate', leadText: 'accepted attempts a second', noun: 'strategy' },
  ...{ columns: ['rate', 'p99'], passed: 'sold exactly the stock', notes: [] },
  sections: [
    { title: 'Capacity', text: '', charts: [{ kind: 'ranking', metric: 'rate' }] },
    {
      title: 'Selling',
      text: 'How stock goes.',
      charts: [
        { kind: 'curves', curve: 'left' },
        { kind: 'bars', title: 'Both', metrics: ['p50', 'p99'], stacked: true },
        { kind: 'range', title: 'Percentiles', metrics: ['p50', 'p99'] },
        { kind: 'sweep', title: 'More connections', metric: 'rate', axis: 'connections' },
        { kind: 'ratios' },
      ],
    },
  ],
};

/** A cell of a made-up run: accepted/s in each round, and what is odd about it. */
export interface MadeUpCell {
  readonly name: string;
  readonly rates: readonly number[];
  /** ms, one for all rounds or one for each. */
  readonly p99?: number | readonly number[];
  readonly unsafe?: boolean;
  readonly control?: boolean;
  /** Counted in each round; null: the check could not be made. */
  readonly oversold?: number | null;
  readonly point?: Point;
  readonly findings?: readonly string[];
  /** Why its figures do not count. */
  readonly invalid?: readonly string[];
}

const check = { key: 'oversold', title: 'oversold', read: ({ oversold }: MadeUp) => oversold };
const verdictOf = ({ oversold }: MadeUp) =>
  oversold === null ? 'unknown' : oversold === 0 ? 'pass' : 'fail';

/** @param changes replaces parts of the results; the summary is computed from the cells */
export function resultsOf(cells: readonly MadeUpCell[], changes: Partial<Results> = {}): Results {
  const trials = cells.flatMap(({ name, rates, p99 = 20, oversold = 0, ...cell }) => {
    const { point = {}, control = false, findings = [], invalid = [] } = cell;
    const same = {
      cell: name,
      control,
      point,
      oversold,
      findings,
      invalid,
      durationMs: 1_000,
      busyBefore: 0,
    };
    return rates.map((rate, n): MadeUp => {
      const startedAt = `2026-11-21T07:3${n}:00.000Z`;
      return { ...same, startedAt, round: n + 1, rate, p99: typeof p99 === 'number' ? p99 : (p99[n] ?? 0) };
    });
  });
  const bases = [...new Map(cells.map((cell) => [cell.name, cell])).values()].map(
    ({ name, unsafe = false, control = false }): CellBase => ({ name, unsafe, control, summary: '' }),
  );
  const suite = { metrics, curves: [curve], checks: [check], verdict: verdictOf, report: layout };
  const { ladder = null, baseline = 'for-update' } = changes.plan ?? {};
  const { rows, noise } = summarize(suite, { cells: bases, baseline, ladder }, trials);
  const info = <T extends { readonly read: unknown }>({ read: _, ...rest }: T): Omit<T, 'read'> => rest;
  return {
    ...{ schema: 2, suite: 'strategies', partial: false, smoke: false, layout, ratios: [], tables: [] },
    ...{ startedAt: '2026-11-21T07:30:00.000Z', finishedAt: '2026-11-21T07:40:00.000Z' },
    ...{ commit: '0123456789abcdef0123456789abcdef01234567', generator: 'wrk', broken: [], failures: [] },
    machine: {
      ...{ cpu: 'A CPU', cores: 2, memoryBytes: 8 * 2 ** 30, os: 'Linux' },
      ...{ node: 'v20.19.0', postgres: '18.4', redis: '7.0' },
    },
    plan: {
      ...{ rounds: Math.max(...cells.map(({ rates }) => rates.length)), seed: 1, trials: trials.length },
      ...{ cells: bases, points: [{}], baseline, ladder, options: {} },
    },
    ...{ trials, summary: rows, noise },
    metrics: suite.metrics.map(info),
    curves: suite.curves.map(info),
    checks: suite.checks.map(info),
    ...changes,
  };
}

/** An ordinary run: a clear winner, a tie, a baseline with its control, and an unsafe cell. */
export const usual: readonly MadeUpCell[] = [
  { name: 'lua', rates: [3_000, 3_100, 2_900], p99: 12 },
  { name: 'skip-locked', rates: [1_500, 1_480, 1_530] },
  { name: 'unique-key', rates: [1_490, 1_510, 1_500], p99: 40 },
  { name: 'for-update', rates: [500, 510, 490] },
  { name: 'for-update, A/A control', rates: [505, 495, 500], control: true },
  {
    ...{ name: 'unsafe', rates: [2_000, 2_100, 1_900], unsafe: true, oversold: 48 },
    findings: ['sold 2,048 of 2,000'],
  },
];
