/** What reports say of given results: the sentence, ranks, cells without a rank, and what may not be concluded. */
import { describe, expect, it } from 'vitest';
import { htmlReport, markdownReport, terminalReport } from '../../bench/kit/report/index.ts';
import { mainTable } from '../../bench/kit/report/table.ts';
import { notices, sentence } from '../../bench/kit/report/words.ts';
import type { Results } from '../../bench/kit/results.ts';
import { onLadder, resultsOf, usual } from './report-fixture.ts';

const whole = resultsOf(usual);
const ranks = (results: Results): string[] =>
  mainTable(results, results.summary).rows.map(([rank, name]) => `${rank} ${name}`);

describe('the sentence', () => {
  it('says what passed, what failed as expected, and what leads by how much, or that it is a tie', () => {
    expect(sentence(whole)).toBe(
      '4 of 4 safe strategies sold exactly the stock; unsafe failed, as it must (48 oversold). ' +
        'First: lua with 3,000 accepted attempts a second, 5.97 times for-update.',
    );
    const tie = resultsOf(usual.filter(({ name }) => name !== 'lua'));
    expect(sentence(tie)).toContain('Tied for first: skip-locked, unique-key, up to 1,500');
    expect(sentence({ ...whole, summary: [] })).toBe('No trial was finished.');
  });

  it('counts goals, unless the run is a smoke run', () => {
    const value = { median: 6, low: 5, high: 7, rounds: 3 };
    const goal = { metric: 'rate', over: 'for-update', atMost: null, what: 'speed', value, byRound: [] };
    const goals = [
      { ...goal, of: 'lua', atLeast: 5, verdict: 'reached' as const },
      { ...goal, of: 'unique-key', atLeast: 8, verdict: 'missed' as const },
    ];
    const counted = '1 of 2 goals reached; not reached: unique-key ÷ for-update: speed.';
    expect(sentence({ ...whole, goals })).toContain(counted);
    expect(sentence({ ...whole, goals, smoke: true })).not.toContain('goals');
  });

  it('names the best of all when each may have its own number of connections', () => {
    const results = onLadder(1.5, (cell) =>
      cell.name === 'skip-locked' ? { ...cell, rates: [9_000, 9_100] } : cell,
    );
    expect(sentence(results)).toContain('First: lua with 3,000 accepted attempts a second at 64 connections');
    expect(sentence(results)).toContain('Each at its best: skip-locked with 9,050 at 256.');
  });
});

describe('the ranking', () => {
  it('has ties, and no rank for the control, failed cells, and figures that do not count', () => {
    const last = ['– unsafe', '– for-update, A/A control'];
    expect(ranks(whole)).toEqual(['1 lua', '2= skip-locked', '2= unique-key', '4 for-update', ...last]);
    const late = usual.map((cell) => (cell.name === 'lua' ? { ...cell, invalid: ['late'] } : cell));
    const invalid = resultsOf(late);
    expect(ranks(invalid)[0]).toBe('1= skip-locked');
    expect(ranks(invalid)).toContain('– lua');
    expect(markdownReport(invalid)).toContain('lua: round 1: not counted: late');
  });

  it.each([
    ['fail', 7, 'fail: 7 oversold'],
    ['unknown', null, 'unknown'],
  ])('gives no rank to a cell whose audit says %s', (_, oversold, audit) => {
    const results = resultsOf([
      { name: 'lua', rates: [3_000, 3_100], oversold },
      { name: 'for-update', rates: [500, 510] },
    ]);
    const rows = mainTable(results, results.summary).rows.map((row) => [row[0], row[1], row.at(-1)]);
    expect(rows.join(' ')).toBe(`1,for-update,pass –,lua,${audit}`);
    expect(sentence(results)).toContain('1 of 2');
  });

  it('is not drawn from one round, nor from a smoke run', () => {
    const once = resultsOf(usual.map((cell) => ({ ...cell, rates: cell.rates.slice(0, 1) })));
    const smoke = { ...whole, smoke: true };
    expect([notices(once)[0], notices(smoke)[0]]).toEqual([
      expect.stringContaining('One round'),
      expect.stringContaining('Smoke run'),
    ]);
    for (const results of [once, smoke]) {
      expect(sentence(results)).not.toContain('First');
    }
  });
});

it.each(Object.entries({ htmlReport, markdownReport, terminalReport }))(
  '%s says what is partial and what failed, and how noisy it is',
  (_, report) => {
    const trials = whole.trials.filter(({ round }) => round < 3);
    const text = report({ ...whole, partial: true, trials, failures: ['lua: the audit failed'] });
    for (const said of ['Partial run: 12 of 18 trials', 'lua: the audit failed', 'sold 2,048 of 2,000'])
      expect(text).toContain(said);
    expect(report(whole)).not.toContain('Partial');
    expect(text).toContain('for-update ran twice in each of 3 rounds');
    expect(text).not.toMatch(/NaN|Infinity|undefined|\[object/);
  },
);
