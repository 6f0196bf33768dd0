import { describe, expect, it } from 'vitest';
import { optionLines, parseOptions } from '../../bench/kit/options.ts';
import { limits } from '../../bench/suites/limits/suite.ts';
import { locks } from '../../bench/suites/locks/suite.ts';
import { cellsOf, type StrategyOptions } from '../../bench/suites/strategies/options.ts';
import { strategies } from '../../bench/suites/strategies/suite.ts';
import { ALL_GUARANTEES } from '../../src/strategies/strategy.ts';

function run(...args: string[]): StrategyOptions {
  const parsed = parseOptions(strategies, args);
  if (parsed.kind !== 'run') throw new Error(JSON.stringify(parsed));
  return parsed.options;
}

function mistakes(...args: string[]): readonly string[] {
  const parsed = parseOptions(strategies, args);
  return parsed.kind === 'mistakes' ? parsed.mistakes : [];
}

describe('options', () => {
  it('have the canonical comparison as their default', () => {
    expect(parseOptions(strategies, [])).toMatchObject({
      kind: 'run',
      common: { rounds: 5, seed: 1, out: 'bench/results', smoke: false, strict: false, canonical: false },
      options: {
        strategies: 'all',
        locks: ['redis'],
        load: ['closed', 'open'],
        durationMs: 5_000,
        ladder: [64, 16, 256],
        stock: 4_000,
        points: [{ rttMs: 0, connections: 64, sales: 1 }],
      },
    });
  });

  it('are read', () => {
    const given = '--strategies lua,unsafe,lua --locks=redis,zookeeper --duration 2.5 --load=k6'.split(' ');
    expect(run(...given, '--connections', '128,32')).toMatchObject({
      strategies: ['lua', 'unsafe'],
      locks: ['redis', 'zookeeper'],
      durationMs: 2_500,
      load: ['k6'],
      ladder: [128, 32],
      points: [{ connections: 128 }],
    });
    expect(run('--sweep', 'rtt')).toMatchObject({
      load: ['closed'],
      points: [{ rttMs: 0 }, { rttMs: 1 }, { rttMs: 5 }],
    });
    expect(run('--sweep=sales', '--sales=2,4').points.map(({ sales }) => sales)).toEqual([2, 4]);
    expect(parseOptions(strategies, ['--help'])).toEqual({ kind: 'help' });
  });

  it('are rejected together, each with its error', () => {
    const given = '--rounds 0 --durations 2 --connections 1e3 --sales 1,2 --load open,wide';
    expect(mistakes(...given.split(' '))).toEqual([
      '--rounds 0: must be a whole number from 1 to 100',
      'there is no option --durations; did you mean "--duration"?',
      '--connections 1e3: must be whole numbers with commas, each from 1 to 10000',
      '"2" is not an option; --help lists them',
      '--sales 1,2: takes one number, or a list with --sweep sales',
      '--load wide: there is closed (capacity), open (selling out) and k6 (its scripts)',
    ]);
    expect(mistakes('--rounds', '2', '--rounds', '3')).toEqual(['--rounds is given twice']);
    expect(mistakes('--out')).toEqual(['--out needs a value: --out text']);
    expect(mistakes('--smoke=yes')).toEqual(['--smoke takes no value']);
    expect(mistakes('--sweep', 'stock')).toEqual(['--sweep stock: must be one of rtt, connections, sales']);
    expect(parseOptions(locks, ['--waiters', '3'])).toMatchObject({ kind: 'mistakes' });
    expect(parseOptions(limits, ['--profile', '--canonical'])).toEqual({
      kind: 'mistakes',
      mistakes: ['--profile and --trace slow the service: they go without --canonical'],
    });
  });

  it('are all in the help, in columns', () => {
    const lines = optionLines(strategies.options).split('\n');
    for (const name of ['strategies', 'rtt-ms', 'seed', 'canonical']) {
      expect(lines.filter((line) => line.startsWith(`  --${name} `) || line === `  --${name}`)).toHaveLength(
        1,
      );
    }
    expect(lines.every((line) => line.startsWith('  '))).toBe(true);
  });
});

describe('the rows of a comparison', () => {
  const guarantees = ALL_GUARANTEES;
  const entry = { summary: '', usesLock: false, store: 'postgres', guarantees } as const;
  const known = [
    { ...entry, name: 'unsafe', guarantees: { ...guarantees, neverOversells: false } },
    { ...entry, name: 'global-lock', usesLock: true },
    { ...entry, name: 'for-update' },
  ];
  const all = { strategies: 'all', locks: ['redis', 'zookeeper'], baseline: null } as const;

  it('are every strategy, once for each lock where it uses one', () => {
    const { cells, baseline } = cellsOf(all, known);
    const names = ['unsafe', 'global-lock (redis)', 'global-lock (zookeeper)', 'for-update'];
    expect(cells.map(({ name }) => name)).toEqual(names);
    expect(cells.map(({ unsafe }) => unsafe)).toEqual([true, false, false, false]);
    expect(baseline).toBe('for-update');
  });
});
