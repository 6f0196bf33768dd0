/** Two runs side by side: what counts as a change, and what does not. */
import { describe, expect, it } from 'vitest';
import { compareResults, regressions } from '../../bench/kit/compare.ts';
import type { Results } from '../../bench/kit/results.ts';
import { type Random, seededRandom } from '../../lab/kit/random.ts';
import { type MadeUpCell, resultsOf } from './report-fixture.ts';

/** Log-normal with median 1, by Box and Muller. */
function lognormal(random: Random, deviation: number): number {
  return Math.exp(deviation * Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random()));
}

/** accepted/s and p99 relative to the baseline. */
const cells: Readonly<Record<string, readonly [speed: number, p99: number]>> = {
  'for-update': [1, 1],
  lua: [3, 0.4],
  'unique-key': [1.4, 0.8],
  'global-lock (redis)': [0.3, 4],
};
const control = 'for-update, A/A control';

interface Simulation {
  /** Relative speed of the machine. */
  readonly speed?: number;
  /** Factor on the accepted/s of `lua`. */
  readonly lua?: number;
  readonly rounds?: number;
  readonly isControlled?: boolean;
  /** Changes to a cell. */
  readonly cell?: Readonly<Record<string, Partial<MadeUpCell>>>;
}

/** Rounds differ in speed (30 %), and each trial has its own noise (3 %, and 5 % for the p99). */
function simulate(seed: number, simulation: Simulation = {}): Results {
  const { speed = 1, lua = 1, rounds = 5, isControlled = true, cell = {} } = simulation;
  const random = seededRandom(seed);
  const machine = Array.from({ length: rounds }, () => speed * lognormal(random, 0.3));
  const made = (name: string, like: string): MadeUpCell => {
    const [times, p99] = cells[like]!;
    const factor = times * (name === 'lua' ? lua : 1);
    return {
      ...{ name, control: name === control },
      rates: machine.map((own) => 1_000 * factor * own * lognormal(random, 0.03)),
      p99: machine.map((own) => ((20 * p99) / own) * lognormal(random, 0.05)),
      ...cell[name],
    };
  };
  const controls = isControlled ? [made(control, 'for-update')] : [];
  return resultsOf([...Object.keys(cells).map((name) => made(name, name)), ...controls]);
}

const found = (before: Results, after: Results, margin = 5): string[] => {
  const { changes, audits } = compareResults(before, after, margin);
  const beyond = changes.filter(({ verdict }) => verdict !== 'tie');
  return [...beyond.map(({ row, metric, verdict }) => `${row} ${metric.key} ${verdict}`), ...audits];
};
const warned = (before: Results, after: Results): string =>
  compareResults(before, after, 5).warnings.join('; ');

const before = simulate(1);

describe('two runs', () => {
  it('of the same code differ in nothing, however fast the machine was; a cell that became 15 % slower is named', () => {
    const pairs = Array.from({ length: 8 }, (_, n) => {
      const [one, speed] = [simulate(2_000 + n), n % 2 === 0 ? 1 : 0.5];
      const slower = found(one, simulate(5_000 + n, { speed, lua: 0.85 }));
      return [found(one, simulate(3_000 + n, { speed })), slower.includes('lua rate worse')];
    });
    expect(pairs).toEqual(pairs.map(() => [[], true]));
    const { baseline, warnings } = compareResults(before, simulate(2, { speed: 0.4 }), 5);
    expect({ baseline, warnings }).toEqual({ baseline: 'for-update', warnings: [] });
  });

  it('show nothing that is smaller than the margin, and nothing from one round', () => {
    const after = simulate(2, { lua: 0.8 });
    expect([found(before, after, 5), found(before, after, 30)]).toEqual([['lua rate worse'], []]);
    const once = simulate(2, { rounds: 1, isControlled: false, lua: 0.5 });
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

  it("show every audit that became worse, also the control's, except of cells that must fail", () => {
    const failing = (name: string, oversold: number | null, unsafe = false): Results =>
      simulate(1, { cell: { [name]: { oversold, unsafe } } });
    const lua = failing('lua', 3);
    expect(found(before, lua)).toEqual(['lua (audit pass → fail)']);
    expect(found(before, failing(control, null))).toEqual([`${control} (audit pass → unknown)`]);
    expect(found(failing('lua', null), lua)).toEqual(['lua (audit unknown → fail)']);
    expect(found(lua, before)).toEqual([]);
    expect(found(failing('lua', 0, true), failing('lua', 3, true))).toEqual([]);
    expect(regressions(compareResults(before, lua, 5))).toHaveLength(1);
  });
});

it('warnings name what makes two runs less comparable', () => {
  const { machine, plan, summary } = before;
  const run: Partial<Results> = {
    ...{ machine: { ...machine, cores: 8 }, plan: { ...plan, options: { stock: 9 } }, suite: 'locks' },
    ...{ commit: 'abc-dirty', partial: true, noise: null },
    summary: summary.slice(0, 3).map((row) => ({ ...row, invalid: 1 })),
  };
  const { warnings } = compareResults(before, { ...before, ...run }, 5);
  expect(warnings).toEqual([
    ...['suite differs: strategies → locks', 'cores differs: 2 → 8', 'stock differs: null → 9'],
    ...['the run after is partial', 'the run after had uncommitted changes (abc-dirty)'],
    ...['the run after has no A/A control: a tie may look like a change'],
    ...['the run after has 3 results that do not count', 'global-lock (redis) is only in the run before'],
  ]);
});
