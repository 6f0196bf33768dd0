import { describe, expect, it } from 'vitest';
import { type BenchOptions, helpText, parseOptions } from '../../bench/options.ts';
import { contenders, label, schedule } from '../../bench/plan.ts';
import { suggestion } from '../../bench/suggest.ts';

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
      rounds: 3,
      durationMs: 10_000,
      warmupMs: 3_000,
      connections: 64,
      stock: 2_000,
      attempts: 20_000,
      buyers: 18_000,
      seed: 1,
      load: 'closed',
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
        'open',
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
      '--load open: does not exist in this version; there is closed (closed loop with autocannon)',
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
  ])('refuse %j', (args, message) => {
    expect(mistakes(...args)).toContain(message);
  });
});

const catalogue = [
  { name: 'unsafe', usesLock: false, neverOversells: false },
  { name: 'global-lock', usesLock: true, neverOversells: true },
  { name: 'lua', usesLock: false, neverOversells: true },
];

describe('the plan', () => {
  it('has a strategy that uses a lock once for each lock', () => {
    const { rows, mistakes } = contenders({ strategies: 'all', locks: ['redis', 'redlock'] }, catalogue);
    expect(mistakes).toEqual([]);
    expect(rows.map(label)).toEqual(['unsafe', 'global-lock (redis)', 'global-lock (redlock)', 'lua']);
    expect(rows.map(({ unsafe }) => unsafe)).toEqual([true, false, false, false]);
  });

  it('keeps the order that was asked for', () => {
    const { rows } = contenders({ strategies: ['lua', 'unsafe'], locks: ['redis'] }, catalogue);
    expect(rows.map(({ strategy }) => strategy)).toEqual(['lua', 'unsafe']);
  });

  it('names every unknown strategy, with the nearest one', () => {
    expect(
      contenders({ strategies: ['lau', 'global-lok', 'lua'], locks: ['redis'] }, catalogue).mistakes,
    ).toEqual([
      '--strategies: there is no strategy "lau"; did you mean "lua"?',
      '--strategies: there is no strategy "global-lok"; did you mean "global-lock"?',
    ]);
  });

  it('rotates the order every round, and gives all strategies of a round the same seed', () => {
    const { rows } = contenders({ strategies: 'all', locks: ['redis'] }, catalogue);
    const trials = schedule(rows, 4, 10);
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

describe('a suggestion', () => {
  it.each([
    ['for-updte', '; did you mean "for-update"?'],
    ['LUA', '; there are lua, for-update'],
    ['completely-else', '; there are lua, for-update'],
  ])('%s', (name, expected) => {
    expect(suggestion(name, ['lua', 'for-update'])).toBe(expected);
  });
});
