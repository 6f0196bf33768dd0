/** The page: safe markup, complete without script, and its switches in a real browser. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { htmlReport } from '../../bench/kit/report/index.ts';
import { chartFile } from '../../scripts/chart-file.ts';
import { opened } from '../support/opened.ts';
import { executablePath, openBrowser } from '../web/browser.ts';
import { layout, onLadder, resultsOf, usual } from './report-fixture.ts';

const goal = {
  ...{ metric: 'rate', of: 'lua', over: 'for-update', atLeast: 5, atMost: null, what: 'speed' },
  ...{ value: { median: 6, low: 5.5, high: 7, rounds: 3 }, byRound: [], verdict: 'reached' },
};
const whole = htmlReport(onLadder(1.3, undefined, { goals: [goal] }));

describe('the page', () => {
  it('escapes names, findings, notes and the machine', () => {
    const hostile = '<script>alert("&")</script>';
    const cell = { name: hostile, rates: [1, 2], oversold: 1, findings: [hostile] };
    const page = htmlReport({
      ...resultsOf([...usual, cell], { commit: hostile, failures: [hostile], generator: hostile }),
      layout: { ...layout, title: hostile, notes: [`\`${hostile}\``] },
    });
    expect(page).not.toContain('<script');
    expect(page).toContain('<code>&lt;script&gt;alert(&quot;&amp;&quot;)&lt;/script&gt;</code>');
    expect(chartFile(resultsOf([...usual, cell]))).not.toContain('<script');
  });

  it('draws what was oversold no further than the stock is high, and names the rest', () => {
    const results = resultsOf(usual);
    const left = (cell: string) => (cell === 'unsafe' ? [100, -50, -9_000] : [100, 50, 0]);
    const summary = results.summary.map((row) => ({
      ...row,
      curves: { left: left(row.cell).map((units, n) => [n * 1_000, units] as const) },
    }));
    const page = htmlReport({ ...results, summary });
    expect(page).toMatch(/-9,000 after 2\.00\ss/);
    expect(page).not.toMatch(/-[1-9]k/);
  });

  it('is self-contained and small', () => {
    expect(whole).not.toMatch(/(src|href)="(?!#)|url\(|@import/);
    expect(whole.length).toBeLessThan(100_000);
  });
});

describe.skipIf(executablePath === undefined)('in Chromium (skipped where it is not installed)', () => {
  const folder = mkdtempSync(join(tmpdir(), 'stampede-report-'));
  const url = pathToFileURL(join(folder, 'report.html')).href;
  const browser = opened(openBrowser);
  const openAll = `document.querySelectorAll('details').forEach((one) => { one.open = true; })`;
  const scrollWidth = 'document.documentElement.scrollWidth';

  beforeAll(() => writeFileSync(join(folder, 'report.html'), whole));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  it.each([true, false])(
    'switches a cell off in all charts, and loads nothing (with script: %s)',
    async (javaScriptEnabled) => {
      const page = await browser.newPage({ javaScriptEnabled });
      const troubles: string[] = [];
      page.on('pageerror', (error) => troubles.push(error.message));
      page.on('request', (request) => request.url() !== url && troubles.push(request.url()));
      await page.goto(url);
      if (javaScriptEnabled) await page.evaluate(openAll);
      else await page.click('summary');
      await page.setViewportSize({ width: 360, height: 800 });
      if (javaScriptEnabled) expect(await page.evaluate(scrollWidth)).toBeLessThanOrEqual(360);
      const shown = (cell: string): Promise<number> =>
        page.locator('[data-s]:visible', { hasText: cell }).count();
      expect(await shown('lua')).toBeGreaterThan(4);
      await page.uncheck('#c0');
      expect(await shown('lua')).toBe(0);
      expect(await shown('skip-locked')).toBeGreaterThan(4);
      await page.click('text=all');
      expect(await shown('lua')).toBeGreaterThan(4);
      await page.close();
      expect(troubles).toEqual([]);
    },
  );
});
