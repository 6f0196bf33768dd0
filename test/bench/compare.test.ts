/** Two runs side by side: what counts as a change, and what does not. */
import { describe, expect, it } from 'vitest';
import { compareResults, comparisonText, regressions } from '../../bench/kit/compare.ts';
import type { Results } from '../../bench/kit/results.ts';
import { type Random, seededRandom } from '../../lab/kit/random.ts';
import { type MadeUpCell, resultsOf } from './report-fixture.ts';

/** Log-normal with median 1, by Box and Muller. */
function lognormal(random: Random, deviation: number): number {
  return Math.exp(deviation * Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random()));
}

/** accepted/s and p99 relative to the baseline. */
const cells: Readonly<Record<string, { readonly speed: number; readonly p99: number }>> = {
  'for-update': { speed: 1, p99: 1 },
  lua: { speed: 3, p99: 0.4 },
  'unique-key': { speed: 1.4, p99: 0.8 },
  'global-lock (redis)': { speed: 0.3, p99: 4 },
};

interface Simulation {
  readonly seed: number;
  /** Relative speed of the machine. */
  readonly speed?: number;
  /** Factors on a cell's accepted/s, and on its p99. */
  readonly faster?: Readonly<Record<string, number>>;
  readonly slowerP99?: Readonly<Record<string, number>>;
  readonly rounds?: number;
  readonly control?: boolean;
  /** Changes to a cell. */
  readonly cell?: Readonly<Record<string, Partial<MadeUpCell>>>;
}

/** Rounds differ in speed (30 %), and each trial has its own noise (3 %, and 5 % for the p99). */
function simulate(simulation: Simulation): Results {
  const { seed, speed = 1, faster = {}, slowerP99 = {}, rounds = 5, control = true, cell = {} } = simulation;
  const random = seededRandom(seed);
  const machine = Array.from({ length: rounds }, () => speed * lognormal(random, 0.3));
  const made = (name: string, like: string): MadeUpCell => ({
    ...{ name, control: name !== like },
    rates: machine.map(
      (own) => 1_000 * cells[like]!.speed * (faster[name] ?? 1) * own * lognormal(random, 0.03),
    ),
    p99: machine.map(
      (own) => ((20 * cells[like]!.p99 * (slowerP99[name] ?? 1)) / own) * lognormal(random, 0.05),
    ),
    ...cell[name],
  });
  const controls = control ? [made('for-update, A/A control', 'for-update')] : [];
  return resultsOf([...Object.keys(cells).map((name) => made(name, name)), ...controls]);
}

const found = (before: Results, after: Results, margin = 5): string[] => {
  const { changes, audits } = compareResults(before, after, margin);
  const beyond = changes.filter(({ verdict }) => verdict !== 'tie');
  return [...beyond.map(({ row, metric, verdict }) => `${row} ${metric.key} ${verdict}`), ...audits];
};
const warned = (before: Results, after: Results): string =>
  compareResults(before, after, 5).warnings.join('; ');

const before = simulate({ seed: 1 });

describe('two runs', () => {
  it('of the same code differ in nothing, however fast the machine was', () => {
    const report = compareResults(before, simulate({ seed: 2, speed: 0.4 }), 5);
    expect(report.baseline).toBe('for-update');
    expect(report.warnings).toEqual([]);
    expect(regressions(report)).toEqual([]);
    const rate = report.changes.find(({ row, metric }) => row === 'lua' && metric.key === 'rate')!;
    expect(rate.after / rate.before).toBeLessThan(0.8);
    expect(rate.quotient.median).toBeCloseTo(1, 1);
    const baselines = report.changes.filter(({ isBaseline }) => isBaseline).map(({ row }) => row);
    expect(new Set(baselines)).toEqual(new Set(['for-update']));
    expect(comparisonText(report)).toMatch(/Nothing changed beyond noise\.$/);
    expect(found(before, before)).toEqual([]);
  });

  it('of the same code differ in nothing in 19 of 20 pairs, with three cells and two metrics', () => {
    const wrong = Array.from({ length: 60 }, (_, n) => n).filter((n) => {
      const after = simulate({ seed: 3_000 + n, speed: n % 2 === 0 ? 1 : 0.5 });
      return found(simulate({ seed: 2_000 + n }), after).length > 0;
    });
    expect(wrong.length, `${wrong.length} of 60 pairs`).toBeLessThanOrEqual(3);
  });

  it('show a cell that became 15 % slower, and which one, in 9 of 10 pairs', () => {
    const right = Array.from({ length: 60 }, (_, n) => n).filter((n) => {
      const after = simulate({ seed: 5_000 + n, speed: 0.7, faster: { lua: 0.85 } });
      return found(simulate({ seed: 4_000 + n }), after).includes('lua rate worse');
    });
    expect(right.length, `${right.length} of 60 pairs`).toBeGreaterThanOrEqual(54);
  });

  it('show nothing that is smaller than the margin, and nothing from one round', () => {
    const after = simulate({ seed: 2, faster: { lua: 0.8 } });
    expect(found(before, after, 5)).toEqual(['lua rate worse']);
    expect(found(before, after, 30)).toEqual([]);
    const once = simulate({ seed: 2, rounds: 1, control: false, faster: { lua: 0.5 } });
    expect(found(before, once)).toEqual([]);
    expect(warned(before, once)).toContain('the run after has fewer than two rounds');
  });

  it('show nothing within the noise of their A/A controls, however alike the rounds are', () => {
    const run = (lua: number, control: number): Results =>
      resultsOf([
        { name: 'lua', rates: [lua, lua, lua] },
        { name: 'for-update', rates: [500, 500, 500] },
        { name: 'for-update, A/A control', rates: [control, control, control], control: true },
      ]);
    const verdict = (lua: number, control: number): string[] => found(run(1_500, control), run(lua, control));
    expect([verdict(1_350, 500), verdict(1_650, 500)]).toEqual([['lua rate worse'], ['lua rate better']]);
    expect([verdict(1_350, 600), verdict(1_650, 600)]).toEqual([[], []]);
  });

  it('compare ratios that have a goal, whatever the speed of the machine', () => {
    const run = (...ratios: readonly number[]): Results => {
      const byRound = ratios.map((value, index) => [index + 1, value] as const);
      const goal = { metric: 'rate', of: 'lua', over: 'bare', atLeast: 1, atMost: null, what: 'share' };
      return { ...before, goals: [{ ...goal, value: null, byRound, verdict: 'missed' }] };
    };
    expect(found(run(0.4, 0.41, 0.42), run(0.3, 0.31, 0.29))).toEqual(['lua ÷ bare rate worse']);
    expect(found(run(0.4, 0.41, 0.42), run(0.6, 0.61, 0.62))).toEqual(['lua ÷ bare rate better']);
    expect(found(run(0.4, 0.41, 0.42), run(0.4, 0.42, 0.41))).toEqual([]);
    expect(comparisonText(compareResults(run(0.4), run(0.3), 5))).toMatch(/lua ÷ bare +rate +0\.40 → 0\.30/);
  });

  it("show every audit that became worse, also the control's, except of cells that must fail", () => {
    const failing = (name: string, oversold: number | null, unsafe = false): Results =>
      simulate({ seed: 1, cell: { [name]: { oversold, unsafe } } });
    expect(found(before, failing('lua', 3))).toEqual(['lua (audit pass → fail)']);
    expect(found(before, failing('lua', null))).toEqual(['lua (audit pass → unknown)']);
    const control = 'for-update, A/A control';
    expect(found(before, failing(control, 1))).toEqual([`${control} (audit pass → fail)`]);
    expect(found(failing('lua', null), failing('lua', 3))).toEqual(['lua (audit unknown → fail)']);
    expect(found(failing('lua', 3), before)).toEqual([]);
    expect(found(failing('lua', 0, true), failing('lua', 3, true))).toEqual([]);
    expect(regressions(compareResults(before, failing('lua', 3), 5))).toHaveLength(1);
  });
});

describe('warnings', () => {
  const dirty = `${before.commit}-dirty`;

  it.each<[string, Partial<Results>, string]>([
    ['another machine', { machine: { ...before.machine, cores: 8 } }, 'cores differs: 2 → 8'],
    [
      'another plan',
      { plan: { ...before.plan, options: { durationMs: 9 } } },
      'durationMs differs: null → 9',
    ],
    ['another generator', { generator: 'k6' }, 'generator differs: wrk → k6'],
    ['another suite', { suite: 'locks' }, 'suite differs: strategies → locks'],
    ['uncommitted changes', { commit: dirty }, 'the run after had uncommitted changes (0123456-dirty)'],
    ['a partial run', { partial: true }, 'the run after is partial'],
  ])('name %s', (_, run, text) => {
    expect(warned(before, { ...before, ...run })).toBe(text);
  });

  it('name a missing control, rows of one run alone, and results that do not count', () => {
    expect(warned(before, simulate({ seed: 2, control: false }))).toContain(
      'the run after has no A/A control',
    );
    const { summary } = before;
    const report = compareResults(before, { ...before, summary: summary.slice(0, -2) }, 5);
    expect(report.warnings.join()).toMatch(/is only in the run before/);
    const invalid = summary.map((row) => ({ ...row, invalid: 1 }));
    expect(warned(before, { ...before, summary: invalid })).toContain('5 results that do not count');
  });
});
