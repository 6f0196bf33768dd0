import { describe, expect, it } from 'vitest';
import { parseOptions } from '../../bench/kit/options.ts';
import { limits } from '../../bench/suites/limits/suite.ts';
import { cellsOf } from '../../bench/suites/strategies/options.ts';
import { strategies } from '../../bench/suites/strategies/suite.ts';
import { ALL_GUARANTEES } from '../../src/strategies/strategy.ts';

const parse = (text: string) => parseOptions(strategies, text.split(' ').filter(Boolean));

describe('options', () => {
  it('have the canonical comparison as their default', () => {
    expect(parse('')).toMatchObject({
      kind: 'run',
      common: { rounds: 5, seed: 1, out: 'bench/results', smoke: false, strict: false, canonical: false },
      options: {
        ...{ strategies: 'all', locks: ['redis'], load: ['closed', 'open'], durationMs: 5_000, stock: 4_000 },
        ...{ ladder: [64, 16, 256], points: [{ rttMs: 0, connections: 64, sales: 1 }] },
      },
    });
  });

  it('are read: lists, times, ladders and sweeps', () => {
    expect(parse('--strategies lua,unsafe,lua --duration 2.5 --load=k6 --connections 128,32')).toMatchObject({
      options: { strategies: ['lua', 'unsafe'], durationMs: 2_500, load: ['k6'], ladder: [128, 32] },
    });
    const sweep = { load: ['closed'], points: [{ sales: 2 }, { sales: 4 }] };
    expect(parse('--sweep=sales --sales=2,4')).toMatchObject({ kind: 'run', options: sweep });
  });

  it('are rejected together, each with its error', () => {
    const given =
      '--rounds 0 --durations 2 --connections 1e3 --sales 1,2 --load open,wide --seed 1 --seed 2 --smoke=yes ' +
      '--sweep stock --out';
    expect(parse(given)).toEqual({
      kind: 'mistakes',
      mistakes: [
        '--rounds 0: must be a whole number from 1 to 100',
        'there is no option --durations; did you mean "--duration"?',
        '--connections 1e3: must be whole numbers with commas, each from 1 to 10000',
        '--seed is given twice',
        '--smoke takes no value',
        '--sweep stock: must be one of rtt, connections, sales',
        '--out needs a value: --out text',
        '"2" is not an option; --help lists them',
        '--sales 1,2: takes one number, or a list with --sweep sales',
        '--load wide: there is closed (capacity), open (selling out) and k6 (its scripts)',
      ],
    });
    expect(parseOptions(limits, ['--profile', '--canonical'])).toEqual({
      kind: 'mistakes',
      mistakes: ['--profile and --trace slow the service: they go without --canonical'],
    });
  });
});

it('the rows of a comparison are every strategy, once for each lock where it uses one', () => {
  const entry = { summary: '', usesLock: false, store: 'postgres', guarantees: ALL_GUARANTEES } as const;
  const known = [
    { ...entry, name: 'unsafe', guarantees: { ...ALL_GUARANTEES, neverOversells: false } },
    { ...entry, name: 'global-lock', usesLock: true },
    { ...entry, name: 'for-update' },
  ];
  const all = { strategies: 'all', locks: ['redis', 'zookeeper'], baseline: null } as const;
  const { cells, baseline } = cellsOf(all, known);
  expect(cells.map(({ name, unsafe }) => `${name} ${unsafe}`)).toEqual([
    ...['unsafe true', 'global-lock (redis) false', 'global-lock (zookeeper) false', 'for-update false'],
  ]);
  expect(baseline).toBe('for-update');
});
