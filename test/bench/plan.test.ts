import { describe, expect, it } from 'vitest';
import { type BenchOptions, helpText, parseOptions } from '../../bench/options.ts';
import { baselineOf, type Contender, contenders, label, schedule } from '../../bench/plan.ts';
import { suggestion } from '../../src/config/suggest.ts';

function run(...args: string[]): BenchOptions {
  const parsed = parseOptions(args);
  if (parsed.kind !== 'run') throw new Error(JSON.stringify(parsed));
  return parsed.options;
}

function mistakes(...args: string[]): readonly string[] {
  const parsed = parseOptions(args);
  return parsed.kind === 'mistakes' ? parsed.mistakes : [];
}

describe('options', () => {
  it('have a canonical run as their default', () => {
    expect(run()).toEqual({
      strategies: 'all',
      locks: ['redis'],
      rounds: 5,
      durationMs: 3_000,
      warmupMs: 1_500,
      connections: 64,
      stock: 2_000,
      attempts: 20_000,
      buyers: 18_000,
      seed: 1,
      load: ['closed', 'open'],
      ratePerSecond: 250,
      rushMs: 2_000,
      baseline: null,
      sweep: null,
      points: [{ rttMs: 0, connections: 64, sales: 1 }],
      out: 'bench/results',
      keep: false,
      yes: false,
      smoke: false,
    });
  });

  it('are smaller for a smoke run, and may still be chosen', () => {
    expect(run('--smoke')).toMatchObject({
      rounds: 1,
      stock: 200,
      attempts: 1_000,
      buyers: 900,
      smoke: true,
    });
    expect(run('--smoke', '--rounds', '2')).toMatchObject({ rounds: 2, stock: 200 });
  });

  it('are read', () => {
    expect(
      run(
        '--strategies',
        'lua,unsafe,lua',
        '--locks=redis,zookeeper',
        '--duration',
        '2.5',
        '--attempts',
        '100',
      ),
    ).toMatchObject({
      strategies: ['lua', 'unsafe'],
      locks: ['redis', 'zookeeper'],
      durationMs: 2_500,
      buyers: 90,
    });
    expect(run('--attempts', '20000', '--buyers', '10000', '--keep', '--yes', '--out', 'x')).toMatchObject({
      buyers: 10_000,
      keep: true,
      yes: true,
      out: 'x',
    });
  });

  it('sweep along one axis, with the other two where they are', () => {
    const point = { rttMs: 0, connections: 64, sales: 1 };
    expect(run('--sweep', 'rtt')).toMatchObject({
      rounds: 3,
      load: ['closed'],
      sweep: 'rtt',
      points: [0, 1, 5].map((rttMs) => ({ ...point, rttMs })),
    });
    expect(run('--sweep', 'connections', '--connections', '8,32', '--rtt-ms', '0.5').points).toEqual([
      { rttMs: 0.5, connections: 8, sales: 1 },
      { rttMs: 0.5, connections: 32, sales: 1 },
    ]);
    expect(run('--sweep', 'sales', '--smoke')).toMatchObject({
      rounds: 1,
      points: [1, 10, 100].map((sales) => ({ rttMs: 0, connections: 32, sales })),
    });
    expect(run('--rtt-ms', '2').points).toEqual([{ ...point, rttMs: 2 }]);
  });

  it('show help', () => {
    expect(parseOptions(['--help'])).toEqual({ kind: 'help' });
    expect(helpText()).toContain('--connections n');
  });

  it('report every mistake at once, with a hint', () => {
    expect(
      mistakes(
        '--rouns',
        '3',
        '--stock',
        '0',
        '--load',
        'open,wide',
        '--strategies',
        'Lua; drop',
        '--duration',
        '-1',
        '--seed',
        '1',
        '--seed',
        '2',
        '--attempts',
        '20',
        '--buyers',
        '30',
        '--rounds',
      ),
    ).toEqual([
      'there is no option --rouns; did you mean "--rounds"?',
      '"3" is not an option; --help lists them',
      '--seed is given twice',
      '--rounds needs a value: --rounds n',
      '--connections 64 exceeds --attempts 20',
      '--buyers 30 exceeds --attempts 20: every buyer attempts at least once',
      '--strategies Lua; drop: must be names with commas between them, without spaces',
      '--duration -1: must be a number from 0.1 to 3600',
      '--stock 0: must be a whole number from 1 to 2147483647',
      "--load wide: there is closed (autocannon), open (a rush of the bench's own) and k6 (its scripts)",
    ]);
  });

  it.each([
    [['--rounds', '--keep'], '--rounds needs a value: --rounds n'],
    [['--rounds='], '--rounds needs a value: --rounds n'],
    [['--rounds', '3x'], '--rounds 3x: must be a whole number from 1 to 100'],
    [['--rounds', '1e2'], '--rounds 1e2: must be a whole number from 1 to 100'],
    [['--rounds', '2.5'], '--rounds 2.5: must be a whole number from 1 to 100'],
    [['--keep=yes'], '--keep takes no value'],
    [['--frobnicate'], 'there is no option --frobnicate; --help lists them'],
    [['--strategies', 'a,,b'], '--strategies a,,b: must be names with commas between them, without spaces'],
    [['--locks', 'all'], '--locks all: name the locks, such as --locks redis'],
    [['lua'], '"lua" is not an option; --help lists them'],
    [['--sweep', 'rt'], '--sweep rt: there is rtt, connections and sales'],
    [['--sweep', 'rtt', '--load', 'open'], '--load open: a sweep looks at capacity, with --load closed'],
    [['--connections', '16,64'], '--connections 16,64: takes one number, or a list with --sweep connections'],
    [['--sales', '1,x', '--sweep', 'sales'], '--sales x: must be a whole number from 1 to 1000'],
    [['--rtt-ms', '-1'], '--rtt-ms -1: must be a number from 0 to 1000'],
    [['--baseline', 'lua,unsafe'], '--baseline lua,unsafe: must be one strategy'],
  ])('refuse %j', (args, message) => {
    expect(mistakes(...args)).toContain(message);
  });
});

const catalogue = [
  { name: 'unsafe', usesLock: false, neverOversells: false },
  { name: 'global-lock', usesLock: true, neverOversells: true },
  { name: 'lua', usesLock: false, neverOversells: true },
];

const wanted = { strategies: 'all' as const, locks: ['redis'], baseline: null, rounds: 1, sweep: null };
const point = { rttMs: 0, connections: 64, sales: 1 };

describe('the plan', () => {
  it('has a strategy that uses a lock once for each lock', () => {
    const { rows, mistakes } = contenders({ ...wanted, locks: ['redis', 'redlock'] }, catalogue);
    expect(mistakes).toEqual([]);
    expect(rows.map(label)).toEqual(['unsafe', 'global-lock (redis)', 'global-lock (redlock)', 'lua']);
    expect(rows.map(({ unsafe }) => unsafe)).toEqual([true, false, false, false]);
  });

  it('keeps the order that was asked for', () => {
    const { rows } = contenders({ ...wanted, strategies: ['lua', 'unsafe'] }, catalogue);
    expect(rows.map(({ strategy }) => strategy)).toEqual(['lua', 'unsafe']);
  });

  it('names every unknown strategy, with the nearest one', () => {
    expect(contenders({ ...wanted, strategies: ['lau', 'global-lok', 'lua'] }, catalogue).mistakes).toEqual([
      '--strategies: there is no strategy "lau"; did you mean "lua"?',
      '--strategies: there is no strategy "global-lok"; did you mean "global-lock"?',
    ]);
  });

  it('rotates the order every round, and gives all strategies of a round the same seed', () => {
    const { rows } = contenders(wanted, catalogue);
    const trials = schedule(rows, { rounds: 4, seed: 10, points: [point] });
    expect(trials.map(({ number }) => number)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    const inRound = (round: number): string[] =>
      trials.filter((trial) => trial.round === round).map(({ strategy }) => strategy);
    expect([1, 2, 3, 4].map(inRound)).toEqual([
      ['unsafe', 'global-lock', 'lua'],
      ['global-lock', 'lua', 'unsafe'],
      ['lua', 'unsafe', 'global-lock'],
      ['unsafe', 'global-lock', 'lua'],
    ]);
    expect(trials.map(({ seed }) => seed)).toEqual([10, 10, 10, 11, 11, 11, 12, 12, 12, 13, 13, 13]);
  });
});

describe('the baseline', () => {
  const names = (rows: readonly Contender[]): string[] => rows.map(label);

  it('has a twin where several rounds can tell noise', () => {
    expect(names(contenders({ ...wanted, rounds: 5 }, catalogue).rows)).toEqual([
      'unsafe',
      'global-lock (redis)',
      'lua',
      'global-lock (redis), again',
    ]);
    expect(names(contenders({ ...wanted, rounds: 5, baseline: 'lua' }, catalogue).rows).at(-1)).toBe(
      'lua, again',
    );
    expect(names(contenders({ ...wanted, rounds: 5, sweep: 'rtt' }, catalogue).rows)).toHaveLength(3);
    expect(names(contenders({ ...wanted, rounds: 5, strategies: ['lua'] }, catalogue).rows)).toEqual(['lua']);
  });

  it('is the one that was asked for, else for-update, else the first safe one', () => {
    const { rows } = contenders(wanted, [
      ...catalogue,
      { name: 'for-update', usesLock: false, neverOversells: true },
    ]);
    expect(baselineOf(rows, 'lua')?.strategy).toBe('lua');
    expect(baselineOf(rows, null)?.strategy).toBe('for-update');
    expect(baselineOf(rows.slice(0, 3), null)?.strategy).toBe('global-lock');
    expect(baselineOf([], null)).toBeNull();
  });

  it('must be among those that are compared', () => {
    expect(
      contenders({ ...wanted, strategies: ['lua'], baseline: 'for-update' }, catalogue).mistakes,
    ).toEqual(['--baseline: "for-update" is not among the strategies that are compared']);
  });

  it('is measured at every point of a sweep, in every round', () => {
    const { rows } = contenders({ ...wanted, strategies: ['lua', 'unsafe'] }, catalogue);
    const points = [0, 5].map((rttMs) => ({ ...point, rttMs }));
    const trials = schedule(rows, { rounds: 2, seed: 1, points });
    expect(trials.map((trial) => `${trial.round} ${trial.point.rttMs} ${trial.strategy}`)).toEqual([
      '1 0 lua',
      '1 0 unsafe',
      '1 5 lua',
      '1 5 unsafe',
      '2 0 unsafe',
      '2 0 lua',
      '2 5 unsafe',
      '2 5 lua',
    ]);
  });
});

describe('a suggestion', () => {
  it.each([
    ['for-updte', '; did you mean "for-update"?'],
    ['LUA', '; did you mean "lua"?'],
    ['completely-else', '; known names: lua, for-update'],
  ])('%s', (name, expected) => {
    expect(suggestion(name, ['lua', 'for-update'])).toBe(expected);
  });
});
