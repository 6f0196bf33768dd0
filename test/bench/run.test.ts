/** The plan, the summary and the run of the kit, with a suite whose trials are made up; everything else is real. */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { MissingServersError } from '../../bench/kit/environment.ts';
import { metricsOf } from '../../bench/kit/metrics.ts';
import { type CommonOptions, optionsOf, parseOptions, sized, usually } from '../../bench/kit/options.ts';
import { schedule } from '../../bench/kit/plan.ts';
import { forCommit, type Results, readResults, withLaterRows } from '../../bench/kit/results.ts';
import { runSuite } from '../../bench/kit/run.ts';
import type { CellBase, Planned, Ratio, Suite, Trial, TrialBase } from '../../bench/kit/suite.ts';
import { ratioRows, summarize } from '../../bench/kit/summary.ts';

interface Made extends TrialBase {
  readonly rate: number;
  readonly oversold: number;
  readonly verdict: 'pass' | 'fail' | 'unknown';
}

const cell = (name: string, unsafe = false): CellBase => ({ name, summary: '', unsafe, control: false });
const planned = (changes: Partial<Planned<CellBase>> = {}): Planned<CellBase> => ({
  cells: [cell('unsafe', true), cell('base'), cell('fast')],
  ...{ points: [{}], baseline: 'base', control: true, ladder: null, shown: { some: 'option' } },
  ...changes,
});

const good = (rate: number) => {
  return { point: {}, rate, oversold: 0, verdict: 'pass' as const, invalid: [], findings: [] };
};
const usual = ({ cell: { name } }: Trial<CellBase>) =>
  name === 'unsafe'
    ? { ...good(9_000), oversold: 3, verdict: 'fail' as const, findings: ['3 oversold'] }
    : good(name === 'fast' ? 300 : 100);

const suite = (
  runTrial: (trial: Trial<CellBase>) => object = usual,
  changes: Partial<Suite<null, CellBase, Made>> = {},
): Suite<null, CellBase, Made> => ({
  ...{ name: 'made-up', title: '', help: '', options: {}, rounds: 2 },
  read: () => null,
  plan: async () => planned(),
  open: async () => ({
    ...{ generator: 'none', versions: { redis: '7' } },
    runTrial: async (trial) => runTrial(trial) as Made,
  }),
  metrics: metricsOf([['rate', 'rate', '/s', '+', ({ rate }) => rate]], {}),
  checks: [{ key: 'oversold', title: 'oversold', read: ({ oversold }) => oversold }],
  curves: [],
  verdict: ({ verdict }) => verdict,
  report: {
    ...{ title: '', leadText: '', noun: 'cell', sections: [], notes: [] },
    ...{ lead: 'rate', columns: ['rate'] },
  },
  ...changes,
});

let out: string;
beforeEach(() => {
  out = mkdtempSync(join(tmpdir(), 'stampede-results-'));
});
afterEach(() => rmSync(out, { recursive: true, force: true }));

async function run(of = suite(), changes: Partial<CommonOptions> = {}, stop = new AbortController()) {
  let shown = '';
  const said: string[] = [];
  const code = await runSuite(of, null, {
    common: {
      ...{ rounds: 2, seed: 5, out, idleMs: 0, keep: false, yes: false },
      ...{ smoke: false, canonical: false },
      ...changes,
    },
    stores: { databaseUrl: undefined, redisUrl: undefined },
    out: { write: (text) => (shown += text) },
    signal: stop.signal,
    say: (line) => said.push(line),
    canonical: join(out, 'canonical'),
  });
  const results = (): Results =>
    JSON.parse(readFileSync(join(out, 'latest', 'results.json'), 'utf8')) as Results;
  return { code, shown, said, results };
}

describe('a run', () => {
  it('writes its results, points latest at them, and shows the table', async () => {
    const { code, shown, results } = await run();
    expect(code).toBe(0);
    expect(shown).toMatch(/1 +fast +300/);
    expect(shown).toMatch(/trial 1 of 8 {2}round 1 of 2 {2}unsafe: starting/);
    const { plan, trials, summary, machine } = results();
    expect(results()).toMatchObject({ schema: 2, suite: 'made-up', failures: [], partial: false });
    expect(plan).toMatchObject({ rounds: 2, seed: 5, trials: 8, options: { some: 'option' } });
    expect(plan.cells.map((one) => one.name)).toEqual(['unsafe', 'base', 'fast', 'base, A/A control']);
    expect(machine).toMatchObject({ redis: '7', postgres: 'not used', node: process.version });
    expect(trials).toHaveLength(8);
    expect(summary.map(({ cell, rank, verdict }) => `${cell}: ${rank}, ${verdict}`)).toEqual([
      ...['fast: 1, pass', 'base: 2, pass', 'unsafe: null, fail (expected)', 'base, A/A control: null, pass'],
    ]);
  });

  it.each([
    ['fast', 'fail', 'fast: the audit failed'],
    ['fast', 'unknown', 'fast: the audit could not be finished'],
    ['unsafe', 'pass', 'unsafe is declared unsafe, but this load did not show it'],
  ])('fails when the audit of %s says %s', async (name, verdict, why) => {
    const judged = (trial: Trial<CellBase>) =>
      trial.cell.name === name ? { ...usual(trial), verdict } : usual(trial);
    const { code, shown, results } = await run(suite(judged));
    expect({ code, failures: results().failures }).toEqual({ code: 1, failures: [why] });
    expect(shown).toContain(`WARNING: ${why}`);
  });

  it('continues after a failed trial, and stops after three in a row', async () => {
    const failing = (fails: (number: number) => boolean) =>
      suite((trial) => {
        if (fails(trial.number)) throw new Error('no luck');
        return usual(trial);
      });
    const { code, results, shown } = await run(failing((number) => number === 2));
    expect(code).toBe(1);
    expect(shown).toContain('FAILED: no luck');
    expect(results().trials).toHaveLength(7);
    expect(results().broken).toEqual([{ cell: 'base', round: 1, reason: 'no luck', missing: false }]);
    const off = await run(failing((number) => number > 1));
    expect(off.shown).toContain('broken off: 4 of 8 trials were finished');
    expect(off.results().broken).toHaveLength(3);
  });

  it('skips a cell whose servers are missing, without a failure', async () => {
    let tries = 0;
    const of = suite((trial) => {
      if (trial.cell.name !== 'fast') return usual(trial);
      tries++;
      throw new MissingServersError('no ZooKeeper');
    });
    const { code, results } = await run(of);
    expect({ code, tries }).toEqual({ code: 0, tries: 1 });
    expect(results().broken).toMatchObject([{ missing: true, reason: 'no ZooKeeper' }]);
  });

  it('commits only a success', async () => {
    const committed = join(out, 'canonical', 'made-up.json');
    const failed = suite(() => ({ ...good(1), verdict: 'fail' }));
    await run(failed, { canonical: true });
    expect(existsSync(committed)).toBe(false);
    await run(suite(), { canonical: true });
    expect((await readResults(committed)).summary).toHaveLength(4);
  });
});

describe('files of results', () => {
  it('are read back, rejected when invalid, and short when committed', async () => {
    await run();
    const results = await readResults(join(out, 'latest', 'results.json'));
    const other = join(import.meta.dirname, '../../package.json');
    await expect(readResults(other)).rejects.toThrow('not results of schema 2');
    const committed = JSON.parse(forCommit(results)) as Results;
    expect(committed.trials).toEqual([]);
    expect(committed.summary).toEqual(results.summary);
  });

  it('take rows of a matrix from a later run of some cells', async () => {
    await run();
    const base = await readResults(join(out, 'latest', 'results.json'));
    const made = (commit: string, names: readonly string[], more: Partial<Results> = {}): Results => {
      const cell = { tone: 'good', word: commit, figure: '', text: '', picture: null } as const;
      const rows = names.map((name) => ({ name, cells: [cell] }));
      const matrix = { title: '', noun: '', passed: null, columns: [{ title: 'killed', help: '' }], rows };
      const plan = { ...base.plan, cells: names.map((name) => ({ ...base.plan.cells[0]!, name })) };
      const summary = names.map((name) => ({ ...base.summary[0]!, cell: name, findings: [commit] }));
      return { ...base, commit, plan, summary, matrices: [matrix], ...more };
    };
    const before = made('old', ['a', 'b']);
    const joined = withLaterRows(before, made('new', ['b', 'c']))!;
    const rows = joined.matrices![0]!.rows.map(({ name, cells }) => `${name} ${cells[0]!.word}`);
    expect(rows).toEqual(['a old', 'b new', 'c new']);
    expect(joined.summary.map(({ cell, findings }) => `${cell} ${findings[0]}`)).toEqual(rows);
    expect(joined).toMatchObject({
      commit: 'old',
      later: [{ cells: ['b', 'c'], commit: 'new', machine: base.machine }],
    });
    expect(withLaterRows(before, made('new', ['a', 'b', 'c']))).toBeNull();
    expect(() => withLaterRows(before, made('new', ['a'], { matrices: [] }))).toThrow('have more rows');
    const part = made('new', ['a']);
    const once = { ...part, plan: { ...part.plan, rounds: 1 } };
    expect(() => withLaterRows(before, once)).toThrow('use --rounds 2');
  });
});

describe('the options', () => {
  const duration = usually(sized('seconds', 0.1, 9, 'how long'), '3', '0.5');
  const own = optionsOf({ duration, stock: sized('whole', 1, 9, 'units') }, (values) => values);
  const parsed = (...args: string[]) => parseOptions(own, 5, args);

  it('of a suite have their usual values, those of a smoke run, or the given ones, and no others', () => {
    const usual = { duration: 3_000, stock: undefined };
    expect(parsed()).toMatchObject({ options: usual, common: { rounds: 5, smoke: false } });
    const smoke = parsed('--smoke', '--stock', '7');
    expect(smoke).toMatchObject({ kind: 'run', common: { rounds: 1, smoke: true } });
    expect(smoke).toHaveProperty('options', { duration: 500, stock: 7 });
  });

  it('have all their mistakes reported', () => {
    const mistakes = ['--duration 10: must be a number from 0.1 to 9', '--stock needs a value: --stock n'];
    expect(parsed('--duration', '10', '--stock', '--rounds=2')).toEqual({ kind: 'mistakes', mistakes });
  });
});

describe('the plan', () => {
  it('begins each round one cell further, with the same seed for all cells of a round', () => {
    const order = schedule(planned({ control: false }), { rounds: 2, seed: 5 });
    expect(order.map(({ cell }) => cell.name).join()).toBe('unsafe,base,fast,base,fast,unsafe');
    expect(order.map(({ number, seed }) => `${number} ${seed}`).join()).toBe('1 5,2 5,3 5,4 6,5 6,6 6');
  });
});

describe('the summary', () => {
  const rows = (rates: Record<string, readonly number[]>, point = {}, changes: Partial<Made> = {}): Made[] =>
    Object.entries(rates).flatMap(([cell, all]) =>
      all.map((rate, n) => ({
        ...{ ...good(rate), cell, round: n + 1, control: cell.endsWith('control'), point },
        ...{ startedAt: '', durationMs: 1, busyBefore: 0, ...changes },
      })),
    );
  const cells = [cell('a'), cell('b'), cell('c'), { ...cell('a, A/A control'), control: true }];
  const summary = (results: Made[], ladder: Planned<CellBase>['ladder'] = null) =>
    summarize(suite(), { cells, baseline: 'a', ladder }, results);

  it('divides within a round by the mean of the baseline and its control', () => {
    const rates = { a: [90, 180, 95], b: [300, 600, 310], 'a, A/A control': [110, 220, 105] };
    const { rows: all, noise } = summary(rows(rates));
    expect(noise).toMatchObject({ baseline: 'a', control: { rounds: 3 } });
    expect(noise!.floor).toBeCloseTo(0.2222, 3);
    const b = all.find((row) => row.cell === 'b')!;
    expect(b.toBaseline).toMatchObject({ median: 3 });
    expect(b.comparison).toBe('faster');
    expect(b.values.rate!.byRound.map(String)).toEqual(['1,300', '2,600', '3,310']);
  });

  it('omits results that do not count, and ranks no cell without a passed audit', () => {
    const { rows: all } = summary([
      ...rows({ a: [100, 100] }),
      ...rows({ b: [900, 900] }, {}, { verdict: 'unknown' }),
      ...rows({ c: [500] }, {}, { invalid: ['the generator was busy'] }),
    ]);
    expect(all.map(({ cell, rank }) => `${cell} ${rank}`)).toEqual(['a 1', 'c null', 'b null']);
    expect(all[1]).toMatchObject({ invalid: 1, findings: ['round 1: not counted: the generator was busy'] });
    expect(all[1]!.values).toEqual({});
  });

  it('takes ratios within a round, at their point', () => {
    const { rows: all } = summary(rows({ a: [100, 200, 100], b: [40, 90, 45] }, { connections: 8 }));
    const ratio: Ratio = { metric: 'rate', of: 'b', over: 'a', what: '' };
    const ladder = { axis: 'connections', values: [8], lead: 8 };
    const row = (one: Ratio) => ratioRows([one], all, { cells, ladder })[0];
    expect(row(ratio)).toMatchObject({ value: { median: 0.45 } });
    expect(row({ ...ratio, of: 'c' })).toMatchObject({ value: null, byRound: [] });
    expect(row({ ...ratio, at: { connections: 64 } })).toBeUndefined();
    expect(row({ ...ratio, of: 'not planned' })).toBeUndefined();
  });
});
