/** What reports say of given results: the sentence, ranks, cells without a rank, and what may not be concluded. */
import { describe, expect, it } from 'vitest';
import { htmlReport, markdownReport, terminalReport } from '../../bench/kit/report/index.ts';
import { figure, withUnit } from '../../bench/kit/report/numbers.ts';
import { mainTable, shortTable, sweepTable } from '../../bench/kit/report/table.ts';
import { notices, sentence } from '../../bench/kit/report/words.ts';
import type { Results } from '../../bench/kit/results.ts';
import { layout, type MadeUpCell, onLadder, resultsOf, usual } from './report-fixture.ts';

const whole = resultsOf(usual);
const ranks = (results: Results): string[] =>
  mainTable(results, results.summary).rows.map(([rank, name]) => `${rank} ${name}`);
const changed = (name: string, change: Partial<MadeUpCell>): MadeUpCell[] =>
  usual.map((cell) => (cell.name === name ? { ...cell, ...change } : cell));

describe('the sentence', () => {
  it('says what passed, what failed as expected, and what leads by how much', () => {
    expect(sentence(whole)).toBe(
      '4 of 4 safe strategies sold exactly the stock; unsafe failed, as it must (48 oversold). ' +
        'First: lua with 3,000 accepted attempts a second, 5.97 times for-update.',
    );
  });

  it('names a tie at the top, and no winner', () => {
    const tie = resultsOf(usual.filter(({ name }) => name !== 'lua'));
    expect(sentence(tie)).toContain('Tied for first: skip-locked, unique-key, up to 1,500');
  });

  it('counts goals, and says that nothing was finished', () => {
    const goal = { metric: 'rate', of: 'lua', over: 'for-update', atMost: null, what: 'speed', byRound: [] };
    const value = { median: 6, low: 5, high: 7, rounds: 3 };
    const goals = [
      { ...goal, atLeast: 5, value, verdict: 'reached' as const },
      { ...goal, atLeast: 8, value, verdict: 'missed' as const, of: 'unique-key' },
    ];
    expect(sentence({ ...whole, goals })).toContain(
      '1 of 2 goals reached; not reached: unique-key ÷ for-update.',
    );
    expect(terminalReport({ ...whole, goals })).toMatch(
      /lua ÷ for-update +at least 5\.00 +6\.00 +5\.00 … 7\.00 +✓ reached/,
    );
    expect(sentence({ ...whole, goals, smoke: true })).not.toContain('goals');
    expect(sentence({ ...whole, summary: [] })).toBe('No trial was finished.');
  });

  it('names the best of all when each may have its own number of connections', () => {
    const results = onLadder(1.5, (cell) =>
      cell.name === 'skip-locked' ? { ...cell, rates: [9_000, 9_100] } : cell,
    );
    expect(sentence(results)).toContain('First: lua with 3,000 accepted attempts a second at 64 connections');
    expect(sentence(results)).toContain('Each at its best: skip-locked with 9,050 at 256.');
    expect(shortTable(results, ['p99']).rows[0]).toEqual(['lua', '3,000', '4,500 at 256', '12.0', 'pass']);
    expect(sweepTable([results], 'connections', 'rate')?.rows[0]).toEqual(['lua', '3,000', '4,500']);
  });
});

describe('the ranking', () => {
  it('has ties, and no rank for the control or failed cells', () => {
    expect(ranks(whole)).toEqual([
      '1 lua',
      '2= skip-locked',
      '2= unique-key',
      '4 for-update',
      '– unsafe',
      '– for-update, A/A control',
    ]);
  });

  it.each([
    ['fail', 7, 'fail: 7 oversold', '0 of 1', '✗ 7 oversold'],
    ['unknown', null, 'unknown', '0 of 1', '? not known'],
  ])('gives no rank to a cell whose audit says %s', (_, oversold, audit, passed, sign) => {
    const results = resultsOf([
      { name: 'lua', rates: [3_000, 3_100], oversold },
      { name: 'for-update', rates: [500, 510] },
    ]);
    const rows = mainTable(results, results.summary).rows;
    expect(rows.map((row) => [row[0], row[1], row.at(-1)])).toEqual([
      ['1', 'for-update', 'pass'],
      ['–', 'lua', audit],
    ]);
    expect(sentence(results)).toContain(passed.replace('0 of 1', '1 of 2'));
    expect(htmlReport(results)).toContain(`<li class="wrong" data-s="1"`);
    expect(htmlReport(results)).toContain(sign);
  });

  it('is not drawn from one round, nor from a smoke run', () => {
    const once = resultsOf(usual.map((cell) => ({ ...cell, rates: cell.rates.slice(0, 1) })));
    for (const results of [once, { ...whole, smoke: true }]) {
      expect(sentence(results)).not.toContain('First');
      expect(mainTable(results, results.summary).columns[0]).toEqual(['strategy', 'left']);
      const page = htmlReport(results);
      expect(page).not.toContain('class="bars ranking"');
      expect(page).toContain('✓ audit passed');
      expect(page).not.toMatch(/\d×</);
    }
    expect(notices({ ...whole, smoke: true })[0]).toContain('Smoke run');
    expect(notices(once)[0]).toContain('One round');
    expect(htmlReport({ ...whole, smoke: true })).not.toContain('type="checkbox"');
  });
});

describe('every format', () => {
  const reports = { htmlReport, markdownReport, terminalReport };

  it.each(Object.entries(reports))(
    '%s says what is partial and what failed, and how noisy it is',
    (_, report) => {
      const trials = whole.trials.filter(({ round }) => round < 3);
      const text = report({ ...whole, partial: true, trials, failures: ['lua: the audit failed'] });
      expect(text).toContain('Partial run: 12 of 18 trials');
      expect(report(whole)).not.toContain('Partial');
      expect(text).toContain('lua: the audit failed');
      expect(text).toContain('sold 2,048 of 2,000');
      expect(text).toContain('for-update ran twice in each of 3 rounds');
      expect(text).not.toMatch(/NaN|Infinity|undefined|\[object/);
    },
  );

  it('shows one table for each point, and a chart for the axis, when an axis was swept', () => {
    const cells = [0, 5].flatMap((rttMs) =>
      usual.slice(0, 4).map((cell) => {
        return { ...cell, point: { rttMs }, rates: cell.rates.map((rate) => rate / (1 + rttMs)) };
      }),
    );
    const chart = { kind: 'sweep', title: 'Far', metric: 'rate', axis: 'rttMs' } as const;
    const sections = [{ title: 'Far', text: '', charts: [chart] }];
    const sweep = resultsOf(cells, { layout: { ...layout, sections } });
    expect(terminalReport(sweep)).toContain('5 ms added to each round trip');
    expect(htmlReport(sweep).match(/<polyline style/g)).toHaveLength(4);
    expect(htmlReport({ ...whole, layout: { ...layout, sections } }, [sweep])).toContain('3,000/s → 500/s');
  });
});

describe('figures that do not count', () => {
  it('are in no table and no ranking, and the report says why', () => {
    const invalid = resultsOf(changed('lua', { invalid: ['late'] }));
    expect(ranks(invalid).slice(0, 1)).toEqual(['1= skip-locked']);
    expect(ranks(invalid)).toContain('– lua');
    expect(htmlReport(invalid)).toContain('does not count');
    expect(markdownReport(invalid)).toContain('lua: round 1: not counted: late');
  });
});

describe('numbers', () => {
  it('have their unit and no more digits than rounds agree on', () => {
    expect(withUnit(4_304.8, '/s')).toBe('4,305/s');
    expect(withUnit(1_950, 'ms')).toBe('1.95\u00a0s');
    expect([figure(0.973, '%'), figure(12.34, '×'), figure(0.0058, '×')]).toEqual([
      '97.3\u00a0%',
      '12.3',
      '0.0058',
    ]);
  });
});
