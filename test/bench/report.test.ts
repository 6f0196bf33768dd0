/** What reports say of given results, and what may not be concluded. */
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { htmlReport } from '../../bench/kit/report/html.ts';
import { palette } from '../../bench/kit/report/palette.ts';
import { mainTable } from '../../bench/kit/report/table.ts';
import { markdownReport, terminalReport } from '../../bench/kit/report/text.ts';
import { sentence } from '../../bench/kit/report/words.ts';
import { chartFile } from '../../scripts/chart-file.ts';
import { layout, resultsOf, usual } from './report-fixture.ts';

const whole = resultsOf(usual);

it('the sentence says what passed, what failed as expected, and what leads by how much, after whole runs only', () => {
  expect(sentence(whole)).toBe(
    '4 of 4 safe strategies sold exactly the stock; unsafe failed, as it must (48 oversold). ' +
      'First: lua with 3,000 accepted attempts a second, 5.97 times for-update.',
  );
  const tie = resultsOf(usual.filter(({ name }) => name !== 'lua'));
  expect(sentence(tie)).toContain('Tied for first: skip-locked, unique-key, up to 1,500');
  const once = resultsOf(usual.map((cell) => ({ ...cell, rates: cell.rates.slice(0, 1) })));
  for (const results of [once, { ...whole, smoke: true }]) expect(sentence(results)).not.toContain('First');
});

it('the ranking has ties, and no rank for the control, failed cells, and figures that do not count', () => {
  const late = { name: 'late', rates: [9_000, 9_100], invalid: ['late'] };
  const lost = { name: 'lost', rates: [9_000, 9_100], oversold: null };
  const results = resultsOf([...usual, late, lost]);
  const rows = mainTable(results, results.summary).rows.map(([rank, name]) => `${rank} ${name}`);
  expect(rows.slice(0, 4)).toEqual(['1 lua', '2= skip-locked', '2= unique-key', '4 for-update']);
  const last = ['– for-update, A/A control', '– late', '– lost', '– unsafe'];
  expect(rows.slice(4).sort()).toEqual(last);
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

it('the page escapes names, findings, notes and the machine, and loads nothing', () => {
  const hostile = '<script>alert("&")</script>';
  const cell = { name: hostile, rates: [1, 2], oversold: 1, findings: [hostile] };
  const page = htmlReport({
    ...resultsOf([...usual, cell], { commit: hostile, failures: [hostile], generator: hostile }),
    layout: { ...layout, title: hostile, notes: [`\`${hostile}\``] },
  });
  for (const one of [page, chartFile(resultsOf([...usual, cell]))]) expect(one).not.toContain('<script');
  expect(page).toContain('<code>&lt;script&gt;alert(&quot;&amp;&quot;)&lt;/script&gt;</code>');
  expect(page).not.toMatch(/(src|href)="(?!#)|url\(|@import/);
});

it.each(['light', 'dark'] as const)(
  'a color that the pages have, too, is the same in reports: %s',
  (scheme) => {
    const roots = readFileSync(new URL('../../src/web/style.css', import.meta.url), 'utf8').matchAll(
      /:root \{([^}]*)\}/g,
    );
    const colorsOf = (css: string) =>
      Object.fromEntries(
        [...css.matchAll(/--([\w-]+):\s*(#\w+);/g)].map(([, name, color]) => [name!, color!] as const),
      );
    const pages = colorsOf([...roots][scheme === 'light' ? 0 : 1]![1]!);
    const shared = Object.entries(colorsOf(palette[scheme])).filter(([name]) => name in pages);
    const names = ['paper', 'ink', 'soft', 'line', 'fill', 'good', 'bad', 'blue'];
    expect(Object.fromEntries(shared)).toEqual(Object.fromEntries(names.map((name) => [name, pages[name]])));
  },
);
