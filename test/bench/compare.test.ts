/** Two runs side by side: what is told as a change, and what is not. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, it, vi } from 'vitest';
import { compareCommand, compareResults, comparisonText, regressions } from '../../bench/compare.ts';
import { type Random, seededRandom } from '../../bench/kit/random.ts';
import type { Results } from '../../bench/report/results.ts';
import type { TrialResult } from '../../bench/result.ts';
import { trialOf, usualOptions } from './trial-of.ts';

const folder = mkdtempSync(join(tmpdir(), 'stampede-compare-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
afterEach(() => vi.restoreAllMocks());

/** By Box and Muller. */
function lognormal(random: Random, deviation: number): number {
  return Math.exp(deviation * Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random()));
}

/** accepted/s and p99 of each strategy beside the baseline, which is the first. */
const strategies: Readonly<Record<string, { readonly speed: number; readonly p99: number }>> = {
  'for-update': { speed: 1, p99: 1 },
  lua: { speed: 3, p99: 0.4 },
  'unique-key': { speed: 1.4, p99: 0.8 },
  'global-lock': { speed: 0.3, p99: 4 },
};

interface Simulation {
  readonly seed: number;
  /** Of the machine. */
  readonly speed?: number;
  /** Factors on a strategy's accepted/s. */
  readonly faster?: Readonly<Record<string, number>>;
  /** Factors on a strategy's p99. */
  readonly slowerP99?: Readonly<Record<string, number>>;
  readonly rounds?: number;
  readonly twin?: boolean;
}

/** Rounds that are not equally fast (30 %), and trials with noise of their own (3 %, and 5 % of their p99). */
function simulate({
  seed,
  speed = 1,
  faster = {},
  slowerP99 = {},
  rounds = 5,
  twin = true,
}: Simulation): Results {
  const random = seededRandom(seed);
  const names = Object.keys(strategies);
  const rows = [
    ...names.map((name) => ({ name, twin: false })),
    ...(twin ? [{ name: names[0]!, twin }] : []),
  ];
  const trials: TrialResult[] = [];
  for (let round = 1; round <= rounds; round++) {
    const machine = speed * lognormal(random, 0.3);
    for (const row of rows) {
      const own = strategies[row.name]!;
      const lock = row.name === 'global-lock' ? 'redis' : null;
      const shared = { strategy: row.name, lock, twin: row.twin, round };
      const rate = 1_000 * own.speed * (faster[row.name] ?? 1) * machine * lognormal(random, 0.03);
      const p99 = ((20 * own.p99 * (slowerP99[row.name] ?? 1)) / machine) * lognormal(random, 0.05);
      trials.push(trialOf({ ...shared, acceptedPerSecond: rate }));
      trials.push(
        trialOf({
          ...shared,
          load: 'open',
          rush: {
            rate: 'fixed',
            perSecond: 250,
            scheduled: 500,
            dropped: 0,
            lagMs: { p50: 0, p99: 1, max: 2 },
          },
          acceptedLatencyMs: { p50: p99 / 4, p90: p99 / 2, p99, max: p99 },
        }),
      );
    }
  }
  return resultsOf(trials, { rounds });
}

function resultsOf(trials: readonly TrialResult[], plan: Partial<Results['plan']> = {}): Results {
  return {
    schema: 1,
    startedAt: '2026-11-21T07:38:00.000Z',
    finishedAt: '2026-11-21T07:48:00.000Z',
    partial: false,
    commit: '0123456789abcdef0123456789abcdef01234567',
    machine: {
      cpu: 'A CPU',
      cores: 2,
      memoryBytes: 8 * 2 ** 30,
      os: 'Linux',
      node: 'v20.19.0',
      postgres: '18.4',
      redis: '7.0',
    },
    plan: {
      ...usualOptions(),
      contenders: [],
      trials: trials.length,
      serviceEnv: {},
      ...plan,
    },
    trials,
    summary: [],
    noise: null,
    shortcomings: [],
  };
}

const withTrials = (results: Results, change: (trial: TrialResult) => TrialResult): Results => ({
  ...results,
  trials: results.trials.map(change),
});

const found = (before: Results, after: Results, margin = 5): string[] =>
  compareResults(before, after, margin).rows.flatMap(({ name, throughput, p99, auditWorse }) => [
    ...(throughput && throughput.verdict !== 'tie' ? [`${name} ${throughput.verdict}`] : []),
    ...(p99 && p99.verdict !== 'tie' ? [`${name} p99 ${p99.verdict}`] : []),
    ...(auditWorse ? [`${name} audit`] : []),
  ]);

const before = simulate({ seed: 1 });

describe('two runs', () => {
  it('of the same code differ in nothing, however fast the machine was', () => {
    const report = compareResults(before, simulate({ seed: 2, speed: 0.4 }), 5);
    expect(report.baseline).toBe('for-update');
    expect(report.sameSpeed).toBe(false);
    expect(report.warnings).toEqual([]);
    expect(regressions(report)).toEqual([]);
    const lua = report.rows.find(({ name }) => name === 'lua')!;
    expect(lua.acceptedPerSecond!.quotient.median).toBeLessThan(0.8);
    expect(lua.throughput!.quotient.median).toBeCloseTo(1, 1);
    expect(lua.throughput!.before).toBeCloseTo(3, 0);
    expect(report.rows.map(({ isBaseline }) => isBaseline)).toEqual([true, false, false, false]);
    expect(report.rows[0]).toMatchObject({ throughput: null, p99: null });
    expect(found(before, before)).toEqual([]);
  });

  it('of the same code differ in nothing in 19 of 20 pairs, with three strategies and two figures', () => {
    const pairs = Array.from({ length: 100 }, (_, n) => n);
    const wrong = pairs.filter((n) => {
      const after = simulate({ seed: 3_000 + n, speed: n % 2 === 0 ? 1 : 0.5 });
      return found(simulate({ seed: 2_000 + n }), after).length > 0;
    });
    expect(wrong.length, `${wrong.length} of 100 pairs`).toBeLessThanOrEqual(5);
  });

  it('tell a strategy that became 15 % slower, and which one, in 9 of 10 pairs', () => {
    const pairs = Array.from({ length: 100 }, (_, n) => n);
    const right = pairs.filter((n) => {
      const after = simulate({ seed: 5_000 + n, speed: 0.7, faster: { lua: 0.85 } });
      return found(simulate({ seed: 4_000 + n }), after).includes('lua worse');
    });
    expect(right.length, `${right.length} of 100 pairs`).toBeGreaterThanOrEqual(90);
  });

  it('tell what became faster, and a p99 that became higher or lower', () => {
    const after = simulate({
      seed: 2,
      speed: 1.5,
      faster: { lua: 1.3 },
      slowerP99: { 'unique-key': 1.6, 'global-lock': 0.6 },
    });
    expect(found(before, after)).toEqual([
      'lua better',
      'unique-key p99 worse',
      'global-lock (redis) p99 better',
    ]);
  });

  it('tell nothing that is smaller than the margin', () => {
    const after = simulate({ seed: 2, faster: { lua: 0.8 } });
    expect(found(before, after, 5)).toEqual(['lua worse']);
    expect(found(before, after, 30)).toEqual([]);
  });

  it('tell every audit that became worse, whatever the figures and in whatever load or twin', () => {
    const failing = (strategy: string, twin: boolean, verdict: 'fail' | 'unknown') =>
      withTrials(before, (trial) =>
        trial.strategy === strategy && trial.twin === twin && trial.round === 2 && trial.load === 'open'
          ? { ...trial, audit: { ...trial.audit, verdict } }
          : trial,
      );
    expect(found(before, failing('lua', false, 'fail'))).toEqual(['lua audit']);
    expect(found(before, failing('lua', false, 'unknown'))).toEqual(['lua audit']);
    expect(found(before, failing('for-update', true, 'fail'))).toEqual(['for-update audit']);
    expect(found(failing('lua', false, 'unknown'), failing('lua', false, 'fail'))).toEqual(['lua audit']);
    expect(found(failing('lua', false, 'fail'), before)).toEqual([]);
    expect(found(failing('lua', false, 'fail'), failing('lua', false, 'fail'))).toEqual([]);
    const died = withTrials(before, (trial) => ({ ...trial, serviceDied: trial.strategy === 'lua' }));
    expect(found(before, died)).toEqual(['lua audit']);
  });

  it('do not ask an unsafe strategy for a good audit', () => {
    const unsafe = (verdict: 'pass' | 'fail') =>
      withTrials(before, (trial) =>
        trial.strategy === 'lua' ? { ...trial, unsafe: true, audit: { ...trial.audit, verdict } } : trial,
      );
    expect(found(unsafe('pass'), unsafe('fail'))).toEqual([]);
  });

  it('leave out loads whose generator was the bottleneck', () => {
    const busy = withTrials(simulate({ seed: 2 }), (trial) =>
      trial.strategy === 'lua' && trial.round < 3
        ? { ...trial, acceptedPerSecond: 1, invalid: ['the generator was busy'] }
        : trial,
    );
    expect(found(before, busy)).toEqual([]);
    const report = compareResults(before, busy, 5);
    expect(report.warnings).toEqual([
      '4 loads of the run after are left out: the generator was the bottleneck',
    ]);
    expect(report.rows.find(({ name }) => name === 'lua')?.throughput?.quotient.rounds).toBe(3);
  });

  it('suspect the baseline when everything else moved the same way', () => {
    const report = compareResults(before, simulate({ seed: 2, faster: { 'for-update': 0.6 } }), 5);
    expect(report.warnings).toEqual([
      'every strategy changed the same way: rather than they, for-update may have become slower',
    ]);
  });

  it('name what is in one of them only, and divide by what is in both', () => {
    const without = (name: string) => {
      const results = simulate({ seed: 2 });
      return { ...results, trials: results.trials.filter(({ strategy }) => strategy !== name) };
    };
    const added = compareResults(without('lua'), before, 5);
    expect(added.warnings).toEqual(['lua is only in the run after']);
    expect(added.rows.find(({ name }) => name === 'lua')).toMatchObject({
      onlyIn: 'after',
      verdict: { before: null, after: 'pass' },
      throughput: null,
      auditWorse: false,
    });
    expect(compareResults(before, without('for-update'), 5).baseline).toBe('lua');
    const nothing = compareResults(before, resultsOf([trialOf({ strategy: 'other' })]), 5);
    expect(nothing.baseline).toBeNull();
    expect(nothing.warnings).toContain('no strategy is in both runs');
    expect(comparisonText(nothing)).toContain('only before');
  });

  it('are warned of when machine, plan or rounds make them less comparable', () => {
    const after = simulate({ seed: 2, rounds: 3, twin: false });
    const { warnings } = compareResults(
      before,
      {
        ...after,
        partial: true,
        machine: { ...after.machine, cores: 8 },
        plan: { ...after.plan, stock: 500, points: [{ rttMs: 5, connections: 64, sales: 1 }] },
      },
      5,
    );
    expect(warnings).toEqual([
      'the machines differ: cores 2 → 8',
      'the plans differ: rounds 5 → 3, stock 2000 → 500, rttMs 0 → 5',
      'the run after is partial: 3 of 3 rounds were begun',
      'the run after measured nothing twice: how noisy it was is not known, and a tie may be told as a change',
    ]);
    const single = compareResults(before, simulate({ seed: 2, rounds: 1, faster: { lua: 0.3 } }), 5);
    expect(single.warnings).toContain(
      'the run after has fewer than two rounds, which tell nothing from noise: only audits are compared',
    );
    expect(regressions(single)).toEqual([]);
  });

  it('with sweeps are compared point by point, each with its own baseline', () => {
    const sweep = (seed: number, faster: Simulation['faster'] = {}): Results => {
      const near = simulate({ seed, twin: false });
      const far = simulate({ seed: seed + 50, twin: false, speed: 0.2, faster });
      const point = { rttMs: 5, connections: 64, sales: 1 };
      return { ...near, trials: [...near.trials, ...far.trials.map((trial) => ({ ...trial, point }))] };
    };
    const report = compareResults(sweep(1), sweep(2, { lua: 0.6 }), 10);
    expect(report.rows).toHaveLength(8);
    expect(regressions(report).map(({ name }) => name)).toEqual(['lua, 5 ms away']);
  });
});

describe('the text of a comparison', () => {
  it('says what to beware of, what was measured, and what was found', () => {
    const after = simulate({ seed: 2, speed: 0.4, faster: { lua: 0.7, 'unique-key': 1.4 } });
    const failed = withTrials(after, (trial) =>
      trial.lock === 'redis' ? { ...trial, audit: { ...trial.audit, verdict: 'fail' } } : trial,
    );
    const text = comparisonText(
      compareResults(before, { ...failed, commit: `${'fedcba9876'.repeat(4)}-dirty` }, 5),
    );
    expect(text).toContain('before: 0123456 of 2026-11-21 07:38 UTC');
    expect(text).toContain('after:  fedcba9-dirty of');
    expect(text).toMatch(
      /^lua +[\d,]+ → [\d,]+ \* +3\.\d\d → 2\.\d\d +−\d+ % \(−\d+ % … −\d+ %\) .* pass +slower$/m,
    );
    expect(text).toMatch(/^global-lock \(redis\) .* pass → fail +audit worse$/m);
    expect(text).toContain('* not the same machine speed, or for-update itself changed');
    expect(text).toContain('Regression: lua (slower); global-lock (redis) (audit worse).');
    expect(text).toContain('Better: unique-key (faster).');
  });

  it('says so when there is nothing to say', () => {
    const text = comparisonText(compareResults(before, simulate({ seed: 2 }), 5));
    expect(text).not.toContain('!');
    expect(text).toMatch(/Nothing changed beyond noise\.$/);
  });
});

describe('--compare', () => {
  const write = (name: string, content: unknown): string => {
    const path = join(folder, name);
    writeFileSync(path, typeof content === 'string' ? content : JSON.stringify(content));
    return path;
  };
  const old = write('before.json', before);
  const run = async (...args: string[]): Promise<{ code: number; out: string; errors: string }> => {
    const out = vi.spyOn(process.stdout, 'write').mockReturnValue(true);
    const errors = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
    const code = await compareCommand(args);
    const text = (spy: typeof out): string => spy.mock.calls.map(([chunk]) => String(chunk)).join('');
    return { code, out: text(out), errors: text(errors) };
  };

  it('exits with 1 for a regression only when asked to', async () => {
    const slower = write('slower.json', simulate({ seed: 2, speed: 0.7, faster: { lua: 0.85 } }));
    expect(await run(old, slower)).toMatchObject({ code: 0, errors: '' });
    const strict = await run(old, slower, '--fail-on-regression');
    expect(strict).toMatchObject({ code: 1, errors: '' });
    expect(strict.out).toContain('Regression: lua (slower).');
    expect(await run('--fail-on-regression', '--margin', '30', old, slower)).toMatchObject({ code: 0 });
  });

  it('exits with 1 for an audit that became worse, and with 0 for what became faster', async () => {
    const failed = withTrials(before, (trial) =>
      trial.strategy === 'lua' ? { ...trial, audit: { ...trial.audit, verdict: 'fail' } } : trial,
    );
    const worse = write('worse.json', failed);
    expect(await run(old, worse, '--fail-on-regression')).toMatchObject({ code: 1 });
    const faster = write('faster.json', simulate({ seed: 2, faster: { lua: 1.5 } }));
    expect(await run(old, faster, '--fail-on-regression')).toMatchObject({ code: 0 });
  });

  it.each<[string, string[], RegExp]>([
    ['no file', [], /needs two files, the older one first: .*there are 0/],
    ['one file', [old], /there is 1/],
    ['three files', [old, old, old], /there are 3/],
    ['a file that is not there', [old, join(folder, 'none.json')], /none\.json .*results\.json of a run/],
    ['a folder', [old, folder], /name the results\.json/],
    [
      'what is not JSON',
      [old, write('text.json', 'hello')],
      /text\.json is not JSON: name the results\.json/,
    ],
    [
      'another schema',
      [old, write('schema.json', { ...before, schema: 2 })],
      /schema 2: this version reads schema 1/,
    ],
    ['another kind of file', [old, write('other.json', { schema: 1 })], /not a results\.json/],
    ['an option that is not there', [old, old, '--fail-on-regresion'], /did you mean "--fail-on-regression"/],
    ['a wrong margin', [old, old, '--margin', 'much'], /--margin much: must be a number from 0 to 100/],
  ])('refuses %s with 2, and says what to do', async (_name, args, hint) => {
    const { code, out, errors } = await run(...args);
    expect({ code, out }).toEqual({ code: 2, out: '' });
    expect(errors).toMatch(hint);
  });

  it('tells all mistakes together, and has a help', async () => {
    const { errors } = await run(join(folder, 'a.json'), join(folder, 'b.json'));
    expect(errors).toMatch(/a\.json[\s\S]*b\.json/);
    const help = await run('--help');
    expect(help).toMatchObject({ code: 0 });
    expect(help.out).toContain('--fail-on-regression');
  });
});
